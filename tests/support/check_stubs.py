"""Generates the stubs anew in a temporary folder and compares them with the committed ones; exit 1 when they differ."""

from __future__ import annotations

import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """0 when the committed stubs are what proto/ generates."""
    protos = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "proto/n4n/v1").glob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        outputs = (f"--python_out={folder}", f"--pyi_out={folder}", f"--grpc_python_out={folder}")
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-Iproto", *outputs, *protos], cwd=ROOT, check=True)
        fresh = sorted((Path(folder) / "n4n/v1").iterdir())
        stale = [path.name for path in fresh if not _same(path, ROOT / "n4n/v1" / path.name)]
        known = {path.name for path in fresh} | {"__init__.py"}
        extra = [path.name for path in (ROOT / "n4n/v1").glob("*.py*") if path.name not in known]
    if stale or extra:
        print(f"stubs in n4n/v1 are not what proto/ generates ({', '.join(stale + extra)}); run: make proto")
        return 1
    print(f"{len(fresh)} stubs are fresh")
    return 0


def _same(fresh: Path, committed: Path) -> bool:
    return committed.exists() and filecmp.cmp(fresh, committed, shallow=False)


if __name__ == "__main__":
    sys.exit(main())

"""A part of the bench that runs in a process of its own: a wish as JSON in, an answer as JSON out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from bench.machine import Cpu, pinned

LONGEST_S = 3600.0


def asked_of(module: str, wish: Mapping[str, object], cpu: int) -> dict[str, Any]:
    """What the module answers. RuntimeError with its words when it fails."""
    command, told = [sys.executable, "-m", module], json.dumps(wish)
    done = subprocess.run(command, input=told, capture_output=True, text=True, preexec_fn=pinned(Cpu(cpu)), timeout=LONGEST_S, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise RuntimeError(f"{module} failed: {done.stderr.strip()[-300:]}") from error
    return answer

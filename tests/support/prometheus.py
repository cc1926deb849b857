"""A real Prometheus, where one is installed: it scrapes what a test names, and answers questions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support import dashboards
from tests.support.house import free_port

PROMETHEUS = os.environ.get("N4N_TEST_PROMETHEUS") or shutil.which("prometheus")


@contextmanager
def a_prometheus(folder: Path, urls: Sequence[str], *flags: str, interval: str = "500ms") -> Iterator[str]:
    """Scrapes these, with our rules; its base URL."""
    targets = [urllib.parse.urlsplit(url).netloc for url in urls]
    rules = Path(dashboards.FOLDER).parent.parent / "prometheus" / "n4n.rules.yml"
    settings = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "n4n", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    port = free_port()
    words = [
        str(PROMETHEUS), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error", *flags,
    ]  # fmt: skip
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def told(base_url: str, path: str, **parameters: str) -> Any:
    """What its API answers; None while it is not there yet. A query that is none fails."""
    try:
        with urllib.request.urlopen(f"{base_url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=5) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        if error.code == 400:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        return None
    except OSError:
        return None


def asked(base_url: str, query: str) -> list[Any]:
    """The series that a query gives now."""
    found = told(base_url, "query", query=query)
    return [] if found is None else list(found["result"])

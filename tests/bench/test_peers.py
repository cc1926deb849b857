"""The peers of the bench: what they are configured with, and that the raw one passes on what it should."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench import payloads
from bench.__main__ import PEERS, main
from bench.ab import checkouts
from bench.gateway import catalog_for
from bench.machine import Cpu
from bench.peers import PLAIN, TLS, Absent, Target
from bench.proxies import nginx_conf, start_raw
from bench.routers import STARTERS, envoy_config
from bench.samples import quantile
from bench.streams import EVENT
from bench.trials import trials
from bench.upstreams import Upstreams, make_certificate, start_upstreams
from n4n.core.document import parse_document


@pytest.fixture
def upstreams(tmp_path: Path) -> Iterator[Upstreams]:
    with ExitStack() as running:
        yield start_upstreams(tmp_path, Cpu(0), running.callback)


def test_the_raw_proxy_passes_both_kinds_of_answer_on_plain_and_by_tls(upstreams: Upstreams, tmp_path: Path) -> None:
    peer = start_raw(tmp_path, Cpu(0), upstreams)
    try:
        peer.check(within_s=20)

        assert set(peer.ways) == ({PLAIN, TLS} if upstreams.authority else {PLAIN})
        assert peer.ways[PLAIN].ask(stream=True).count(EVENT) == payloads.EVENTS
    finally:
        peer.stop()


def test_the_catalog_of_the_bench_is_valid_and_has_a_model_for_every_way(upstreams: Upstreams) -> None:
    document = catalog_for(upstreams)

    _, problems = parse_document(document)

    assert not problems
    models = document["models"]
    assert isinstance(models, dict)
    assert len(models) == (5 if upstreams.authority else 4)
    assert models["bench-unguarded"]["stream_guard"] == {"chunks": 0, "max_hold_ms": 0}
    assert "stream_guard" not in models[payloads.MODEL]


def test_a_certificate_is_only_good_with_its_authority(tmp_path: Path) -> None:
    try:
        made = make_certificate(tmp_path)
    except Absent as absent:
        pytest.skip(str(absent))

    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(made.certificate, made.key)
    assert _shakes_hands(server, ssl.create_default_context(cafile=made.authority))
    with pytest.raises(ssl.SSLCertVerificationError):
        _shakes_hands(server, ssl.create_default_context())


def _shakes_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(down, up, server_hostname="127.0.0.1")
    answers = server.wrap_bio(up, down, server_side=True)
    left: list[Callable[[], None]] = [asks.do_handshake, answers.do_handshake]
    for _ in range(10):
        for step in list(left):
            try:
                step()
            except ssl.SSLWantReadError:
                continue
            left.remove(step)
    return not left


def test_nginx_keeps_connections_does_not_buffer_and_verifies(tmp_path: Path) -> None:
    conf = nginx_conf({PLAIN: 1, TLS: 2}, {PLAIN: "http://127.0.0.1:3", TLS: "https://127.0.0.1:4"}, tmp_path / "ca.pem")

    assert conf.count("keepalive 1024") == conf.count("proxy_buffering off") == 2
    assert "proxy_pass https://u1" in conf and conf.count("proxy_ssl_verify on") == 1


def test_envoy_listens_where_it_is_asked() -> None:
    assert "'port_value': 7" in str(envoy_config(7, 8)) and "'port_value': 8" in str(envoy_config(7, 8))


@pytest.mark.parametrize("name", STARTERS)
def test_a_router_that_is_not_installed_is_absent(
    name: str, monkeypatch: pytest.MonkeyPatch, upstreams_nowhere: Upstreams, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(f"N4N_BENCH_{name.upper()}", str(tmp_path / "none"))

    with pytest.raises(Absent, match=f"N4N_BENCH_{name.upper()}"):
        STARTERS[name](tmp_path, Cpu(0), upstreams_nowhere)


@pytest.fixture
def upstreams_nowhere(monkeypatch: pytest.MonkeyPatch) -> Upstreams:
    monkeypatch.setattr(Upstreams, "target", lambda self, way: Target("http://127.0.0.1:9/v1"))
    return Upstreams((), None, "none", "")


@pytest.mark.parametrize(
    "words", [["--peers", "nginx,none"], ["--trials", "none"], ["--rounds", "0"], ["--seconds", "0"], ["--ab", "only-one"]]
)
def test_a_wrong_word_stops_the_bench_before_anything_starts(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)

    assert "usage" in capsys.readouterr().err


def test_only_a_checkout_can_be_compared(tmp_path: Path) -> None:
    here = str(Path(__file__).parents[2])

    assert [one.name for one in checkouts([here, here], [sys.executable] * 2)] == ["n4n A", "n4n B"]
    with pytest.raises(RuntimeError, match="no checkout"):
        checkouts([here, str(tmp_path)], [sys.executable] * 2)


@pytest.mark.parametrize(("stream", "whole"), [(False, payloads.answer()), (True, b"".join(payloads.stream_pieces()))])
def test_an_answer_that_lacks_a_part_is_found(stream: bool, whole: bytes) -> None:
    assert payloads.fault_in(whole, stream=stream) is None
    assert "without" in (payloads.fault_in(whole[: len(whole) // 3], stream=stream) or "")
    assert payloads.fault_in(whole.replace(b'word7"', b'word"').replace(b"ferry", b""), stream=stream) is not None


def test_quantiles_are_samples() -> None:
    assert (quantile([1, 2, 3, 4], 0.5), quantile([1, 2, 3, 4], 0.95), quantile([], 0.5)) == (3, 4, 0)


def test_the_names_that_the_bench_offers_are_what_the_document_lists() -> None:
    document = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()

    assert all(f"`{name}`" in document for name in [*PEERS, *trials(quick=True)])

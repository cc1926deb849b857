"""TLS between the planes: who may connect, who may watch without a token, and what is said when certificates do not fit."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from control_plane.app import control_plane
from n4n.core.errors import StartFailed
from n4n.runtime.control_client import ControlClient, ControlRefused
from n4n.runtime.control_link import ControlLink, Identity
from n4n.runtime.credentials import Credentials
from n4n.runtime.follower import Follower
from n4n.runtime.settings import Settings
from n4n.runtime.tls import NO_TLS, TlsFiles, channel_credentials, server_credentials, tls_of
from tests.integration.test_discovery_client import FAST, PACE, until
from tests.support.catalogs import SMALL
from tests.support.certificates import Authority, needs_openssl, new_authority

pytestmark = needs_openssl
ADMIN = "the-admin-token"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("strange"))


@asynccontextmanager
async def secured(url: str, files: TlsFiles, node_token: str = "") -> AsyncIterator[str]:
    """A control plane with these files; where it serves."""
    settings = Settings(database_url=url, admin_port=0, metrics_port=0, admin_token=ADMIN, node_token=node_token)
    settings = replace(settings, tls_cert=files.cert, tls_key=files.key, tls_ca=files.ca)
    async with control_plane(settings, heartbeat_s=0.5) as running:
        yield f"127.0.0.1:{running.port}"


@asynccontextmanager
async def a_router(target: str, path: Path, files: TlsFiles, token: str = "") -> AsyncIterator[tuple[Follower, ControlLink]]:
    follower = Follower(path / "catalog.snapshot", Credentials({}), pace=PACE)
    identity = Identity("router-1", "data-plane", "0.1", token, files)
    link = ControlLink([target], identity, follower, rules=FAST, clock=asyncio.get_running_loop().time, draw=lambda: 0.5)
    running = asyncio.create_task(link.run())
    try:
        yield follower, link
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def apply(target: str, files: TlsFiles, token: str = ADMIN) -> int:
    async with ControlClient([target], token, tls=files, connect_s=2) as operator:
        return (await operator.apply(json.dumps(SMALL), author="ann")).version.version


async def test_with_certificates_on_both_sides_a_router_needs_no_token_and_an_operator_still_does(
    ours: Authority, module_postgres_url: str, tmp_path: Path
) -> None:
    node = ours.certified("router")
    async with secured(module_postgres_url, ours.certified("control")) as target:
        await apply(target, ours.certified("operator"))
        async with a_router(target, tmp_path, node) as (follower, _):
            await until(lambda: follower.version == 1)
        for token in ("", "wrong"):
            with pytest.raises(ControlRefused) as refused:
                await apply(target, node, token)
            assert refused.value.code == "unauthenticated"


async def test_nobody_connects_without_a_certificate_of_the_authority(
    ours: Authority, strange: Authority, module_postgres_url: str, tmp_path: Path
) -> None:
    forged = replace(strange.certified("router"), ca=ours.ca)
    async with secured(module_postgres_url, ours.certified("control"), "node-token") as target:
        for files in (NO_TLS, TlsFiles(ca=ours.ca), forged):
            with pytest.raises(ControlRefused) as refused:
                await apply(target, files)
            assert refused.value.code in ("unreachable", "unavailable")
            async with a_router(target, tmp_path, files, "node-token") as (follower, link):
                await until(lambda link=link: link.problem != "")  # type: ignore[misc]
                assert follower.version == 0


async def test_with_a_certificate_of_the_control_plane_alone_tokens_decide(
    ours: Authority, module_postgres_url: str, tmp_path: Path
) -> None:
    async with secured(module_postgres_url, ours.certified("control", checks=False), "node-token") as target:
        await apply(target, TlsFiles(ca=ours.ca))
        async with a_router(target, tmp_path, TlsFiles(ca=ours.ca), "node-token") as (follower, _):
            await until(lambda: follower.version == 1)
        async with a_router(target, tmp_path, ours.certified("router")) as (_, link):
            await until(lambda: "N4N_NODE_TOKEN" in link.problem)


async def test_a_control_plane_that_cannot_be_believed_is_not_followed_and_told_apart(
    ours: Authority, strange: Authority, module_postgres_url: str, tmp_path: Path
) -> None:
    for files in (strange.certified("control", checks=False), ours.certified("elsewhere", "DNS:elsewhere.example", checks=False)):
        async with secured(module_postgres_url, files, "node-token") as target:
            async with a_router(target, tmp_path, TlsFiles(ca=ours.ca), "node-token") as (follower, link):
                await until(lambda link=link: "N4N_TLS_CA" in link.problem)  # type: ignore[misc]
                assert follower.version == 0
            with pytest.raises(ControlRefused) as refused:
                await apply(target, TlsFiles(ca=ours.ca))
            assert "over TLS" in refused.value.message


def bundled(path: Path, *authorities: Authority) -> Path:
    path.write_text("".join(Path(one.ca).read_text() for one in authorities))
    return path


async def test_an_authority_is_replaced_while_both_are_believed(
    ours: Authority, strange: Authority, module_postgres_url: str, tmp_path: Path
) -> None:
    both = bundled(tmp_path / "both.pem", ours, strange)
    old, new = ([replace(of.certified(name), ca=str(both)) for name in ("control-2", "router-2", "operator-2")] for of in (ours, strange))
    steps = [  # the control plane's files, then the router's
        (old[0], replace(old[1], ca=ours.ca)),
        (new[0], old[1]),
        (new[0], replace(new[1], ca=strange.ca)),
        (replace(new[0], ca=strange.ca), replace(new[1], ca=strange.ca)),
    ]
    for number, (control, router) in enumerate(steps):
        async with secured(module_postgres_url, control) as target:
            await apply(target, old[2] if number < 2 else new[2])
            async with a_router(target, tmp_path / str(number), router) as (follower, _):
                await until(lambda follower=follower: follower.version == 1)  # type: ignore[misc]


async def test_a_router_takes_up_a_renewed_certificate_and_says_so_while_it_cannot(
    ours: Authority, module_postgres_url: str, tmp_path: Path
) -> None:
    files = ours.certified("renewed")
    kept = Path(shutil.move(files.cert, tmp_path / "kept.pem"))
    async with secured(module_postgres_url, ours.certified("control")) as target:
        await apply(target, ours.certified("operator"))
        async with a_router(target, tmp_path, files) as (follower, link):
            await until(lambda: "N4N_TLS_CERT: the file" in link.problem)
            shutil.copy(kept, files.cert)
            await until(lambda: follower.version == 1 and link.problem == "")


def test_files_that_do_not_go_together_are_told_by_their_settings(ours: Authority, tmp_path: Path) -> None:
    good, other, broken = ours.certified("one"), ours.certified("two"), str(tmp_path / "broken.pem")
    Path(broken).write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    cases = {
        "N4N_TLS_CERT is set and N4N_TLS_KEY is not": lambda: tls_of(Settings(tls_cert="a")),
        "N4N_TLS_KEY is set and N4N_TLS_CERT is not": lambda: tls_of(Settings(tls_key="a")),
        "needs a certificate of its own": lambda: server_credentials(TlsFiles(ca=ours.ca)),
        "N4N_TLS_CERT and N4N_TLS_KEY must be a certificate and its own key": lambda: server_credentials(replace(good, key=other.key)),
        "N4N_TLS_CERT and N4N_TLS_KEY must be": lambda: channel_credentials(replace(good, cert=broken)),
        "N4N_TLS_CA must hold certificates": lambda: channel_credentials(replace(good, ca=broken)),
        "N4N_TLS_CA: the file /none cannot be read: No such file": lambda: channel_credentials(TlsFiles(ca="/none")),
    }
    for said, step in cases.items():
        with pytest.raises(StartFailed, match=said) as failed:
            step()
        assert "\n" not in str(failed.value)
    assert server_credentials(NO_TLS) is None and channel_credentials(NO_TLS) is None

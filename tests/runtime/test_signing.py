"""Signatures for AWS: AWS' own published examples, botocore's own way beside ours, and a server that checks what it is sent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from n4n.core.catalog import Endpoint, EndpointId, ModelId, Provider
from n4n.core.chat import Signing, UpstreamRequest
from n4n.core.chat_request import read_chat
from n4n.core.dialects.bedrock import Bedrock
from n4n.core.errors import FailureClass
from n4n.runtime import signing
from n4n.runtime.signing import LARGE, can_sign, get_ready, signed
from n4n.runtime.upstream import Phases, Upstream, UpstreamFault
from n4n.runtime.upstream.heads import Heads
from tests.support.answers import completion
from tests.support.sigv4 import Refused, verify
from tests.support.upstream import ScriptedUpstream

KEY_ID, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
PAIR = f"{KEY_ID}:{SECRET}"
# The keys, the instant and the signatures of AWS' test suite for Signature Version 4.
EXAMPLE = {"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": SECRET}
THEN = datetime(2015, 8, 30, 12, 36, tzinfo=UTC).timestamp()
TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi"
    "/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64"
    "lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)


def ask(url: str, body: bytes = b"{}", region: str = "us-east-1", service: str = "bedrock") -> UpstreamRequest:
    headers = (("content-type", "application/json"), ("accept", "application/json"), ("x-team", "sea"))
    return UpstreamRequest(url, headers, body, allow_private=True, signing=Signing(service, region))


def authorization(request: UpstreamRequest) -> str:
    return dict(request.headers)["authorization"]


@pytest.mark.parametrize(
    ("headers", "body", "key", "names", "signature"),
    [
        ((), b"", EXAMPLE, "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            (("content-type", "application/x-www-form-urlencoded"),), b"Param1=value1", EXAMPLE,
            "content-type;host;x-amz-date", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
        (
            (), b"", {**EXAMPLE, "SessionToken": TOKEN},
            "host;x-amz-date;x-amz-security-token", "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
        ),
    ],
    ids=["post-vanilla", "post-x-www-form-urlencoded", "post-sts-header-before"],
)  # fmt: skip
async def test_awss_published_examples_come_out(
    headers: tuple[tuple[str, str], ...], body: bytes, key: dict[str, str], names: str, signature: str
) -> None:
    request = UpstreamRequest("https://example.amazonaws.com/", headers, body, signing=Signing("service", "us-east-1"))

    got = await signed(request, json.dumps(key), THEN)

    assert authorization(got) == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}"
    )  # fmt: skip
    assert got.headers[len(headers)] == ("x-amz-date", "20150830T123600Z")


async def test_botocores_own_way_signs_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore import auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    url = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Fa.b-v1%3A0/converse"
    monkeypatch.setattr(auth, "get_current_datetime", lambda: datetime.fromtimestamp(THEN, UTC))
    theirs = AWSRequest("POST", url, headers={"content-type": "application/json"}, data=b'{"a":1}')
    auth.SigV4Auth(Credentials(KEY_ID, SECRET, "tok"), "bedrock", "eu-west-1").add_auth(theirs)

    ours = await signed(ask(url, b'{"a":1}', "eu-west-1"), f"{PAIR}:tok", THEN)

    assert authorization(ours) == theirs.headers["Authorization"]


@pytest.mark.parametrize("size", [2, LARGE + 1])
@pytest.mark.parametrize("token", [None, "IQoJb3JpZ2luX2VjEOz//////////wEa"])
async def test_a_server_that_checks_believes_what_was_signed(size: int, token: str | None) -> None:
    secret = PAIR if token is None else f"{PAIR}:{token}"
    tokens = {} if token is None else {KEY_ID: token}
    path = "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse"
    async with ScriptedUpstream() as aws:
        aws.script(completion("ok"))
        url = aws.base_url.removesuffix("/v1") + path
        upstream = Upstream(time.monotonic)
        try:
            request = await signed(ask(url, b"x" * size, "eu-west-1"), secret, time.time())
            async with upstream.send(request, "req_1", Phases(2.0, 2.0, 2.0, time.monotonic() + 5)) as reply:
                assert reply.status == 200
                await reply.read()
        finally:
            await upstream.close()

    assert aws.calls[0].path == path
    assert verify(aws.calls[0], {KEY_ID: SECRET}, region="eu-west-1", service="bedrock", tokens=tokens) == KEY_ID
    for secrets, region in (({KEY_ID: SECRET + "x"}, "eu-west-1"), ({KEY_ID: SECRET}, "us-east-1")):
        with pytest.raises(Refused):
            verify(aws.calls[0], secrets, region=region, service="bedrock", tokens=tokens)


async def test_a_dialects_request_is_signed_as_it_leaves() -> None:
    provider = Provider("p", "bedrock", "https://bedrock-runtime.ap-southeast-2.amazonaws.com", headers={"x-amz-custom": " a  b"})
    endpoint = Endpoint(EndpointId("e"), ModelId("m"), provider, (), "amazon.nova-2-lite-v1:0")
    request = Bedrock().encode(read_chat(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'), endpoint, PAIR)

    got = await signed(request, PAIR, time.time())

    assert "/ap-southeast-2/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-custom;x-amz-date," in authorization(got)
    assert got.headers[: len(request.headers)] == request.headers
    assert (got.url, got.body) == (request.url, request.body)


async def test_the_region_may_be_the_processs_own() -> None:
    request = ask("https://proxy.test/model/m/converse", region="")

    for environ in ({"AWS_REGION": "eu-north-1", "AWS_DEFAULT_REGION": "x"}, {"AWS_DEFAULT_REGION": "eu-north-1"}):
        got = await signed(request, PAIR, THEN, environ)
        assert "/20150830/eu-north-1/bedrock/" in authorization(got)
    with pytest.raises(UpstreamFault, match="nothing tells the AWS region"):
        await signed(request, PAIR, THEN, {})


@pytest.mark.parametrize("secret", [None, "profile:team", "ABSKkey", "{"])
async def test_without_an_access_key_nothing_is_sent(secret: str | None) -> None:
    with pytest.raises(UpstreamFault) as told:
        await signed(ask("https://x.test/"), secret, THEN)

    failure = told.value.failure
    assert (failure.failure_class, failure.may_have_run) == (FailureClass.AUTH, False)
    assert failure.message == "the gateway has no valid AWS key for this account"


async def test_a_signed_head_is_not_kept() -> None:
    heads = Heads()
    plain = UpstreamRequest("https://x.test/", (("a", "b"),), b"")
    one, other = await signed(ask("https://x.test/"), PAIR, THEN), await signed(ask("https://x.test/"), PAIR, THEN + 60)

    assert heads.of(plain) is heads.of(plain)
    assert heads.of(one) is not heads.of(one)
    assert b"20150830T123700Z" in heads.of(other).start and SECRET.encode() not in heads.of(other).start


def test_botocore_is_imported_by_nobody_who_does_not_need_it() -> None:
    check = "import sys, n4n.runtime.credentials, data_plane.app, n4n.runtime.signing; sys.exit('botocore' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_whether_it_can_sign_is_known_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_sign()
    get_ready()
    assert "n4n.runtime.aws_signer" in sys.modules
    monkeypatch.setattr(signing, "find_spec", lambda name: None)
    assert not can_sign()

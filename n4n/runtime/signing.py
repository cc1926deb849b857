"""Requests to AWS, signed: Signature Version 4 by botocore's own signer (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html).

Only what AWS wants signed is: host, content type and its own headers, and the body. What is added on the way stays free. botocore
is large and is imported where an account first needs it, not before.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

import msgspec

from n4n.core.chat import Signing, UpstreamRequest
from n4n.core.dialects.bedrock.identity import AccessKey, read_identity
from n4n.core.errors import Failure, FailureClass
from n4n.runtime.upstream import UpstreamFault

LARGE = 1024 * 1024  # bytes of a body from which on hashing takes a millisecond and more, so that a thread does it
NOT_INSTALLED = "it signs requests to AWS, for which botocore is missing: pip install 'n4n[aws]'"
_NO_KEY = "the gateway has no valid AWS key for this account"
_NO_REGION = "nothing tells the AWS region to sign for: set region on the endpoint to one such as eu-west-1, or AWS_REGION"
_STAMP = "%Y%m%dT%H%M%SZ"


class _Signer(Protocol):
    def authorization(self, url: str, headers: Mapping[str, str], body: bytes, key: AccessKey, signing: Signing, stamp: str) -> str: ...


def can_sign() -> bool:
    """Whether botocore is installed; looks without importing it."""
    return find_spec("botocore") is not None


def get_ready() -> None:
    """Imports the signer, 0.1 s and 20 MB, so that no request pays for it. Not for the event loop."""
    _signer()


async def signed(request: UpstreamRequest, secret: str | None, now: float, environ: Mapping[str, str] = os.environ) -> UpstreamRequest:
    """The request with a signature by the access key that `secret` holds; `now` in Unix seconds. UpstreamFault: it cannot be signed."""
    assert request.signing is not None
    key = read_identity(secret)
    if not isinstance(key, AccessKey):
        raise _unsigned(_NO_KEY)
    region = request.signing.region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise _unsigned(_NO_REGION)
    signing = Signing(request.signing.service, region)
    if len(request.body) > LARGE:
        return await asyncio.to_thread(_signed, request, key, signing, now)
    return _signed(request, key, signing, now)


def _signed(request: UpstreamRequest, key: AccessKey, signing: Signing, now: float) -> UpstreamRequest:
    stamp = datetime.fromtimestamp(now, UTC).strftime(_STAMP)
    own = [("x-amz-date", stamp)]
    if key.token is not None:
        own.append(("x-amz-security-token", key.token))
    told = {name: value for name, value in (*request.headers, *own) if name == "content-type" or name.startswith("x-amz-")}
    authorization = _signer().authorization(request.url, told, request.body, key, signing, stamp)
    return msgspec.structs.replace(request, headers=(*request.headers, *own, ("authorization", authorization)), signing=signing)


def _signer() -> _Signer:
    return cast(_Signer, import_module("n4n.runtime.aws_signer"))


def _unsigned(message: str) -> UpstreamFault:
    return UpstreamFault(Failure(FailureClass.AUTH, message, may_have_run=False))

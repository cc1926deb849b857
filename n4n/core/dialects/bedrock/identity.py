"""Who we are to AWS: what an account's credential holds, and the region a URL lies in.

A credential (`env:` or `file:`) holds a Bedrock API key, an access key as ID:SECRET or ID:SECRET:TOKEN, the JSON object that AWS'
own tools write (`aws configure export-credentials`), or profile:NAME. An account without one is whoever the process is on its
machine: environment, shared files, or the role of the container or instance
(https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

_PAIR = re.compile(r"([A-Z0-9]{16,128}):([A-Za-z0-9/+=]{16,256})(?::(\S{1,16384}))?\Z")
_PROFILE = re.compile(r"profile:([^\s:][^\r\n]{0,126})\Z")
_HOST = re.compile(r"//[^/]*?\bbedrock-runtime(?:-fips)?\.([a-z]{2,4}(?:-[a-z]+){1,3}-\d{1,2})\.", re.IGNORECASE)
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+){1,3}-\d{1,2}\Z")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A Bedrock API key, sent as a bearer token."""

    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AccessKey:
    """An access key that signs; with a token it is a temporary one."""

    key_id: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile of the shared configuration files."""

    name: str


@dataclass(frozen=True, slots=True)
class Ambient:
    """Whoever the process is."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The credential is none of these; `why` names the remedy and nothing of its contents."""

    why: str


Identity = ApiKey | AccessKey | Profile | Ambient | Unreadable


class _Exported(msgspec.Struct):
    key_id: str = msgspec.field(name="AccessKeyId")
    secret: str = msgspec.field(name="SecretAccessKey")
    token: str | None = msgspec.field(default=None, name="SessionToken")


_EXPORTED = msgspec.json.Decoder(_Exported)


def read_identity(secret: str | None) -> Identity:
    """What a credential holds."""
    if not secret:
        return Ambient()
    if found := _PAIR.match(secret):
        return AccessKey(found[1], found[2], found[3])
    if found := _PROFILE.match(secret):
        return Profile(found[1])
    if not secret.startswith("{"):
        return ApiKey(secret)
    try:
        exported = _EXPORTED.decode(secret)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return Unreadable("its credential is JSON, but not an AWS access key: AccessKeyId and SecretAccessKey must be texts in it")
    return AccessKey(exported.key_id, exported.secret, exported.token)


def region_of(base_url: str, region: str) -> str:
    """The AWS region to sign for: the URL's, else the endpoint's own word where it is one of AWS'; empty: neither tells."""
    found = _HOST.search(base_url)
    if found:
        return found[1].lower()
    return region if _REGION.match(region) else ""

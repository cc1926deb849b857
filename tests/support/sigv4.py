"""AWS' side of a signature: what a service does with a request before it believes it. Written from AWS' own description
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html), apart from botocore and the gateway."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from tests.support.call import Call

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([a-z0-9-]+)/(\w+)/aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})\Z"
)


class Refused(Exception):
    """The service would answer 403."""


def verify(call: Call, secrets: Mapping[str, str], *, region: str, service: str, tokens: Mapping[str, str] | None = None) -> str:
    """The id of the key that signed this call; Refused: it is not signed as it must be. `tokens` are those of temporary keys."""
    found = _AUTHORIZATION.match(call.header("authorization") or "")
    if found is None:
        raise Refused("no authorization in the right form")
    key_id, day, told_region, told_service, names, signature = found.groups()
    if key_id not in secrets or (told_region, told_service) != (region, service):
        raise Refused("another key, region or service")
    if call.header("x-amz-security-token") != (tokens or {}).get(key_id):
        raise Refused("another session token")
    headers = {name.lower(): " ".join(value.split()) for name, value in call.headers}
    signed = names.split(";")
    if signed != sorted(signed) or "host" not in signed or any(name not in signed for name in headers if name.startswith("x-amz-")):
        raise Refused("a header that has to be signed is not")
    stamp = headers.get("x-amz-date", "")
    sent = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if stamp[:8] != day or abs((datetime.now(UTC) - sent).total_seconds()) > 300:
        raise Refused("signed at another time")
    lines = [call.method, "/".join(quote(step, safe="-_.~") for step in call.path.split("/")), ""]
    lines += [f"{name}:{headers[name]}" for name in signed] + ["", names, hashlib.sha256(call.body).hexdigest()]
    scope = f"{day}/{region}/{service}/aws4_request"
    told = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256("\n".join(lines).encode()).hexdigest()))
    key = f"AWS4{secrets[key_id]}".encode()
    for step in (day, region, service, "aws4_request"):
        key = hmac.digest(key, step.encode(), "sha256")
    if not hmac.compare_digest(hmac.digest(key, told.encode(), "sha256").hex(), signature):
        raise Refused("another signature")
    return key_id

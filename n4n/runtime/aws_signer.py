"""One signature by botocore; imported only where one is needed, for it is large.

The signer's steps are taken one by one: its own way through them asks the system for the time and writes what it signs, keys
included, into a log.
"""

from __future__ import annotations

from collections.abc import Mapping

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from n4n.core.chat import Signing
from n4n.core.dialects.bedrock.identity import AccessKey


def authorization(url: str, headers: Mapping[str, str], body: bytes, key: AccessKey, signing: Signing, stamp: str) -> str:
    """The value of `authorization` for a POST; `headers` are those to be signed, x-amz-date with the same `stamp` among them."""
    request = AWSRequest("POST", url, headers=headers, data=body)
    request.context["timestamp"] = stamp
    signer = SigV4Auth(Credentials(key.key_id, key.secret, key.token), signing.service, signing.region)
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    names = signer.signed_headers(signer.headers_to_sign(request))
    return f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, SignedHeaders={names}, Signature={signature}"

"""How one access token of Google Cloud is made, by google-auth; imported only where one is needed, for it is large.

google-auth brings none of its HTTP clients here. Its own part for the metadata server would ask for `requests`, so that one call
is made by hand (https://google.aip.dev/auth/4115).
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import cast
from urllib.parse import urlsplit

import google.auth.aws
import google.auth.identity_pool
import google.auth.impersonated_credentials
import google.oauth2.credentials
import google.oauth2.service_account
from google.auth import transport
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError

from n4n.runtime.google_tokens import GoogleCredential, Token, Untokened
from n4n.runtime.upstream.dial import Proxy, verifying

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TIMEOUT_S = 10.0
_MOST_BYTES = 1 << 20
_TOKEN_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105  # an address, no secret
_AWS = "urn:ietf:params:aws:token-type:aws4_request"
_CODE = re.compile(r"[a-z_]{1,40}(?=:)")  # of RFC 6749 §5.2, at the head of google-auth's message
_INCOMPLETE = "its Google credential is not complete: use the file as Google gave it out"
_UNREACHABLE = "Google's token service cannot be reached"
_NO_MACHINE = "it names no credential, and this machine has none: name a file of Google's, or set GOOGLE_APPLICATION_CREDENTIALS to one"
# What google-auth raises for a credential that is not as it should be, and for calls that fail.
_FAULTS = (GoogleAuthError, http.client.HTTPException, OSError, ValueError, TypeError, LookupError, AttributeError)


class Maker:
    """Makes tokens of one credential. Blocks while it does."""

    def __init__(self, credential: GoogleCredential, proxy: Proxy | None) -> None:
        self._calls = Calls(proxy)
        self._unreachable = _NO_MACHINE if credential.metadata_host else _UNREACHABLE
        try:
            self._credentials = _read(credential)
        except _FAULTS as error:
            raise Untokened(_INCOMPLETE) from error

    def make(self) -> Token:
        """A new token. Untokened says why there is none, in words that may be shown."""
        try:
            self._credentials.refresh(self._calls)  # type: ignore[no-untyped-call]
        except TransportError as error:
            raise Untokened(self._unreachable) from error
        except RefreshError as error:
            raise Untokened(_why(error)) from error
        except _FAULTS as error:
            raise Untokened(_INCOMPLETE) from error
        token, expiry = self._credentials.token, self._credentials.expiry
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            raise Untokened("Google's token service gave no token")
        return Token(token, None if expiry is None else expiry.replace(tzinfo=UTC).timestamp())


def _why(error: RefreshError) -> str:
    """google-auth wraps failed calls too, and quotes answers, which name accounts: only the code is told."""
    if isinstance(error.__cause__, TransportError):
        return _UNREACHABLE
    code = _CODE.match(str(error.args[0])) if error.args else None
    return f"Google refuses its credential ({code[0]})" if code else "Google refuses its credential"


def _read(credential: GoogleCredential) -> Credentials:
    """google-auth's own object. Its loader for any kind warns of files from strangers; ours are the operator's."""
    if credential.metadata_host:
        return Machine(credential.metadata_host)
    info = cast(dict[str, object], json.loads(credential.text))
    match info["type"]:
        case "service_account":
            made = google.oauth2.service_account.Credentials.from_service_account_info(info, scopes=[SCOPE])  # type: ignore[no-untyped-call]
        case "authorized_user":  # a login has the scopes that the person granted
            made = google.oauth2.credentials.Credentials.from_authorized_user_info(info)  # type: ignore[no-untyped-call]
        case "external_account" if info.get("subject_token_type") == _AWS:
            made = google.auth.aws.Credentials.from_info(info, scopes=[SCOPE])  # type: ignore[no-untyped-call]
        case "external_account":
            made = google.auth.identity_pool.Credentials.from_info(info, scopes=[SCOPE])  # type: ignore[no-untyped-call]
        case _:
            made = google.auth.impersonated_credentials.Credentials.from_impersonated_service_account_info(info, scopes=[SCOPE])  # type: ignore[no-untyped-call]
    return cast(Credentials, made)


class Machine(Credentials):
    """The service account of the machine, pod or function we run on, as its metadata server tells."""

    def __init__(self, host: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._host = host

    def refresh(self, request: transport.Request) -> None:
        """Fetches a token. RefreshError: this machine has none."""
        answer = request(f"http://{self._host}{_TOKEN_PATH}", headers={"metadata-flavor": "Google"}, timeout=_TIMEOUT_S)
        if answer.status != http.client.OK:
            raise RefreshError("no_service_account: the metadata server has no token")  # type: ignore[no-untyped-call]
        told = json.loads(answer.data)
        self.token = told["access_token"]
        self.expiry = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=int(told["expires_in"]))


class _Answer(transport.Response):
    """One answer of `Calls`."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._status, self._data = answer.status, answer.read(_MOST_BYTES + 1)
        self._headers = {name.lower(): value for name, value in answer.getheaders()}
        if len(self._data) > _MOST_BYTES:
            raise TransportError("an answer is too long")  # type: ignore[no-untyped-call]

    @property
    def status(self) -> int:
        """HTTP status."""
        return self._status

    @property
    def headers(self) -> Mapping[str, str]:
        """By names in lower case."""
        return self._headers

    @property
    def data(self) -> bytes:
        """The body."""
        return self._data


class Calls(transport.Request):
    """google-auth's calls over http.client: certificates checked, redirects not followed, through the egress proxy if there is one.

    Without TLS only to this machine and its nearest neighbours, where metadata servers are; never through the proxy.
    """

    def __init__(self, proxy: Proxy | None) -> None:
        self._proxy = proxy
        self._tls = verifying()

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **kwargs: object,
    ) -> _Answer:
        """One call. TransportError: there is no answer."""
        parts = urlsplit(url)
        connection = self._connection(parts.scheme, parts.hostname or "", parts.port, timeout or _TIMEOUT_S)
        try:
            connection.request(
                method, f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}", body=body, headers=dict(headers or {})
            )
            return _Answer(connection.getresponse())
        except (http.client.HTTPException, OSError) as error:
            raise TransportError(error) from error  # type: ignore[no-untyped-call]
        finally:
            connection.close()

    def _connection(self, scheme: str, host: str, port: int | None, timeout: float) -> http.client.HTTPConnection:
        if scheme == "http" and _is_near(host):
            return http.client.HTTPConnection(host, port, timeout=timeout)
        if scheme != "https":
            raise TransportError("only https is used outside this machine")  # type: ignore[no-untyped-call]
        if self._proxy is None:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        connection = http.client.HTTPSConnection(self._proxy.host, self._proxy.port, timeout=timeout, context=self._tls)
        name, _, value = self._proxy.authorization.decode().partition(": ")
        connection.set_tunnel(host, port, {name: value} if name else {})
        return connection


def _is_near(host: str) -> bool:
    """This machine, its link, or a name that is no public one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".internal")
    return address.is_loopback or address.is_link_local

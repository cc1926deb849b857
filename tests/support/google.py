"""Google's token service and a machine's metadata server, on a port of this machine; and the credential files that lead there."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa


@cache
def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class TokenService:
    """What the server was asked and what it answers: the next of `answers`, else a new token."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[int, object]] = field(default_factory=list)
    expires_in: int = 3600

    @property
    def host(self) -> str:
        """Host and port."""
        return self.url.removeprefix("http://")

    def answer(self) -> tuple[int, object]:
        """Status and body of the answer that is due."""
        if self.answers:
            return self.answers.pop(0)
        return 200, {"access_token": f"ya29.token-{len(self.asked)}", "expires_in": self.expires_in, "token_type": "Bearer"}

    def service_account(self, **more: object) -> str:
        """A service account's key file."""
        pem = _key().private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return json.dumps({
            "type": "service_account", "project_id": "p", "private_key_id": "k1", "private_key": pem.decode(),
            "client_email": "robot-canary@p.iam.gserviceaccount.com", "token_uri": f"{self.url}/token", **more,
        })  # fmt: skip

    def login(self) -> str:
        """A person's login, as gcloud keeps it."""
        uri = f"{self.url}/token"
        return json.dumps({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "token_uri": uri})

    def federation(self, subject: str) -> str:
        """A workload elsewhere, with its own token in the file `subject`."""
        return json.dumps({
            "type": "external_account", "audience": "//iam.googleapis.com/x", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{self.url}/token", "credential_source": {"file": subject},
        })  # fmt: skip


def claims_of(assertion: str) -> dict[str, Any]:
    """What a service account's assertion claims; its signature is checked with the key of `service_account`."""
    signed, _, signature = assertion.rpartition(".")
    _key().public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return dict(json.loads(_decoded(signed.partition(".")[2])))


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@contextmanager
def token_service(**settings: Any) -> Iterator[TokenService]:
    """The server, for as long as the context lasts."""
    service = TokenService(**settings)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            service.asked.append({"path": self.path, "flavor": self.headers.get("metadata-flavor"), **form})
            status, said = service.answer()
            told = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        do_POST = do_GET

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()

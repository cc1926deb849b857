"""The server that tells a container its AWS keys, on a port of this machine
(https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Container:
    """What the server answers: a new key each time, or an error."""

    url: str = ""
    asked: int = 0
    lasts_s: float = 3600
    broken: bool = False

    def answer(self) -> tuple[int, bytes]:
        """Status and body."""
        if self.broken:
            return 500, b"{}"
        ends = (datetime.now(UTC) + timedelta(seconds=self.lasts_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        key = {"AccessKeyId": f"ASIAEXAMPLE{self.asked:09d}", "SecretAccessKey": "secretsecretsecret", "Token": "tok", "Expiration": ends}
        return 200, json.dumps(key).encode()


@contextmanager
def container() -> Iterator[Container]:
    """A running server."""
    told = Container()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.asked += 1
            status, body = told.answer()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_port}/keys"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

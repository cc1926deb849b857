"""Asks a running data plane over HTTP: is it ready, and what would a request do."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and decoded JSON body (None: no JSON)."""

    status: int
    body: object


@dataclass(frozen=True, slots=True)
class Router:
    """A data plane at `base_url` (ending in /v1). Proxies of the environment are not used."""

    base_url: str
    api_key: str = ""

    def __repr__(self) -> str:
        return f"Router({self.base_url!r})"

    def is_ready(self) -> bool:
        """Whether /ready says so."""
        try:
            return self._call("GET", "/ready", None, timeout_s=1.0).status == 200
        except OSError:
            return False

    def lets_in(self) -> bool:
        """Whether our key opens it. OSError when nobody answers."""
        return self._call("GET", self._path("/models"), None).status != 401

    def explain(self, model: str, directives: str = "") -> Answer:
        """A dry run. OSError when nobody answers."""
        return self._call("POST", self._path("/route:explain"), {"model": model}, directives=directives)

    def _path(self, rest: str) -> str:
        return urlsplit(self.base_url).path.rstrip("/") + rest

    def _call(self, method: str, path: str, body: object, *, directives: str = "", timeout_s: float = TIMEOUT_S) -> Answer:
        place = urlsplit(self.base_url)
        kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        connection = kind(place.hostname or "", place.port, timeout=timeout_s)
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        if directives:
            headers["x-n4n-routing"] = directives
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return Answer(response.status, _decoded(response.read()))
        except http.client.HTTPException as error:
            raise ConnectionError(f"no HTTP answer: {type(error).__name__}") from error
        finally:
            connection.close()


def _decoded(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return None

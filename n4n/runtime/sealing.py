"""Sealing what leaves this program for a store: AES-256-GCM under a key of its own for each purpose (NIST SP 800-38D).

The secret is `N4N_SEAL_KEY`; where it is not set, the node token, which all routers of a fleet share; where there is none either (a fleet
that knows its routers by certificates), one that is made in the data directory, for the workers of this router alone.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from n4n.core.errors import StartFailed
from n4n.runtime.bearer import sent
from n4n.runtime.settings import Settings

_NONCE_BYTES = 12
_FILE = "seal.key"


class Unreadable(Exception):
    """It was sealed with another key, or for another purpose, or changed since"""


class Seal:
    """Seals and unseals for one purpose. Nothing can be learned from what was sealed but its length."""

    __slots__ = ("_key",)

    def __init__(self, secret: bytes, purpose: str) -> None:
        self._key = hmac.digest(secret, f"n4n seal: {purpose}".encode(), "sha256")

    def __repr__(self) -> str:
        return "Seal(…)"

    def seal(self, content: bytes, about: bytes) -> bytes:
        """Sealed content. `about` has to be known to unseal it, and is not part of it."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 7 MB, for those alone who seal anything

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._key).encrypt(nonce, content, about)

    def unseal(self, sealed: bytes, about: bytes) -> bytes:
        """The content. Unreadable: it is not what `seal` made of anything `about` this."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(self._key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
        except (InvalidTag, ValueError) as error:
            raise Unreadable from error


def secret_of(settings: Settings) -> bytes:
    """The secret that this router seals with. StartFailed: one has to be made, and the data directory cannot hold it."""
    told = settings.seal_key or sent(settings.node_token)
    if told:
        return told.encode()
    try:
        return _made_once(settings.data_path / _FILE)
    except OSError as error:
        raise StartFailed(f"{settings.data_path / _FILE}: {(error.strerror or 'unusable').lower()}; or set N4N_SEAL_KEY") from error


def _made_once(path: Path) -> bytes:
    """Whoever comes first makes it; several at once agree on one. It is there whole or not at all, mode 0600."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(32).encode())
            file.flush()
            os.fsync(file.fileno())
        os.link(fresh, path)
    except FileExistsError:
        pass  # another worker was quicker
    finally:
        fresh.unlink()
    return path.read_bytes()

"""TLS between the planes: whose certificate a program shows, and by which authority it knows the others.

The files are PEM. They are read when a server starts and whenever a channel opens, so a router takes up a renewed certificate by itself.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see control_link
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from n4n.core.errors import StartFailed
from n4n.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths; empty: none. A certificate without its key, or the reverse, cannot be."""

    cert: str = ""
    key: str = ""
    ca: str = ""

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            missing, given = ("N4N_TLS_KEY", "N4N_TLS_CERT") if self.cert else ("N4N_TLS_CERT", "N4N_TLS_KEY")
            raise StartFailed(f"{given} is set and {missing} is not; set both, or neither")

    @property
    def is_on(self) -> bool:
        """Whether TLS is spoken at all."""
        return bool(self.cert or self.ca)


NO_TLS = TlsFiles()


def tls_of(settings: Settings) -> TlsFiles:
    """The files that the settings name; StartFailed where they do not go together."""
    return TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_ca)


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials | None:
    """What a server shows; with an authority, only clients with a certificate of its may connect. None: no TLS. StartFailed."""
    if not files.is_on:
        return None
    if not files.cert:
        raise StartFailed("N4N_TLS_CA is set and N4N_TLS_CERT is not; a control plane needs a certificate of its own, with N4N_TLS_KEY")
    _check(files)
    pair = (_read("N4N_TLS_KEY", files.key), _read("N4N_TLS_CERT", files.cert))
    ca = _read("N4N_TLS_CA", files.ca) if files.ca else None
    return grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials | None:
    """What a client checks and shows; without an authority of our own, those of the machine count. None: no TLS. StartFailed."""
    if not files.is_on:
        return None
    _check(files)
    return grpc.ssl_channel_credentials(
        root_certificates=_read("N4N_TLS_CA", files.ca) if files.ca else None,
        private_key=_read("N4N_TLS_KEY", files.key) if files.key else None,
        certificate_chain=_read("N4N_TLS_CERT", files.cert) if files.cert else None,
    )


def _check(files: TlsFiles) -> None:
    """gRPC says nothing of a file that it cannot use; OpenSSL does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, path in (("N4N_TLS_CERT", files.cert), ("N4N_TLS_KEY", files.key), ("N4N_TLS_CA", files.ca)):
        if path:
            _read(name, path)
    try:
        if files.cert:
            context.load_cert_chain(files.cert, files.key, password=_no_password)
    except ssl.SSLError as error:
        raise StartFailed(
            f"N4N_TLS_CERT and N4N_TLS_KEY must be a certificate and its own key, not encrypted, as PEM: {_why(error)}"
        ) from error
    try:
        if files.ca:
            context.load_verify_locations(files.ca)
    except ssl.SSLError as error:
        raise StartFailed(f"N4N_TLS_CA must hold certificates as PEM: {_why(error)}") from error


def _no_password() -> str:
    return ""  # instead of asking on the terminal


def _read(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise StartFailed(f"{name}: the file {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _why(error: ssl.SSLError) -> str:
    return error.reason or "it is none"

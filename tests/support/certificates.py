"""A small authority for tests: certificates for 127.0.0.1 that live for a day, made by the machine's OpenSSL."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from n4n.runtime.tls import TlsFiles

OPENSSL = shutil.which("openssl")
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="needs the openssl command to make certificates")


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates; its own is `ca`."""

    folder: Path
    ca: str
    ca_key: str

    def certified(self, name: str, host: str = "IP:127.0.0.1", *, checks: bool = True) -> TlsFiles:
        """A certificate of a host, and, where it `checks` the others, this authority."""
        cert, key = str(self.folder / f"{name}.pem"), str(self.folder / f"{name}.key")
        _request(name, cert, key, "-CA", self.ca, "-CAkey", self.ca_key, "-addext", f"subjectAltName={host}")
        return TlsFiles(cert, key, self.ca if checks else "")

    def expired(self, name: str, host: str = "IP:127.0.0.1") -> TlsFiles:
        """One that was good until yesterday."""
        cert, key, asked = (str(self.folder / f"{name}.{kind}") for kind in ("pem", "key", "csr"))
        _openssl("req", *_CURVE, "-subj", f"/CN={name}", "-keyout", key, "-out", asked, "-addext", f"subjectAltName={host}")
        _openssl(
            "x509", "-req", "-in", asked, "-CA", self.ca, "-CAkey", self.ca_key, "-days", "-1", "-copy_extensions", "copy", "-out", cert
        )
        return TlsFiles(cert, key)


def new_authority(folder: Path, name: str = "ca") -> Authority:
    """An authority that nobody knows yet."""
    folder.mkdir(exist_ok=True)
    cert, key = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    _request(name, cert, key)
    return Authority(folder, cert, key)


def _request(name: str, cert: str, key: str, *more: str) -> None:
    _openssl("req", "-x509", *_CURVE, "-days", "1", "-subj", f"/CN={name}", "-keyout", key, "-out", cert, *more)


def _openssl(*arguments: str) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *arguments], check=True, capture_output=True)

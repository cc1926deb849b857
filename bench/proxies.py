"""Peers that only pass on: nginx, a bare aiohttp proxy, and the least that Python needs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

from bench.machine import Cpu
from bench.peers import PLAIN, TLS, Absent, Peer, Target, free_port, own_environ, start
from bench.upstreams import Upstreams

BARE, RAW, NGINX = "aiohttp proxy", "raw protocols", "nginx"
_ENDLESS = 1_000_000_000


def start_aiohttp(folder: Path, cpu: Cpu, upstreams: Upstreams) -> Peer:
    """aiohttp on both sides, nothing between."""
    return _own_proxy(BARE, "bench.aiohttp_proxy", folder, cpu, upstreams)


def start_raw(folder: Path, cpu: Cpu, upstreams: Upstreams) -> Peer:
    """asyncio.Protocol on both sides: an upper bound."""
    return _own_proxy(RAW, "bench.raw_proxy", folder, cpu, upstreams)


def _own_proxy(name: str, module: str, folder: Path, cpu: Cpu, upstreams: Upstreams) -> Peer:
    ports, origins = _ports(upstreams)
    command = [sys.executable, "-m", module, *(word for way, port in ports.items() for word in (str(port), origins[way]))]
    environ = own_environ() | ({"SSL_CERT_FILE": str(upstreams.authority)} if upstreams.authority else {})
    return Peer(name, _ways(ports), start(command, folder / f"{module}.log", cpu, environ=environ), (cpu,), loud=True)


def start_nginx(folder: Path, cpu: Cpu, upstreams: Upstreams) -> Peer:
    """One worker that passes on as it comes, over kept connections. Absent where it is not installed."""
    binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if binary is None:
        raise Absent("it is not installed")
    ports, origins = _ports(upstreams)
    home = folder / "nginx"
    home.mkdir()
    (home / "nginx.conf").write_text(nginx_conf(ports, origins, upstreams.authority))
    program = start([binary, "-p", str(home), "-e", "stderr", "-c", "nginx.conf"], folder / "nginx.log", cpu)
    return Peer(NGINX, _ways(ports), program, (cpu,), loud=True)


def nginx_conf(ports: dict[str, int], origins: dict[str, str], authority: Path | None) -> str:
    """One server per way to an upstream."""
    servers = "".join(_nginx_server(number, ports[way], origins[way], authority) for number, way in enumerate(ports))
    temporary = "".join(f"  {name}_temp_path {name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return (
        f"{'user root;' if os.geteuid() == 0 else ''}\ndaemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log stderr error;\n"
        "events { worker_connections 16384; }\n"
        f"http {{\n  access_log off;\n  keepalive_requests {_ENDLESS};\n  client_body_buffer_size 64k;\n{temporary}{servers}}}\n"
    )


def _nginx_server(number: int, port: int, origin: str, authority: Path | None) -> str:
    parts = urlsplit(origin)
    verified = ""
    if parts.scheme == "https":
        verified = f"proxy_ssl_verify on; proxy_ssl_trusted_certificate {authority}; proxy_ssl_name localhost; proxy_ssl_server_name on;"
    return (
        f"  upstream u{number} {{ server {parts.netloc}; keepalive 1024; keepalive_requests {_ENDLESS}; }}\n"
        f"  server {{ listen 127.0.0.1:{port} backlog=1024; location / {{\n"
        f"    proxy_pass {parts.scheme}://u{number}; proxy_http_version 1.1; proxy_buffering off;\n"
        f'    proxy_set_header Connection ""; proxy_set_header Authorization "Bearer upstream"; {verified}\n  }} }}\n'
    )


def _ports(upstreams: Upstreams) -> tuple[dict[str, int], dict[str, str]]:
    """For each way that there is, a port to listen on, and the origin behind it."""
    found = {way: target for way in (PLAIN, TLS) if (target := upstreams.target(way)) is not None}
    return {way: free_port() for way in found}, {way: target.base_url.removesuffix("/v1") for way, target in found.items()}


def _ways(ports: dict[str, int]) -> dict[str, Target]:
    return {way: Target(f"http://127.0.0.1:{port}/v1") for way, port in ports.items()}

"""Other gateways, where they are installed: on PATH, or where an environment variable says."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from bench import payloads
from bench.machine import Cpu
from bench.peers import PLAIN, Absent, Peer, Target, free_port, own_environ, start
from bench.upstreams import Upstreams

SGLANG = "sglang-router"


def start_sglang(folder: Path, cpu: Cpu, upstreams: Upstreams) -> Peer:
    """sglang-router; Absent where it is not installed."""
    return _router(SGLANG, "N4N_BENCH_SGLANG", ["launch"], folder, cpu, upstreams)


def start_vllm(folder: Path, cpu: Cpu, upstreams: Upstreams) -> Peer:
    """vllm-router; Absent where it is not installed."""
    return _router("vllm-router", "N4N_BENCH_VLLM", [], folder, cpu, upstreams)


def _router(name: str, variable: str, first: list[str], folder: Path, cpu: Cpu, upstreams: Upstreams) -> Peer:
    command = [_installed(name, variable), *first, "--host", "127.0.0.1", "--port", "{port}", "--worker-urls", _origin(upstreams)]
    command += ["--policy", "round_robin", "--prometheus-port", str(free_port()), "--log-level", "error"]
    return _started(name, command, folder, cpu)


def start_envoy(folder: Path, cpu: Cpu, upstreams: Upstreams) -> Peer:
    """Envoy with one thread that passes on; Absent where it is not installed."""
    port, config = free_port(), folder / "envoy.json"
    config.write_text(json.dumps(envoy_config(port, urlsplit(_origin(upstreams)).port or 0)))
    command = [_installed("envoy", "N4N_BENCH_ENVOY"), "-c", str(config), "--concurrency", "1", "-l", "error", "--disable-hot-restart"]
    return _started("envoy", command, folder, cpu, port=port)


def start_litellm(folder: Path, cpu: Cpu, upstreams: Upstreams) -> Peer:
    """LiteLLM's proxy with one worker; Absent where it is not installed."""
    config, key = folder / "litellm.yaml", f"sk-{secrets.token_hex(24)}"
    behind = {"model": f"openai/{payloads.MODEL}", "api_base": f"{_origin(upstreams)}/v1", "api_key": "upstream"}
    settings = {"request_timeout": 600, "set_verbose": False, "json_logs": True, "num_retries": 0, "telemetry": False}
    models = [{"model_name": payloads.MODEL, "litellm_params": behind}]
    config.write_text(json.dumps({"model_list": models, "litellm_settings": settings}))  # JSON is YAML
    command = [_installed("litellm", "N4N_BENCH_LITELLM"), "--config", str(config), "--host", "127.0.0.1", "--port", "{port}"]
    said = {"LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": key}
    return _started("litellm", [*command, "--num_workers", "1"], folder, cpu, key=key, said=said)


def _started(
    name: str, command: list[str], folder: Path, cpu: Cpu, *, port: int = 0, key: str = "none", said: dict[str, str] | None = None
) -> Peer:
    port = port or free_port()
    words = [word.replace("{port}", str(port)) for word in command]
    program = start(words, folder / f"{name}.log", cpu, environ=own_environ() | (said or {}), cwd=folder)
    return Peer(name, {PLAIN: Target(f"http://127.0.0.1:{port}/v1", key)}, program, (cpu,), slow=name == "litellm")


def _installed(name: str, variable: str) -> str:
    found = shutil.which(os.environ.get(variable) or name)
    if found is None:
        raise Absent(f"it is neither on PATH nor named by {variable}")
    return found


def _origin(upstreams: Upstreams) -> str:
    target = upstreams.target(PLAIN)
    return target.base_url.removesuffix("/v1") if target else ""


def envoy_config(port: int, upstream_port: int) -> dict[str, object]:
    """A listener, a route, a cluster."""
    filters = "envoy.filters.network.http_connection_manager", "envoy.filters.http.router"
    kinds = "type.googleapis.com/envoy.extensions."
    route = {"match": {"prefix": "/"}, "route": {"cluster": "upstream", "timeout": "0s"}}
    http = {
        "@type": f"{kinds}filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "generate_request_id": False,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": filters[1], "typed_config": {"@type": f"{kinds}filters.http.router.v3.Router"}}],
    }
    many = {"max_connections": 16_384, "max_pending_requests": 16_384, "max_requests": 16_384}
    endpoint = {"endpoint": {"address": _address(upstream_port)}}
    cluster = {
        "name": "upstream",
        "type": "STATIC",
        "circuit_breakers": {"thresholds": [many]},
        "load_assignment": {"cluster_name": "upstream", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listener = {"address": _address(port), "filter_chains": [{"filters": [{"name": filters[0], "typed_config": http}]}]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


STARTERS: dict[str, Callable[[Path, Cpu, Upstreams], Peer]] = {
    "sglang": start_sglang,
    "vllm": start_vllm,
    "envoy": start_envoy,
    "litellm": start_litellm,
}

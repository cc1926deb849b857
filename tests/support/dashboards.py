"""The dashboards of deploy/grafana as tables of panels; run as a program, it writes their JSON. A test runs every query of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import n4n

FOLDER = Path(n4n.__file__).parent.parent / "deploy" / "grafana" / "dashboards"
PROMETHEUS, SQL = {"type": "prometheus", "uid": "n4n-prometheus"}, {"type": "grafana-postgresql-datasource", "uid": "n4n-postgres"}
_HEIGHT, _ACROSS = 8, 24


@dataclass(frozen=True)
class Panel:
    """One panel. `queries`: PromQL with a legend, or SQL; `kind`: timeseries, stat, table or barchart."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    sql: bool = False
    width: int = 12


@dataclass(frozen=True)
class Choice:
    """What a page can be narrowed to: `$NAME` in its queries, several values or all. `query`: label_values(metric, label), or SQL."""

    name: str
    query: str
    sql: bool = False


@dataclass(frozen=True)
class Dashboard:
    """One page."""

    name: str
    title: str
    panels: Sequence[Panel]
    choices: Sequence[Choice] = ()


def _p(share: float, metric: str, by: str, only: str = "") -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{only}[5m])))"


_MODEL = '{model=~"$model"}'


_WITH_EXEMPLARS = ("llm_request_latency_seconds", "llm_ttft_seconds", "n4n_overhead_seconds", "gen_ai_server_request_duration_seconds")
_BY_MODEL = "provider, model"
DASHBOARDS: tuple[Dashboard, ...] = (
    Dashboard(
        "fleet",
        "n4n: fleet and health",
        (
            Panel("Nodes connected", [("sum(n4n_nodes_connected)", "nodes")], kind="stat", width=4),
            Panel("Catalog version", [("max by (instance) (n4n_catalog_version)", "{{instance}}")], kind="stat", width=8),
            Panel("Age of the catalog", [("max by (instance) (n4n_catalog_age_seconds)", "{{instance}}")], "s", "stat", width=6),
            Panel("Streams open", [("sum(n4n_active_streams)", "streams")], kind="stat", width=6),
            Panel("Score of every endpoint", [("min by (provider, model, endpoint) (llm_endpoint_health)", "{{endpoint}}")], "percentunit"),
            Panel("Breakers (1 open, 0.5 half open)", [("max by (endpoint) (n4n_endpoint_breaker)", "{{endpoint}}")]),
            Panel("First token, lately", [("max by (endpoint, quantile) (n4n_endpoint_ttft_seconds)", "{{endpoint}} {{quantile}}")], "s"),
            Panel(
                "Tokens per second, lately", [("min by (endpoint, quantile) (n4n_endpoint_tokens_per_second)", "{{endpoint}} {{quantile}}")]
            ),
            Panel("Candidates left, by model", [("min by (model) (n4n_model_candidates)", "{{model}}")]),
            Panel("Probes by outcome", [("sum by (outcome) (rate(n4n_probes_total[5m]))", "{{outcome}}")], "ops"),
            Panel("Probes: up", [("min by (endpoint, model) (n4n_probe_up)", "{{endpoint}}")]),
            Panel("Probers found", [("sum(n4n_probe_finding) by (kind, about) or vector(0)", "{{about}}: {{kind}}")], kind="table"),
            Panel("Spent on probes", [("sum by (provider) (increase(n4n_probe_cost_usd_total[1h]))", "{{provider}}")], "currencyUSD"),
        ),
    ),
    Dashboard(
        "requests",
        "n4n: requests and fallbacks",
        (
            Panel("Requests by outcome", [(f"sum by (status) (rate(llm_requests_total{_MODEL}[5m]))", "{{status}}")], "reqps"),
            Panel(
                "Requests by model",
                [(f"sum by (provider, model) (rate(llm_requests_total{_MODEL}[5m]))", "{{model}} at {{provider}}")],
                "reqps",
            ),
            Panel(
                "Latency",
                [
                    (_p(share, "llm_request_latency_seconds", "model", _MODEL), f"{{{{model}}}} p{share * 100:.0f}")
                    for share in (0.5, 0.95, 0.99)
                ],
                "s",
            ),
            Panel("Time to first token, p95", [(_p(0.95, "llm_ttft_seconds", _BY_MODEL, _MODEL), "{{model}} at {{provider}}")], "s"),
            Panel(
                "What n4n adds",
                [
                    (f"histogram_quantile({share}, sum by (le) (rate(n4n_overhead_seconds_bucket[5m])))", f"p{share * 100:.0f}")
                    for share in (0.5, 0.95, 0.99)
                ],
                "s",
            ),
            Panel(
                "Where n4n's own time goes, mean",
                [
                    (
                        "sum by (part) (rate(n4n_overhead_part_seconds_sum[5m])) / sum by (part) (rate(n4n_overhead_part_seconds_count[5m]))",
                        "{{part}}",
                    )
                ],
                "s",
            ),
            Panel(
                "Time per output token, p95",
                [(_p(0.95, "gen_ai_server_time_per_output_token_seconds", "gen_ai_request_model"), "{{gen_ai_request_model}}")],
                "s",
            ),
            Panel(
                "Calls of providers, p95",
                [(_p(0.95, "gen_ai_client_operation_duration_seconds", "gen_ai_provider_name"), "{{gen_ai_provider_name}}")],
                "s",
            ),
            Panel(
                "Attempts by outcome", [("sum by (provider, outcome) (rate(n4n_attempts_total[5m]))", "{{provider}} {{outcome}}")], "ops"
            ),
            Panel(
                "Requests that fell back",
                [('1 - sum(rate(llm_fallback_depth_bucket{le="0.0"}[5m])) / sum(rate(llm_fallback_depth_count[5m]))', "share")],
                "percentunit",
            ),
            Panel(
                "Changes of endpoint per request",
                [("sum(rate(llm_fallback_depth_sum[5m])) / sum(rate(llm_fallback_depth_count[5m]))", "mean")],
            ),
            Panel("Tokens per second", [(f"sum by (direction) (rate(llm_tokens_total{_MODEL}[5m]))", "{{direction}}")]),
            Panel("Log lines lost", [("sum(n4n_log_lines_dropped_total)", "lines")], kind="stat", width=4),
        ),
        (Choice("model", "label_values(llm_requests_total, model)"),),
    ),
    Dashboard(
        "quotas",
        "n4n: quotas and queues",
        (
            Panel(
                "Used of accounts' limits",
                [("max by (provider, account, limit_type) (llm_quota_utilization_ratio)", "{{account}} {{limit_type}}")],
                "percentunit",
            ),
            Panel("Requests that wait", [("sum by (priority) (llm_queue_depth)", "{{priority}}")]),
            Panel("Waiting time of those that waited, p95", [(_p(0.95, "llm_queue_seconds", "priority"), "{{priority}}")], "s"),
            Panel("Priority inversions", [("sum(n4n_priority_inversions_total)", "inversions")], kind="stat", width=6),
            Panel("Redis can be used", [("min by (instance) (n4n_store_up)", "{{instance}}")], kind="stat", width=6),
            Panel("Reservations decided without Redis", [("sum(rate(n4n_limits_without_store_total[5m]))", "per second")], "ops"),
            Panel("Refused by limits", [('sum(rate(llm_requests_total{status="rate_limited"}[5m])) or vector(0)', "per second")], "reqps"),
            Panel(
                "Requests with an idempotency key", [("sum by (outcome) (rate(n4n_idempotent_requests_total[5m]))", "{{outcome}}")], "reqps"
            ),
            Panel(
                "Budgets at 50, 80 or 100 %",
                [("sum(n4n_budget_level_reached) by (tenant, budget, level) or vector(0)", "{{tenant}} {{budget}} {{level}}")],
                kind="table",
            ),
        ),
    ),
    Dashboard(
        "spend",
        "n4n: spend",
        (
            Panel(
                "USD per hour, now",
                [("sum by (provider, model) (rate(llm_cost_usd_total[5m])) * 3600", "{{model}} at {{provider}}")],
                "currencyUSD",
            ),
            Panel(
                "Answers without a price",
                [("sum by (provider, model) (increase(n4n_unpriced_attempts_total[1h]))", "{{model}} at {{provider}}")],
            ),
            Panel(
                "By tenant and day",
                [
                    (
                        "SELECT day::timestamptz AS time, tenant AS metric, sum(cost_usd)::float8 AS usd FROM usage_by_day WHERE $__timeFilter(day) GROUP BY 1, 2 ORDER BY 1",
                        "",
                    )
                ],
                "currencyUSD",
                sql=True,
            ),
            Panel(
                "By model",
                [
                    (
                        "SELECT model, sum(cost_usd)::float8 AS usd, sum(attempts) AS attempts, sum(unpriced) AS unpriced FROM usage_by_day WHERE $__timeFilter(day) GROUP BY 1 ORDER BY 2 DESC",
                        "",
                    )
                ],
                "currencyUSD",
                "table",
                sql=True,
            ),
            Panel(
                "By provider",
                [
                    (
                        "SELECT provider, sum(cost_usd)::float8 AS usd, sum(prompt_tokens) AS tokens_in, sum(completion_tokens) AS tokens_out FROM usage_by_day WHERE $__timeFilter(day) GROUP BY 1 ORDER BY 2 DESC",
                        "",
                    )
                ],
                "currencyUSD",
                "table",
                sql=True,
            ),
            Panel(
                "By key",
                [
                    (
                        "SELECT tenant, key_id, sum(cost_usd)::float8 AS usd, sum(requests) AS requests FROM usage_by_day WHERE $__timeFilter(day) GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 50",
                        "",
                    )
                ],
                "currencyUSD",
                "table",
                sql=True,
            ),
            Panel(
                "Reported by providers ÷ counted by n4n",
                [
                    (
                        'sum by (endpoint) (n4n_compared_tokens_total{by="reported"}) / sum by (endpoint) (n4n_compared_tokens_total{by="counted"})',
                        "{{endpoint}}",
                    )
                ],
            ),
        ),
    ),
    Dashboard(
        "sla",
        "n4n: service levels",
        tuple(
            Panel(
                title,
                [
                    (
                        f"SELECT hour AS time, model || ' at ' || provider || ' ' || region AS metric, {column} AS value FROM sla_by_hour WHERE $__timeFilter(hour) AND model IN ($model) ORDER BY 1",
                        "",
                    )
                ],
                unit,
                sql=True,
            )
            for title, column, unit in (
                ("Latency, p95", "latency_p95_ms", "ms"),
                ("Latency, p50", "latency_p50_ms", "ms"),
                ("Time to first token, p95", "ttft_p95_ms", "ms"),
                ("Tokens per second", "tokens_per_s", "short"),
                ("Errors", "failed::float8 / nullif(attempts, 0)", "percentunit"),
                ("Attempts", "attempts", "short"),
            )
        ),
        (Choice("model", "SELECT DISTINCT model FROM sla_by_hour ORDER BY 1", sql=True),),
    ),
    Dashboard(
        "control-plane",
        "n4n: control plane",
        (
            Panel("Database", [("min by (instance) (n4n_database_up)", "{{instance}}")], kind="stat", width=4),
            Panel("Versions refused", [("sum(n4n_catalog_nack_total)", "NACKs")], kind="stat", width=4),
            Panel("Behind the catalog", [("max by (node) (n4n_node_lag_seconds)", "{{node}}")], "s"),
            Panel("Usage that waits", [("sum by (instance) (n4n_usage_waiting_bytes)", "{{instance}}")], "bytes"),
            Panel("Usage lost", [("sum(n4n_usage_lines_dropped_total)", "lines")], kind="stat", width=4),
            Panel(
                "Attempts per minute in the ledger",
                [
                    (
                        "SELECT minute AS time, sum(attempts) AS attempts FROM traffic_by_minute WHERE $__timeFilter(minute) GROUP BY 1 ORDER BY 1",
                        "",
                    )
                ],
                sql=True,
            ),
            Panel(
                "Alerts told",
                [
                    (
                        "SELECT at AS time, told->>'alert' AS alert, told->>'status' AS status, told->>'summary' AS summary FROM alert_notices WHERE $__timeFilter(at) ORDER BY 1 DESC LIMIT 100",
                        "",
                    )
                ],
                kind="table",
                sql=True,
            ),
            Panel(
                "Who changed what",
                [("SELECT at AS time, author, action, kind, name FROM audit WHERE $__timeFilter(at) ORDER BY 1 DESC LIMIT 100", "")],
                kind="table",
                sql=True,
            ),
        ),
    ),
)


def document(board: Dashboard) -> dict[str, object]:
    """A dashboard as Grafana reads it."""
    panels, x, y = [], 0, 0
    for number, panel in enumerate(board.panels, 1):
        if x + panel.width > _ACROSS:
            x, y = 0, y + _HEIGHT
        panels.append(_panel(panel, number, x, y))
        x += panel.width
    return {
        "uid": f"n4n-page-{board.name}",
        "title": board.title,
        "tags": ["n4n"],
        "timezone": "utc",
        "editable": True,
        "schemaVersion": 41,
        "refresh": "30s",
        "time": {"from": "now-30d" if board.name in ("spend", "sla") else "now-3h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["n4n"], "title": "n4n", "asDropdown": True, "keepTime": True}],
        "templating": {"list": [_choice(choice) for choice in board.choices]},
        "panels": panels,
    }


def _choice(choice: Choice) -> dict[str, object]:
    told: dict[str, object] = {
        "name": choice.name,
        "label": choice.name.capitalize(),
        "type": "query",
        "datasource": SQL if choice.sql else PROMETHEUS,
        "definition": choice.query,
        "query": choice.query if choice.sql else {"qryType": 1, "query": choice.query, "refId": f"{choice.name}-values"},
        "refresh": 2,  # when the span changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
    }
    return told if choice.sql else {**told, "allValue": ".*"}


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, object]:
    source = SQL if panel.sql else PROMETHEUS
    return {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": source,
        "gridPos": {"h": _HEIGHT, "w": panel.width, "x": x, "y": y},
        "fieldConfig": _units(panel),
        "targets": [_target(panel, query, legend, chr(65 + index)) for index, (query, legend) in enumerate(panel.queries)],
    }


def _units(panel: Panel) -> dict[str, object]:
    """The unit of a graph; of a table, that of its columns `usd` alone."""
    if panel.sql and panel.kind == "table" and panel.unit != "short":
        overrides = [{"matcher": {"id": "byName", "options": "usd"}, "properties": [{"id": "unit", "value": panel.unit}]}]
        return {"defaults": {"unit": "short"}, "overrides": overrides}
    return {"defaults": {"unit": panel.unit}, "overrides": []}


def _target(panel: Panel, query: str, legend: str, ref: str) -> dict[str, object]:
    if panel.sql:
        shape = "table" if panel.kind == "table" else "time_series"
        return {"refId": ref, "datasource": SQL, "rawQuery": True, "editorMode": "code", "format": shape, "rawSql": query}
    instant = panel.kind in ("table", "stat")
    return {
        "refId": ref,
        "datasource": PROMETHEUS,
        "expr": query,
        "legendFormat": legend,
        "instant": instant,
        "range": not instant,
        "exemplar": not instant and query.startswith("histogram_quantile") and any(name in query for name in _WITH_EXEMPLARS),
        "format": "table" if panel.kind == "table" else "time_series",
    }


def files() -> dict[Path, str]:
    """Every file and what is in it."""
    return {FOLDER / f"{board.name}.json": json.dumps(document(board), indent=1, ensure_ascii=False) + "\n" for board in DASHBOARDS}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)

"""`n4n bench`: a few real requests to each endpoint: first tokens, tokens per second and errors, with 95 % intervals."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from n4n.cli import values
from n4n.cli.bench_call import Call, measure
from n4n.cli.calls import ask
from n4n.cli.health import health_row
from n4n.cli.instance import locate, offer_instance
from n4n.cli.output import Refused, note, offer_json, print_rows
from n4n.cli.parser import Commands, example
from n4n.core.confidence import mean_of, share_of

if TYPE_CHECKING:
    from n4n.runtime.control_health import EndpointRow

AT_ONCE = 4  # endpoints; of one endpoint one request at a time
COLUMNS = {
    "endpoint": "ENDPOINT", "model": "MODEL", "ttft_ms": "TTFT MS", "tokens_per_s": "TOKENS/S", "error_rate": "ERRORS", "requests": "N",
    "score": "SCORE", "breaker": "BREAKER", "input_per_1m": "USD/1M IN", "output_per_1m": "USD/1M OUT", "error": "MOST OFTEN",
}  # fmt: skip


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add(
        "bench",
        about="measure TTFT, tokens/s and errors of the catalog's real endpoints",
        more="It sends real requests, which providers bill to the accounts of the catalog and n4n to the key's tenant.",
        epilog=example("n4n bench --model gpt-4o", "n4n bench --n 5 -o json"),
    )
    parser.add_argument("--model", type=values.words, help="only its endpoints (a model's id)")
    parser.add_argument("--n", type=values.number, default=20, metavar="N", help="requests to each endpoint (default %(default)s)")
    parser.add_argument("--max-tokens", type=values.number, default=128, metavar="N", help="of each answer (default %(default)s)")
    parser.add_argument("--key", type=values.api_key, metavar="KEY", help="ask as this API key (default: the first one, from runtime.json)")
    parser.add_argument(
        "--base-url", type=values.base_url, metavar="URL", help="the router to ask, http://router:8080/v1 (default: from runtime.json)"
    )
    offer_json(parser)
    offer_instance(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """`n4n bench`"""
    base_url, key = _router(args)
    report = ask(args, "asking for endpoints", lambda client: client.health(args.model or "", 3_600_000))
    endpoints = [one for one in report.endpoints if one.state == "active"]
    if not endpoints:
        raise Refused(f"no active endpoint serves {args.model or 'any model'}: n4n catalog show lists them")
    note(f"{args.n} requests to each of {len(endpoints)} endpoints")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        measured = list(pool.map(lambda one: measured_row(one, _asked(base_url, key, one, args)), endpoints))
    print_rows(measured if args.output == "json" else [{**row, **_shown(row)} for row in measured], COLUMNS, args.output, empty="")
    if all(row["error_rate"] == 1 for row in measured):
        raise Refused(f"no request was answered, most often for {measured[0]['error']}: see --key, --base-url, and n4n health")
    return 0


def _router(args: Namespace) -> tuple[str, str]:
    """Where to ask, and as whom."""
    if args.base_url and args.key:
        return args.base_url, args.key
    found = locate(args.data_dir)
    base_url, key = args.base_url or found.base_url, args.key or found.api_key
    if not base_url or not key:
        raise Refused("no runtime.json tells where the data plane is: give --base-url http://ROUTER:8080/v1 and --key sk-n4n-…")
    return base_url, key


def _asked(base_url: str, key: str, endpoint: EndpointRow, args: Namespace) -> list[Call]:
    calls = [measure(base_url, key, endpoint.model, endpoint.endpoint, args.max_tokens) for _ in range(args.n)]
    note(f"{endpoint.endpoint}: {sum(call.error is None for call in calls)} of {len(calls)} answered")
    return calls


def measured_row(endpoint: EndpointRow, calls: Sequence[Call]) -> dict[str, object]:
    """The columns of `n4n health`, measured now; `…_ci`: the half width of a 95 % interval, of errors its bounds."""
    ttft = mean_of([call.ttft_s * 1000 for call in calls if call.ttft_s is not None])
    speed = mean_of([call.tokens_per_s for call in calls if call.tokens_per_s is not None])
    errors = Counter(call.error for call in calls if call.error is not None)
    share = share_of(errors.total(), len(calls))
    known = health_row(endpoint)
    return {
        **{name: known[name] for name in ("endpoint", "model", "provider", "region", "score", "breaker", "cooldown_until")},
        "requests": len(calls),
        "ttft_ms": None if ttft is None else round(ttft[0], 1),
        "ttft_ms_ci": None if ttft is None or ttft[1] is None else round(ttft[1], 1),
        "tokens_per_s": None if speed is None else round(speed[0], 1),
        "tokens_per_s_ci": None if speed is None or speed[1] is None else round(speed[1], 1),
        "error_rate": None if share is None else round(share[0], 4),
        "error_rate_ci": None if share is None else [round(share[1], 4), round(share[2], 4)],
        "input_per_1m": known["input_per_1m"],
        "output_per_1m": known["output_per_1m"],
        "error": errors.most_common(1)[0][0] if errors else None,
    }


def _shown(row: dict[str, object]) -> dict[str, object]:
    told: dict[str, object] = {}
    for name in ("ttft_ms", "tokens_per_s"):
        if row[f"{name}_ci"] is not None:
            told[name] = f"{row[name]} ± {row[f'{name}_ci']}"
    bounds = row["error_rate_ci"]
    if isinstance(bounds, list):
        told["error_rate"] = f"{row['error_rate']:.0%} ({bounds[0]:.0%} to {bounds[1]:.0%})"
    return told

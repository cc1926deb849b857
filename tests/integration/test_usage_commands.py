"""`n4n usage` and its commands against a real control plane: what finance types, and what comes of it."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc

from n4n.v1 import usage_pb2
from tests.core.test_ledger import settled
from tests.support.fleet import NODE_TOKEN, Fleet, eventually, running_fleet
from tests.support.router import catalog

YESTERDAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)


def report(fleet: Fleet) -> None:
    """30 attempts of yesterday, each 12 in (2 cached) and 3 out for 0.00006 USD, through an endpoint of the catalog."""
    first = round(YESTERDAY.timestamp()) * 1_000_000
    lines = b"".join(settled(n, started_us=first + n, endpoint="e1", provider="pe1") for n in range(1, 31))
    with grpc.insecure_channel(fleet.admin_url) as channel:
        call = channel.unary_unary("/n4n.v1.Usage/Report", usage_pb2.UsageReport.SerializeToString, usage_pb2.UsageReceipt.FromString)
        call(usage_pb2.UsageReport(offset=1, lines=lines), metadata=(("authorization", f"Bearer {NODE_TOKEN}"),), timeout=20)


def test_finance_exports_rates_anew_and_reconciles(tmp_path: Path, postgres_url: str) -> None:
    day = YESTERDAY.date().isoformat()
    with running_fleet(tmp_path, postgres_url) as fleet:
        fleet.control_plane()
        eventually(lambda: fleet.n4n("catalog", "history", check=False).returncode == 0, "the control plane")
        fleet.apply(catalog("http://127.0.0.1:9/v1"))
        report(fleet)

        told = fleet.told("usage", "--by", "day,model", "--only", "provider=pe1", "--since", "3d")
        assert [(row["day"], row["model"], row["attempts"], row["cost_usd"]) for row in told] == [(day, "m", 30, 0.0018)]  # type: ignore[union-attr]

        export = fleet.n4n("usage", "export", "--since", "3d")
        lines = list(csv.DictReader(io.StringIO(export.stdout)))
        assert len(lines) == 30 and lines[0]["cost_usd"] == "0.00006" and export.stderr == "30 lines\n"

        prices = tmp_path / "corrected.yaml"
        prices.write_text("endpoints: {e1: {price: {input_per_1m: 1, output_per_1m: 2}}, other: {model: m}}")
        rating = fleet.told("usage", "rerate", "--since", "3d", "--prices", str(prices), "--label", "corrected")
        assert (rating["attempts"], rating["kept"], rating["before_usd"], rating["cost_usd"]) == (30, 0, 0.0018, 0.00054)  # type: ignore[index,call-overload]
        at_one = fleet.told("usage", "rerate", "--since", "3d", "--catalog-version", "1", "--label", "at-1")
        assert (at_one["cost_usd"], at_one["prices"]) == (0.0018, "catalog version 1")  # type: ignore[index,call-overload]
        (row,) = fleet.told("usage", "--since", "3d", "--label", "corrected")  # type: ignore[misc]
        assert row["cost_usd"] == 0.00054
        assert [row["label"] for row in fleet.told("usage", "ratings")] == ["at-1", "corrected"]  # type: ignore[union-attr]
        taken = fleet.n4n("usage", "rerate", "--since", "3d", "--catalog-version", "1", "--label", "at-1", check=False)
        assert taken.returncode == 1 and "a rating called at-1 already" in taken.stderr
        assert fleet.n4n("usage", "--label", "nobody", check=False).stderr.startswith("n4n: label: there is no rating called nobody")

        theirs = tmp_path / "usage.csv"
        start = round(YESTERDAY.replace(hour=0).timestamp())
        head = "start_time,end_time,num_model_requests,model,input_tokens,output_tokens,input_cached_tokens\n"
        theirs.write_text(f"{head}{start},{start + 86400},30.0,scripted-model-2026-01-31,360.0,90.0,60.0\n")
        agree = fleet.n4n("usage", "reconcile", "--provider", "pe1", str(theirs))
        assert agree.stdout == "n4n and pe1 agree within 1 %\n" and "3 of 3 sums" in agree.stderr

        theirs.write_text(f"{head}{start},{start + 86400},30.0,scripted-model,360.0,100.0,60.0\n")
        differ = fleet.n4n("usage", "reconcile", "--provider", "pe1", str(theirs), check=False)
        assert differ.returncode == 1
        assert [line.split() for line in differ.stdout.splitlines()[1:]] == [
            [day, "scripted-model", "output_tokens", "90", "100", "-10", "10"]
        ]
        as_json = json.loads(fleet.n4n("usage", "reconcile", "--provider", "pe1", str(theirs), "--tolerance", "10%", "-o", "json").stdout)
        assert [(row["measure"], row["ours"], row["theirs"]) for row in as_json] == [
            ("input_tokens", 360, 360), ("cached_tokens", 60, 60), ("output_tokens", 90, 100),
        ]  # fmt: skip
        misspelt = fleet.n4n("usage", "reconcile", "--provider", "pe9", str(theirs), check=False)
        assert misspelt.returncode == 1 and "the ledger has nothing of 'pe9'" in misspelt.stderr
        theirs.write_text("day,model,input_tokens\n2026-11-29\n")
        silent = fleet.n4n("usage", "reconcile", "--provider", "pe1", str(theirs), check=False)
        assert silent.returncode == 1 and "of nothing used there" in silent.stderr
        theirs.write_text("what,is,this\n")
        refused = fleet.n4n("usage", "reconcile", "--provider", "pe1", str(theirs), check=False)
        assert refused.returncode == 1 and "its first line names no column for the day" in refused.stderr

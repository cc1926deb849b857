"""Prometheus' form of the alerts: series of every fault replayed against the rules, by ourselves, and by promtool where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from n4n.core.alerts.rules import BY_NAME, CALM_S, RULES, Rule
from tests.support.alert_rules import FILE
from tests.support.alert_series import FAULTS, calm_hours, replay
from tests.support.promql import History, Labels, parsed

PROMTOOL = os.environ.get("N4N_TEST_PROMTOOL") or shutil.which("promtool")
FIRING = 'group by (alertname) (ALERTS{alertstate="firing"})'
BEYOND, BELOW = 1.06, 0.94
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool here; name one with N4N_TEST_PROMTOOL")


def test_every_rule_has_a_fault() -> None:
    assert list(FAULTS) == [rule.name for rule in RULES]


def fires(rule: Rule, series: Mapping[str, Sequence[float]], step_min: int) -> list[int]:
    """The minutes at which a rule fires, by `for` and `keep_firing_for`; its labels are those it is told by."""
    expression, history, step_s = parsed(rule.promql), History(series, step_min * 60), step_min * 60
    since: dict[Labels, int] = {}
    calm: dict[Labels, int] = {}
    minutes = []
    for step in range(len(next(iter(series.values())))):
        wrong = expression(history, step)
        assert isinstance(wrong, dict)
        for labels in wrong:
            assert {name for name, _ in labels} == set(rule.by)
            since.setdefault(labels, step)
            calm.pop(labels, None)
        for labels in since.keys() - wrong.keys():
            fired = (calm.get(labels, step) - since[labels]) * step_s > rule.for_s
            if not fired or (step - calm.setdefault(labels, step - 1)) * step_s > CALM_S:
                del since[labels]
                calm.pop(labels, None)
        if any((calm.get(labels, step) - begun) * step_s >= rule.for_s for labels, begun in since.items()):
            minutes.append(step * step_min)
    return minutes


@pytest.mark.parametrize("name", FAULTS)
def test_a_rule_fires_on_its_fault_in_time_and_not_on_less(name: str) -> None:
    fault, rule = FAULTS[name], BY_NAME[name]
    series, begins, ends = replay(name, BEYOND)
    minutes = fires(rule, series, fault.step_min)
    assert begins + rule.for_s // 60 <= minutes[0] <= ends
    assert minutes == list(range(minutes[0], minutes[-1] + 1, fault.step_min)), "once"
    assert minutes[-1] < (len(next(iter(series.values()))) - 1) * fault.step_min, "it ends"
    if fault.by_degrees:
        assert fires(rule, replay(name, BELOW)[0], fault.step_min) == []


def test_no_rule_fires_in_hours_of_ordinary_traffic() -> None:
    series = calm_hours(5, 180)
    assert [rule.name for rule in RULES if fires(rule, series, 1)] == []


@needs_promtool
def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    subprocess.run([str(PROMTOOL), "check", "rules", str(FILE)], check=True, capture_output=True, timeout=60)


def firing(names: set[str], at_min: int) -> dict[str, object]:
    """That these fire then, and nothing else."""
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)]
    return {"expr": FIRING, "eval_time": f"{at_min}m", "exp_samples": samples}


def written(series: dict[str, list[float]], step_min: int, queries: list[dict[str, object]]) -> dict[str, object]:
    """A test of promtool's."""
    told = [
        {"series": one, "values": " ".join(f"{value:.6g}" if value < 1e6 else f"{value:.0f}" for value in values)}
        for one, values in series.items()
    ]
    return {"interval": f"{step_min}m", "input_series": told, "promql_expr_test": queries}


def ran(folder: Path, step_min: int, tests: list[dict[str, object]]) -> None:
    """Runs promtool over them."""
    told = {"rule_files": [str(FILE)], "evaluation_interval": f"{step_min}m", "tests": tests}
    path = folder / f"every-{step_min}.yml"
    path.write_text(yaml.dump(told, Dumper=yaml.CDumper, sort_keys=False, width=1 << 30))
    done = subprocess.run([str(PROMTOOL), "test", "rules", str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]


def case(name: str) -> dict[str, object]:
    """Beyond its threshold it fires, not before its time, with nothing but its consequences, and ends."""
    fault, rule = FAULTS[name], BY_NAME[name]
    series, begins, ends = replay(name, BEYOND)
    last = (len(next(iter(series.values()))) - 1) * fault.step_min
    queries = [firing(set(), begins - fault.step_min), firing({name} | fault.also, ends), firing(set(), last)]
    if rule.for_s >= 60 * fault.step_min:
        queries.append({"expr": f'ALERTS{{alertstate="firing",alertname="{name}"}}', "eval_time": f"{begins + rule.for_s // 60 - 1}m"})
    return written(series, fault.step_min, queries)


@needs_promtool
@pytest.mark.parametrize("step_min", sorted({fault.step_min for fault in FAULTS.values()}))
def test_prometheus_itself_fires_each_rule_on_its_fault_and_no_other_and_ends(step_min: int, tmp_path: Path) -> None:
    ran(tmp_path, step_min, [case(name) for name, fault in FAULTS.items() if fault.step_min == step_min])


@needs_promtool
def test_hours_of_ordinary_traffic_fire_nothing(tmp_path: Path) -> None:
    minutes = 2 * 60
    never = {"expr": f'count_over_time(ALERTS{{alertstate="firing"}}[{minutes}m])', "eval_time": f"{minutes - 1}m"}
    ran(tmp_path, 1, [written(calm_hours(seed, minutes), 1, [never]) for seed in range(1)])

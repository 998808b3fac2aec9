"""The alert rules and the dashboard can be loaded, and use only metrics and labels that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagmaster.telemetry.prometheus import METRICS
from tests.meta.promql_parser import check_promql

PROMTOOL = shutil.which("promtool")
FOLDER = Path(__file__).parents[2] / "monitoring"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
EXPRESSIONS = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_uses_metrics_and_labels_that_exist(expression):
    names = re.findall(r"dagmaster_\w+", expression)
    metrics = [METRICS.get(name) or METRICS[name.removesuffix("_bucket")] for name in names]
    assert all(name == metric.name or metric.buckets for name, metric in zip(names, metrics, strict=True))
    for label in re.findall(r"\b[a-z]+\b", " ".join(re.findall(r"by \(([^)]*)\)", expression))):
        assert label == "le" or all(label in metric.labels for metric in metrics), label
    counters = [name for name in names if METRICS.get(name) and METRICS[name].kind == "counter"]
    assert all(
        re.search(rf"(rate|increase)\({name}\[|{name} (unless|offset)", expression) for name in counters
    )


def test_every_metric_of_the_design_is_exported():
    names = (
        "jobs_created_total jobs_completed_total jobs_failed_total job_duration_seconds tasks_created_total"
        " tasks_completed_total tasks_failed_total task_duration_seconds task_queue_depth workers_active"
        " worker_task_execution_time worker_heartbeat_age"
    )
    assert {f"dagmaster_{name}" for name in names.split()} <= METRICS.keys()


def test_failures_and_a_missing_orchestrator_are_noticed_within_a_minute():
    rules = {rule["alert"]: rule for rule in RULES}
    assert "for" not in rules["DagmasterJobsFail"]
    assert "for" not in rules["DagmasterAttemptsLost"]
    # With a lease, a scrape and an evaluation of 15 s each.
    assert rules["DagmasterNoOrchestrator"]["for"] == "15s"
    assert all(rule["annotations"]["summary"] and rule["annotations"]["description"] for rule in RULES)
    assert {"DagmasterQueueOld", "DagmasterDatabaseLag", "DagmasterDatabaseDown"} <= rules.keys()


def test_alerts_name_only_labels_that_their_expression_keeps():
    for rule in RULES:
        kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", rule["expr"]))))
        used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert used <= kept, rule["alert"]


def test_every_alert_has_a_test():
    document = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())
    fired = {
        check["alertname"]
        for test in document["tests"]
        for check in test["alert_rule_test"]
        if check["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in RULES}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_is_valid(expression):
    check_promql(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "sum(dagmaster_a", "sum by dagmaster_a", "rate(dagmaster_a)", "sum(dagmaster_a[5m])", "a > > 1",
        "summ(dagmaster_a)", "a offset", "a offset 5", "histogram_quantile(a)", "a{b=1}", "a b", "", "increase(a[5])",
    ],
)  # fmt: skip
def test_an_expression_that_is_not_valid_is_found(expression):
    with pytest.raises(ValueError, match=r"\w"):
        check_promql(expression)
    if PROMTOOL is not None:
        # Both have the same opinion.
        assert not is_accepted_by_promtool([expression])


def is_accepted_by_promtool(expressions: list[str]) -> bool:
    rules = [{"record": f"rule{number}", "expr": expression} for number, expression in enumerate(expressions)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rules.yaml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
        done = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], check=False, capture_output=True)
    return done.returncode == 0


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed; the tests above parse the rules")
def test_promtool_accepts_rules_and_dashboard_and_the_alerts_fire_as_they_should():
    for command in ("check rules alerts.yaml", "test rules alerts_test.yaml"):
        done = subprocess.run(
            [str(PROMTOOL), *command.split()], check=False, capture_output=True, text=True, cwd=FOLDER
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert is_accepted_by_promtool(EXPRESSIONS)

"""`dagmaster storm`, as people and programs use it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.cli.commands import simulate as command
from dagmaster.cli.main import main
from dagmaster.simulation.world import StoreFactories, simulate
from dagmaster.store.memory.worker_store import MemoryWorkerStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dagmaster.ports.task_ledger import TaskReport

FLOW = "{workflow_id: flow, nodes: {a: {handler: not_installed, queue: q, next: b}, b: {handler: other, queue: q}}}"


class Forgetful(MemoryWorkerStore):
    """Leaves reported tasks in the queue."""

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        before = dict(self._database.queue)
        accepted = await super().report(reports)
        self._database.queue.update({task_id: before[task_id] for task_id in accepted})
        return accepted


def storm(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["storm", *map(str, arguments)])
    return int(left.value.code or 0), capsys.readouterr().out


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    return file


@pytest.mark.slow
def test_a_workflow_whose_handlers_are_not_installed_is_simulated(flow, capsys):
    code, output = storm(capsys, flow, "--seeds", 20, "--json")
    assert code == 0
    report = json.loads(output)
    assert (report["schedules"], report["violation"]) == (20, None)
    assert report["faults"] > 20


def test_a_seed_is_replayed_deterministically(flow, capsys):
    code, output = storm(capsys, flow, "--seed", 7)
    assert code == 0
    assert "Seed 7" in output
    assert storm(capsys, flow, "--seed", 7)[1] == output


def test_the_first_seed_that_violates_an_invariant_is_printed(flow, capsys, monkeypatch):
    broken = lambda seed, case: simulate(seed, case, stores=StoreFactories(worker=Forgetful))  # noqa: E731
    monkeypatch.setattr(command, "simulate", broken)
    code, output = storm(capsys, flow, "--first", 3)
    assert code == 1
    assert "Seed 3 violates an invariant" in output
    assert "still in its queue" in output


def test_missing_inputs_are_reported_before_anything_is_simulated(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text(
        "{workflow_id: f, inputs: {x: {type: string, required: true}}, nodes: {a: {handler: h, queue: q}}}"
    )
    code, output = storm(capsys, file, "--json")
    assert code == 2
    assert json.loads(output)["error"]["problems"][0]["message"] == "missing input 'x'"


@pytest.mark.slow
def test_a_workflow_that_waits_longer_than_the_calm_violates_no_invariant(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text(
        "{workflow_id: f, nodes: {rest: {type: wait, seconds: 700, next: a}, a: {handler: h, queue: q}}}"
    )
    report: Any = json.loads(storm(capsys, file, "--seeds", 2, "--json")[1])
    assert report["violation"] is None


HELLO = """
workflow_id: hello
nodes:
  greet: {handler: not_installed, queue: q, next: route}
  route:
    type: conditional
    condition_field: "{{ nodes.greet.output.message | length }}"
    branches: [{name: short, condition: "< 20", next: shout}, {name: long, default: true}]
  shout: {handler: other, queue: q, params: {said: "{{ nodes.greet.output.message | upper }}"}}
"""
HOPELESS = """
workflow_id: hopeless
inputs: {text: {type: string, default: abc}}
nodes: {a: {handler: h, queue: q, params: {sum: "{{ inputs.text * 2 }}"}}}
"""


@pytest.mark.slow
def test_most_schedules_complete_and_the_others_have_a_reason(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text(HELLO)
    report = json.loads(storm(capsys, file, "--seeds", 30, "--json")[1])
    assert report["ends"]["COMPLETED"] > 20
    assert sum(reason["jobs"] for reason in report["reasons"]) == report["ends"].get("FAILED", 0)
    assert report["calm"] is None


def test_a_workflow_that_never_completes_causes_a_warning_with_the_reason(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text(HOPELESS)
    with pytest.raises(SystemExit) as left:
        main(["storm", str(file), "--seeds", "3"])
    captured = capsys.readouterr()
    assert left.value.code == 0
    assert "The most common reason (3 of 3 failed jobs): a: `*` needs two numbers" in captured.out
    assert "WARNING: no job completed in any schedule" in captured.err
    assert "Without faults: FAILED: a: `*` needs two numbers" in captured.err
    report = json.loads(storm(capsys, file, "--seeds", 3, "--json")[1])
    assert report["reasons"][0]["node"] == report["calm"]["reasons"][0]["node"] == "a"


def test_a_seed_prints_the_history_of_its_nodes_and_a_trace_on_request(flow, capsys):
    report = storm(capsys, flow, "--seed", 7)[1]
    assert "a waits for a worker" in report
    assert "b completed" in report
    assert "heartbeat" not in report
    assert "heartbeat" in storm(capsys, flow, "--seed", 7, "--trace")[1]


@pytest.mark.slow
def test_a_workflow_of_python_code_is_simulated_with_results_that_its_tasks_may_have(capsys):
    """A result that the workflow fans out over is a list: a mapping would fail every job."""
    code, out = storm(
        capsys, "examples/decorated.py:nightly", "-i", "day=2026-01-01", "--seeds", 20, "--json"
    )
    assert code == 0
    assert json.loads(out)["ends"]["COMPLETED"] > 10


def test_the_command_that_replays_a_schedule_has_all_that_it_depends_on(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW.replace("nodes:", "inputs: {place: {}}, nodes:"))
    with pytest.raises(SystemExit):
        main(["storm", str(file), "--seeds", "2", "--first", "5", "--poison", "a", "-i", "place=a b"])
    assert f"dagmaster storm {file} --poison a -i 'place=a b' --seed 5\n" in capsys.readouterr().err

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

FLOW = "{workflow_id: flow, nodes: {a: {handler: nobody_has_it, queue: q, next: b}, b: {handler: other, queue: q}}}"


class Forgetful(MemoryWorkerStore):
    """Leaves what was reported in its queue."""

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        before = dict(self._database.queue)
        taken = await super().report(reports)
        self._database.queue.update({task_id: before[task_id] for task_id in taken})
        return taken


def stormed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["storm", *map(str, arguments)])
    return int(left.value.code or 0), capsys.readouterr().out


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    return file


def test_a_workflow_whose_handlers_are_not_here_is_stormed(flow, capsys):
    code, said = stormed(capsys, flow, "--seeds", 20, "--json")
    assert code == 0
    told = json.loads(said)
    assert (told["schedules"], told["violation"]) == (20, None)
    assert told["faults"] > 20


def test_a_seed_is_played_again_as_it_was(flow, capsys):
    code, said = stormed(capsys, flow, "--seed", 7)
    assert code == 0
    assert "Seed 7" in said
    assert stormed(capsys, flow, "--seed", 7)[1] == said


def test_the_first_seed_that_breaks_a_promise_is_told(flow, capsys, monkeypatch):
    broken = lambda seed, case: simulate(seed, case, stores=StoreFactories(worker=Forgetful))  # noqa: E731
    monkeypatch.setattr(command, "simulate", broken)
    code, said = stormed(capsys, flow, "--first", 3)
    assert code == 1
    assert "Seed 3 breaks a promise" in said
    assert "still in its queue" in said


def test_inputs_that_are_missing_are_told_before_anything_is_played(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text("{workflow_id: f, inputs: {x: {type: string, required: true}}, nodes: {a: {handler: h, queue: q}}}")
    code, said = stormed(capsys, file, "--json")
    assert code == 2
    assert json.loads(said)["error"]["problems"][0]["message"] == "missing input 'x'"


@pytest.mark.slow
def test_a_workflow_that_rests_longer_than_the_calm_breaks_no_promise(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text("{workflow_id: f, nodes: {rest: {type: wait, seconds: 700, next: a}, a: {handler: h, queue: q}}}")
    told: Any = json.loads(stormed(capsys, file, "--seeds", 2, "--json")[1])
    assert told["violation"] is None


HELLO = """
workflow_id: hello
nodes:
  greet: {handler: nobody_has_it, queue: q, next: route}
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
def test_most_schedules_complete_and_the_others_say_why(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text(HELLO)
    told = json.loads(stormed(capsys, file, "--seeds", 30, "--json")[1])
    assert told["ends"]["COMPLETED"] > 20
    assert sum(each["jobs"] for each in told["reasons"]) == told["ends"].get("FAILED", 0)
    assert told["calm"] is None


def test_a_workflow_that_never_completes_is_warned_of_with_the_reason(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text(HOPELESS)
    with pytest.raises(SystemExit) as left:
        main(["storm", str(file), "--seeds", "3"])
    said = capsys.readouterr()
    assert left.value.code == 0
    assert "The most common reason (3 of the 3 that failed): a: `*` needs two numbers" in said.out
    assert "WARNING: no job completed in any schedule" in said.err
    assert "Without any fault: FAILED: a: `*` needs two numbers" in said.err
    told = json.loads(stormed(capsys, file, "--seeds", 3, "--json")[1])
    assert told["reasons"][0]["node"] == told["calm"]["reasons"][0]["node"] == "a"


def test_a_seed_is_told_by_its_nodes_and_traced_on_request(flow, capsys):
    told = stormed(capsys, flow, "--seed", 7)[1]
    assert "a waits for a worker" in told
    assert "b completed" in told
    assert "heartbeat" not in told
    assert "heartbeat" in stormed(capsys, flow, "--seed", 7, "--trace")[1]

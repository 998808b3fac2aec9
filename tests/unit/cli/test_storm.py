"""`dagmaster storm`, as people and programs use it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.cli import storm
from dagmaster.cli.main import main
from dagmaster.testing.memory_working import MemoryWorkerStore
from dagmaster.testing.simulation import Doors, simulate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dagmaster.ports.store import TaskReport

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
    broken = lambda seed, case: simulate(seed, case, doors=Doors(worker=Forgetful))  # noqa: E731
    monkeypatch.setattr(storm, "simulate", broken)
    code, said = stormed(capsys, flow, "--first", 3)
    assert code == 1
    assert "Seed 3 breaks a promise" in said
    assert "still in its queue" in said


def test_inputs_that_are_missing_are_told_before_anything_is_played(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text("{workflow_id: f, inputs: {x: {type: string, required: true}}, nodes: {a: {handler: h, queue: q}}}")
    code, said = stormed(capsys, file, "--json")
    assert code == 2
    assert json.loads(said)["problems"][0]["message"] == "missing input 'x'"


def test_a_workflow_that_rests_longer_than_the_calm_breaks_no_promise(tmp_path, capsys):
    file = tmp_path / "flow.yaml"
    file.write_text("{workflow_id: f, nodes: {rest: {type: wait, seconds: 1200, next: a}, a: {handler: h, queue: q}}}")
    told: Any = json.loads(stormed(capsys, file, "--seeds", 2, "--json")[1])
    assert told["violation"] is None

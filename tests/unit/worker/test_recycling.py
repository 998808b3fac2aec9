"""When a worker replaces itself, and what its suspects are charged."""

from __future__ import annotations

import json

import pytest

from dagmaster.engine.status import AttemptStatus
from dagmaster.ports.recycle_reasons import EXIT_CODES
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.ports.task_messages import TaskMessage
from dagmaster.worker.recycling import Recycling

TASK = TaskMessage("1", "7", "node", "it", {})


class Service:
    """A worker that may be drained or stopping."""

    def __init__(self) -> None:
        self.stops = 0
        self.is_draining = self.is_stopping = False
        self.recycling = Recycling(self.stop, lambda: self.is_stopping, lambda: self.is_draining)

    def stop(self) -> None:
        self.stops += 1
        self.is_stopping = True


def test_a_worker_stops_once_and_the_first_reason_counts():
    service = Service()
    service.recycling.on_unstoppable(TASK, 2.0)
    service.recycling.on_memory(950, 900)
    assert (service.stops, service.recycling.exit_code) == (1, 80)
    assert service.recycling.counters() == {"recycling": "unstoppable"}


def test_a_drained_worker_stays_until_the_drain_is_withdrawn():
    service = Service()
    service.is_draining = True
    service.recycling.on_unstoppable(TASK, 2.0)
    service.recycling.resume()
    assert service.stops == 0
    service.is_draining = False
    service.recycling.resume()
    assert (service.stops, service.recycling.exit_code) == (1, 80)


def test_a_worker_that_is_stopping_keeps_its_exit_code_and_knows_that_a_thread_is_left():
    service = Service()
    service.is_stopping = True
    service.recycling.on_unstoppable(TASK, 2.0)
    assert (service.stops, service.recycling.exit_code, service.recycling.has_abandoned) == (0, 0, True)


@pytest.mark.parametrize(
    ("suspects", "statuses"),
    [(["1"], ["FAILED", "RELEASED", "COMPLETED"]), (["1", "2"], ["LOST", "LOST", "COMPLETED"])],
)
def test_suspects_of_a_full_memory(suspects: list[str], statuses: list[str]):
    recycling = Service().recycling
    recycling.on_memory(950, 900)
    recycling.suspect(suspects)
    reports = [TaskReport(task_id, 1, AttemptStatus.RELEASED) for task_id in "12"]
    reports.append(TaskReport("3", 1, AttemptStatus.COMPLETED))
    for report in reports:
        recycling.judge(report)
    assert [report.status for report in reports] == statuses
    errors = [json.loads(report.error) for report in reports if report.error]
    assert {error.get("kind", error.get("reason")) for error in errors} <= {"out_of_memory", "memory"}


def test_every_reason_has_its_exit_code():
    assert sorted(EXIT_CODES.values()) == [80, 81]

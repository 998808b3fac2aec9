"""From a claimed task to its report."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.ports.secret_vault import ClosedVault
from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded, TaskMessage
from dagmaster.ports.task_source import ClaimedTask
from dagmaster.store.memory.output_blobs import MemoryBlobs
from dagmaster.worker.task_runner import TaskRunner
from dagmaster.worker.telemetry_buffer import TelemetryBuffer

if TYPE_CHECKING:
    from dagmaster.ports.task_ledger import TaskReport


class Large:
    """Gives a large output, another one each time."""

    def __init__(self) -> None:
        self.times = 0

    def version_of(self, _handler: str) -> str:
        return "1"

    async def execute(self, _message: TaskMessage) -> Outcome:
        self.times += 1
        return Succeeded({"time": self.times, "text": "x" * 100_000})


def test_two_claims_of_one_task_write_two_blobs():
    """So whichever report is accepted, its output is its own: the other output is not referenced."""
    blobs, executor = MemoryBlobs(), Large()
    values: Any = executor
    runner = TaskRunner(
        values, telemetry=TelemetryBuffer(), blobs=blobs, secrets=lambda _name: None, vault=ClosedVault()
    )

    async def main() -> list[int]:
        tasks = [
            ClaimedTask("5", "1", "a", "large", 1, "{}", None, 60.0, 0.0, token=token) for token in (7, 8)
        ]
        reports: list[TaskReport] = [await runner.run(task) for task in tasks]
        refs = [report.output.ref or "" for report in reports if report.output is not None]
        return [json.loads(await blobs.read(ref))["time"] for ref in refs]

    assert asyncio.run(main()) == [1, 2]


@pytest.mark.parametrize(
    "outcome", [Succeeded({"text": "hunter2"}), Failed({"message": "hunter2"}), Released("hunter2")]
)
@pytest.mark.parametrize("seconds", [2.5, None])
def test_a_report_says_how_long_the_handler_ran_and_no_secret(outcome: Outcome, seconds: float | None):
    outcome.running_seconds = seconds

    class Fixed(Large):
        async def execute(self, _message: TaskMessage) -> Outcome:
            result: Outcome = outcome
            return result

    executor: Any = Fixed()
    runner = TaskRunner(
        executor,
        telemetry=TelemetryBuffer(),
        blobs=MemoryBlobs(),
        secrets=lambda _name: None,
        vault=ClosedVault(),
    )
    secrets = json.dumps({"hide": ["hunter2"], "places": []})
    report = asyncio.run(runner.run(ClaimedTask("5", "1", "a", "h", 1, "{}", secrets, 60.0, 0.0, token=7)))
    assert report.running_seconds == seconds
    assert "hunter2" not in f"{report}"

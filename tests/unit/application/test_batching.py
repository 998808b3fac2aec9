"""Items that arrive together are processed together, and each caller gets its own result."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.batching import Batcher
from dagmaster.application.commands.publication import publish_workflows
from dagmaster.application.commands.validation import to_sources, validate_text
from dagmaster.application.submission import JobRequest, JobSubmitter, submit_jobs
from dagmaster.application.submission_queue import SubmissionQueue
from dagmaster.errors import (
    DatabaseUnavailable,
    IdempotencyConflict,
    InputsInvalid,
    StatementFailed,
    WorkflowNotFound,
)
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.sdk.handler_registry import Registry
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import memory_application

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.context import Application
    from dagmaster.ports.audit_trail import AuditEntry

FLOW = "{workflow_id: flow, version: 1, inputs: {size: {type: integer, default: 1}}, nodes: {a: {type: wait, seconds: 1}}}"


class Squares:
    """Returns squares, batch by batch, when it is allowed to."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()

    async def process(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        await self.gate.wait()
        if 0 in items:
            raise ValueError("zero")
        return [item * item for item in items]


def test_items_that_arrive_during_a_batch_are_in_the_next_one():
    async def main() -> None:
        squares = Squares()
        batcher = Batcher(squares.process, max_size=3)
        first = asyncio.create_task(batcher.run(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rest = [asyncio.create_task(batcher.run(number)) for number in range(2, 7)]
        await asyncio.sleep(0)
        squares.gate.set()
        assert await first == 1
        assert await asyncio.gather(*rest) == [4, 9, 16, 25, 36]
        assert squares.batches == [[1], [2, 3, 4], [5, 6]]
        assert await batcher.run(7) == 49

    asyncio.run(main())


def test_an_error_is_raised_to_all_callers_of_its_batch_and_to_no_other():
    async def main() -> None:
        squares = Squares()
        squares.gate.set()
        batcher = Batcher(squares.process, max_size=2)
        results = await asyncio.gather(*(batcher.run(number) for number in (0, 1, 2)), return_exceptions=True)
        assert [str(result) for result in results] == ["zero", "zero", "4"]

    asyncio.run(main())


def test_a_result_too_few_is_an_error_and_later_items_are_processed():
    async def main() -> None:
        async def process(items: Sequence[int]) -> list[int]:
            return [item * item for item in items if item != 3]

        batcher = Batcher(process, max_size=10)
        with pytest.raises(ValueError, match="zip"):
            await batcher.run(3)
        assert await batcher.run(4) == 16

    asyncio.run(main())


def test_no_caller_waits_for_a_batch_that_was_interrupted():
    async def main() -> None:
        squares = Squares()
        batcher = Batcher(squares.process, max_size=2)
        callers = [asyncio.create_task(batcher.run(number)) for number in (2, 3, 4)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert batcher._worker is not None
        batcher._worker.cancel()
        async with asyncio.timeout(PATIENCE_SECONDS):
            results = await asyncio.gather(*callers, return_exceptions=True)
        assert [str(result).partition(":")[2] for result in results] == [
            *[" whether it took effect is not known"] * 2,
            " this item was not processed",
        ]
        squares.gate.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await batcher.run(5) == 25

    asyncio.run(main())


def test_a_cancelled_caller_does_not_stop_the_others():
    async def main() -> None:
        squares = Squares()
        batcher = Batcher(squares.process, max_size=10)
        callers = [asyncio.create_task(batcher.run(number)) for number in (2, 3)]
        await asyncio.sleep(0)
        callers[0].cancel()
        squares.gate.set()
        assert await callers[1] == 9
        assert squares.batches == [[2, 3]]

    asyncio.run(main())


# ── Submits ──


class CountingClient:
    """A client store that counts its statements, and rejects jobs of a size."""

    def __init__(self, client: Any, rejected: str = "", *, error: Exception | None = None) -> None:
        self._client, self._rejected, self._error = client, rejected, error
        self.sizes: list[int] = []
        self.entries: list[AuditEntry] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def submit(self, jobs: Sequence[Any], *, audit: Sequence[AuditEntry] = ()) -> Any:
        self.sizes.append(len(jobs))
        self.entries += audit
        if self._error is not None and any(self._rejected in job.inputs for job in jobs):
            raise self._error
        return await self._client.submit(jobs, audit=audit)


class CountingReads:
    """A read store that counts how often versions are looked up."""

    def __init__(self, read: Any) -> None:
        self._read = read
        self.lookups = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read, name)

    async def versions(self, *arguments: Any, **options: Any) -> Any:
        self.lookups += 1
        return await self._read.versions(*arguments, **options)


async def an_application(error: Exception | None = None) -> tuple[Application, Any, Any]:
    app = memory_application()
    await publish_workflows(app, to_sources([validate_text(FLOW, Registry())]))
    client, read = CountingClient(app.client, '"size": 7', error=error), CountingReads(app.read)
    return replace(app, client=client, read=read), client, read


def a_request(**changes: Any) -> JobRequest:
    return replace(JobRequest(workflow_id="flow", submitted_by="ada"), **changes)


def test_submits_of_many_callers_share_statements_and_each_has_its_own_outcome():
    async def main() -> None:
        app, client, read = await an_application()
        queue = SubmissionQueue(app)
        requests = [
            *(a_request(idempotency_key="same") for _ in range(3)),
            a_request(idempotency_key="same", inputs={"size": 2}),
            a_request(workflow_id="nothing"),
            a_request(inputs={"size": "many"}),
            a_request(),
        ]
        results: list[Any] = await asyncio.gather(*map(queue.submit, requests), return_exceptions=True)
        same, other = results[:3], results[6]
        assert len({result.job_id for result in same}) == 1
        assert [result.is_new for result in same] == [True, False, False]
        assert [type(result) for result in results[3:6]] == [
            IdempotencyConflict,
            WorkflowNotFound,
            InputsInvalid,
        ]
        assert (other.is_new, other.job_id != same[0].job_id) == (True, True)
        assert client.sizes == [5]
        # Each of both workflows once.
        assert read.lookups == 2

    asyncio.run(main())


def test_a_job_that_the_database_rejects_does_not_fail_the_submits_of_others():
    async def main() -> None:
        app, client, _ = await an_application(StatementFailed("no"))
        queue = SubmissionQueue(app)
        requests = [a_request(inputs={"size": size}) for size in (6, 7, 8)]
        results = await asyncio.gather(*map(queue.submit, requests), return_exceptions=True)
        assert [isinstance(result, StatementFailed) for result in results] == [False, True, False]
        assert client.sizes == [3, 1, 1, 1]

    asyncio.run(main())


@pytest.mark.parametrize("error", [StatementFailed("the graph is broken"), ValueError("a mistake")])
def test_an_error_about_one_submit_is_raised_to_its_caller_only(monkeypatch, error):
    async def main() -> None:
        app, client, _ = await an_application()
        make_job = JobSubmitter.make_job

        def make(self: JobSubmitter, request: JobRequest, graph: Any, *budget: Any) -> Any:
            if request.inputs.get("size") == 7:
                raise error
            return make_job(self, request, graph, *budget)

        monkeypatch.setattr(JobSubmitter, "make_job", make)
        queue = SubmissionQueue(app)
        requests = [a_request(inputs={"size": size}) for size in (6, 7, 8)]
        results = await asyncio.gather(*map(queue.submit, requests), return_exceptions=True)
        assert [result is error for result in results] == [False, True, False]
        assert client.sizes == [2]
        # A batch of one caller is stored as a whole, or fails.
        with pytest.raises(type(error)):
            await submit_jobs(app, requests)
        assert client.sizes == [2]

    asyncio.run(main())


def test_jobs_that_are_stored_one_by_one_are_answered_whatever_happens_to_another():
    async def main() -> None:
        app, client, _ = await an_application(StatementFailed("no"))
        submit = client.submit

        async def fail_alone(jobs: Sequence[Any], *, audit: Sequence[AuditEntry] = ()) -> Any:
            if len(jobs) == 1 and '"size": 7' in jobs[0].inputs:
                raise ValueError("a mistake")
            return await submit(jobs, audit=audit)

        client.submit = fail_alone
        queue = SubmissionQueue(app)
        requests = [a_request(inputs={"size": size}) for size in (6, 7, 8)]
        results = await asyncio.gather(*map(queue.submit, requests), return_exceptions=True)
        assert [isinstance(result, ValueError) for result in results] == [False, True, False]

    asyncio.run(main())


def test_submits_fail_together_while_the_database_is_unavailable():
    async def main() -> None:
        app, client, _ = await an_application(DatabaseUnavailable("gone"))
        queue = SubmissionQueue(app)
        requests = [a_request(inputs={"size": size}) for size in (7, 8)]
        results = await asyncio.gather(*map(queue.submit, requests), return_exceptions=True)
        assert [type(result) for result in results] == [DatabaseUnavailable] * 2
        # Whether they are stored is not known: they are not sent again.
        assert client.sizes == [2]

    asyncio.run(main())


def test_each_submit_of_a_batch_is_recorded_for_its_own_caller():
    async def main() -> None:
        app, client, _ = await an_application()
        queue = SubmissionQueue(app)
        origins = [
            ChangeOrigin(actor=name, request_id=f"of-{name}", key_id=f"key-{name}") for name in ("ada", "bob")
        ]
        await asyncio.gather(*(queue.submit(a_request(submitted_by=each.actor), each) for each in origins))
        assert [(entry.actor, entry.request_id) for entry in client.entries] == [
            ("ada", "of-ada"),
            ("bob", "of-bob"),
        ]
        assert client.sizes == [2]

    asyncio.run(main())


@pytest.mark.parametrize("workflow_id", ["flow", "nothing"])
def test_a_batch_looks_each_workflow_up_once(workflow_id):
    async def main() -> None:
        app, _, read = await an_application()
        await submit_jobs(app, [a_request(workflow_id=workflow_id)] * 100)
        assert read.lookups == 1

    asyncio.run(main())

"""Submission: one job, batches of up to 100, idempotency keys, and the checks of every field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.commands.publication import WorkflowSource, publish_workflows
from dagmaster.application.submission import MAX_BATCH, JobRequest, submit_job, submit_jobs
from dagmaster.application.views import SubmitOutcome
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.errors import (
    DatabaseUnavailable,
    IdempotencyConflict,
    InputsInvalid,
    SubmissionRejected,
    WorkflowNotFound,
)
from dagmaster.store.memory.database import MemoryDatabase
from tests.unit.application.memory_application import memory_application
from tests.unit.application.world import run

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.application.views import SubmitResult

GRAPH = compile_text(
    "{workflow_id: tile, version: 3, inputs: {x: {type: integer, required: true}}, nodes: {a: {handler: h, queue: q}}}"
).graph


def tile(x: Any, **options: Any) -> JobRequest:
    return JobRequest(workflow_id="tile", inputs={"x": x}, submitted_by="ada", **options)


def submitted(*requests: JobRequest) -> tuple[list[SubmitResult], MemoryDatabase]:
    """Submit a batch to a database that has the workflow; return the results, and the database."""
    database = MemoryDatabase()
    app = memory_application(database)

    async def work() -> list[SubmitResult]:
        await publish_workflows(app, [WorkflowSource(GRAPH)])
        return await submit_jobs(app, requests)

    return run(work()), database


# ── Batches ──


def test_a_hundred_jobs_are_stored_in_the_order_of_their_requests():
    results, database = submitted(*map(tile, range(MAX_BATCH)))
    assert MAX_BATCH == 100
    assert [result.outcome for result in results] == [SubmitOutcome.ACCEPTED] * 100
    assert [database.jobs[str(result.job_id)].new.inputs for result in results] == [
        f'{{"x": {x}}}' for x in range(100)
    ]
    assert {(result.workflow_id, result.version, result.is_new) for result in results} == {("tile", 3, True)}


def test_a_batch_of_101_is_refused_and_nothing_is_stored():
    database = MemoryDatabase()
    with pytest.raises(SubmissionRejected, match="at most 100 jobs, not 101"):
        run(
            submit_jobs(
                memory_application(database), [JobRequest(graph=GRAPH, inputs={"x": x}) for x in range(101)]
            )
        )
    assert not database.jobs
    assert not database.graphs


def test_an_empty_batch_has_no_results():
    assert submitted()[0] == []


def test_an_invalid_request_does_not_stop_the_others():
    results, database = submitted(
        tile(1),
        tile("no number"),
        JobRequest(workflow_id="tyle", inputs={"x": 1}),
        tile(2, version=9),
        tile(3, priority=11),
        tile(4),
    )
    assert [result.outcome.value for result in results] == [
        "accepted",
        "error",
        "error",
        "error",
        "error",
        "accepted",
    ]
    errors = [result.error or {} for result in results[1:5]]
    assert [error["code"] for error in errors] == [
        "inputs_invalid",
        "workflow_not_found",
        "workflow_not_found",
        "submission_rejected",
    ]
    assert [result.job_id for result in results[1:5]] == [None] * 4
    assert [result.workflow_id for result in results[1:5]] == ["tile", "tyle", "tile", "tile"]
    assert list(database.jobs) == [results[0].job_id, results[5].job_id]


def test_a_key_that_is_used_twice_in_a_batch_is_one_job_and_with_other_inputs_a_conflict():
    first, same, other, without = submitted(
        tile(1, idempotency_key="k"), tile(1, idempotency_key="k"), tile(2, idempotency_key="k"), tile(1)
    )[0]
    assert [result.outcome.value for result in (first, same, other, without)] == [
        "accepted",
        "existing",
        "error",
        "accepted",
    ]
    assert same.job_id == first.job_id != without.job_id
    assert (other.error or {})["code"] == "idempotency_conflict"
    assert str(first.job_id) in str(other.error)


def test_an_unavailable_database_fails_the_whole_batch():
    database = MemoryDatabase()
    app = memory_application(database)

    async def unavailable(_workflow_id: str, **_options: Any) -> Any:
        raise DatabaseUnavailable("the database cannot be reached")

    app.read.versions = unavailable  # type: ignore[method-assign, assignment]
    with pytest.raises(DatabaseUnavailable):
        run(submit_jobs(app, [JobRequest(graph=GRAPH, inputs={"x": 1}), tile(1)]))
    assert not database.jobs


# ── One job ──


async def published() -> Application:
    app = memory_application()
    await publish_workflows(app, [WorkflowSource(GRAPH)])
    return app


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (tile("no number"), InputsInvalid),
        (JobRequest(workflow_id="tyle"), WorkflowNotFound),
        (tile(1, name="x" * 129), SubmissionRejected),
    ],
)
def test_a_job_that_is_not_accepted_raises(request_: JobRequest, error: type[Exception]):
    async def work() -> None:
        with pytest.raises(error):
            await submit_job(await published(), request_)

    run(work())


def test_one_key_is_one_job():
    async def work() -> None:
        app = await published()
        first = await submit_job(app, tile(1, idempotency_key="k"))
        again = await submit_job(app, tile(1, idempotency_key="k"))
        assert (first.outcome, again.outcome) == (SubmitOutcome.ACCEPTED, SubmitOutcome.EXISTING)
        assert (first.job_id, first.is_new, again.is_new) == (again.job_id, True, False)
        with pytest.raises(IdempotencyConflict, match="use a new key"):
            await submit_job(app, tile(2, idempotency_key="k"))

    run(work())


def test_inputs_as_text_are_parsed_and_win():
    async def work() -> None:
        app = await published()
        result = await submit_job(
            app, JobRequest(workflow_id="tile", inputs={"x": 1}, input_texts={"x": "7"})
        )
        job = await app.read.job(str(result.job_id))
        assert job is not None
        assert job.inputs == {"x": 7}

    run(work())


def test_a_graph_is_submitted_with_its_children_and_without_being_published():
    async def work() -> None:
        database = MemoryDatabase()
        child = compile_text("{workflow_id: child, nodes: {a: {handler: h, queue: q}}}").graph
        request = JobRequest(graph=GRAPH, child_graphs=[child], inputs={"x": 1}, name="mine", priority=8)
        result = await submit_job(memory_application(database), request)
        job = database.jobs[str(result.job_id)].new
        assert set(database.graphs) == {GRAPH.content_hash, child.content_hash}
        assert job.workflows == f'{{"child": "{child.content_hash}"}}'
        assert (job.name, job.priority, database.workflows) == ("mine", 8, {})

    run(work())


# ── Fields ──


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", -1),
        ("priority", 11),
        ("idempotency_key", ""),
        ("idempotency_key", "k" * 129),
        ("idempotency_key", "a\nb"),
        ("correlation_id", "c" * 65),
        ("correlation_id", "a\x00b"),
        ("submitted_by", "s" * 114),
        ("submitted_by", "a\tb"),
        ("name", "n" * 129),
        ("name", "a\x1b[2J"),
    ],
)
def test_a_field_that_is_not_valid_is_named(field: str, value: Any):
    options = {"graph": GRAPH, "inputs": {"x": 1}, field: value}
    with pytest.raises(SubmissionRejected, match=f"^{field} must"):
        run(submit_job(memory_application(), JobRequest(**options)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", 0),
        ("priority", 10),
        ("idempotency_key", "k"),
        ("idempotency_key", "k" * 128),
        ("correlation_id", ""),
        ("correlation_id", "c" * 64),
        ("submitted_by", "s" * 64),
        ("name", "ü" * 128),
    ],
)
def test_a_field_at_its_limit_is_stored(field: str, value: Any):
    database = MemoryDatabase()
    options = {"graph": GRAPH, "inputs": {"x": 1}, field: value}
    result = run(submit_job(memory_application(database), JobRequest(**options)))
    assert getattr(database.jobs[result.job_id].new, field) == value

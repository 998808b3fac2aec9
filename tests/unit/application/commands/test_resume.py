"""Resume: a new run or a new job, what is checked before, and what the dry runs return."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.adapters.secret_keys import KeySource, new_key
from dagmaster.adapters.secret_vault import KeyVault
from dagmaster.application.commands.control import cancel_job, retry_node
from dagmaster.application.commands.publication import WorkflowSource, publish_workflows
from dagmaster.application.commands.resume import (
    ResumeRequest,
    _Resume,
    changed_names,
    plan_resume,
    plan_retry,
    resume_job,
)
from dagmaster.application.submission import JobRequest, submit_job
from dagmaster.application.views import CommandResult, SubmitResult
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.engine.status import JobStatus
from dagmaster.errors import (
    CommandInvalid,
    DagmasterError,
    InputsInvalid,
    JobNotFinished,
    KeyNarrowed,
    NodeNotFound,
    NothingToResume,
    PermanentError,
    ScopeMissing,
    SecretInputsMissing,
    WorkflowNotFound,
)
from dagmaster.ports.api_keys import Caller, KeyLimits, Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.sdk.handler_registry import Registry, handler
from tests.unit.application.memory_application import finished, served_application

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dagmaster.application.context import Application

GRAPH = compile_text("{name: one, inputs: {x: {type: number}}, nodes: {a: {handler: h, queue: q}}}").graph


def a_resume(before: Any, after: Any, **request: Any) -> _Resume:
    """Return a resume of a job that had this input, with that one."""
    job: Any = SimpleNamespace(job_id="7", inputs={"x": before})
    return _Resume(
        job=job,
        source_graph=GRAPH,
        graph=GRAPH,
        inputs={"x": after},
        request=ResumeRequest(sent_by="ada", **request),
        changed=changed_names({"x": before}, {"x": after}),
        prints={"x": after},
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, True),
        (0, False),
        (1, 1.0),
        ([1], [True]),
        ({"a": {"b": 0}}, {"a": {"b": 0.0}}),
        ("1", 1),
        (None, 0),
    ],
)
def test_values_that_are_equal_in_python_and_not_in_json_differ(before: Any, after: Any):
    assert changed_names({"x": before, "y": 1}, {"x": after, "y": 1}) == {"x"}
    assert changed_names({"x": after}, {"x": before}) == {"x"}


def test_the_order_of_keys_does_not_matter():
    assert changed_names({"x": {"a": 1, "b": [2]}, "y": 1}, {"y": 1, "x": {"b": [2], "a": 1}}) == frozenset()


def test_a_null_input_is_not_a_missing_one():
    assert changed_names({"x": None}, {}) == changed_names({}, {"x": None}) == {"x"}


def test_another_input_makes_a_new_job_and_the_same_a_new_run():
    assert a_resume(1, 1.0).is_new_job
    assert not a_resume(1, 1).is_new_job


def test_the_default_key_is_the_same_for_the_same_resume_only():
    key = a_resume(1, 2, from_nodes=("a", "b")).idempotency_key
    assert key == a_resume(1, 2, from_nodes=("b", "a")).idempotency_key
    assert key.startswith("resume:7:")
    assert len(key) <= 128
    others = [a_resume(1, 3, from_nodes=("a", "b")), a_resume(1, 2, from_nodes=("a",)), a_resume(1, 2.0)]
    assert key not in {other.idempotency_key for other in others}
    assert a_resume(1, 2, idempotency_key="mine").idempotency_key == "mine"


# ── Over the stores in memory, with an orchestrator and a worker ──

FLOW = """
workflow_id: tiles
version: 1
inputs: {year: {type: integer, default: 2024}, token: {type: string, secret: true, default: hunter2-canary}}
nodes:
  about: {handler: about, queue: q, params: {year: "{{ inputs.year }}"}}
  tile: {handler: tile, queue: q, retry: none, next: after}
  after: {handler: about, queue: q, params: {year: 1}}
outputs: {year: "{{ nodes.about.output.year }}"}
"""


class Tiles:
    """Handlers that count their calls. `tile` fails until it is repaired."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_broken = True

        @handler("about", queue="q")
        async def about(year: int) -> dict[str, int]:
            self.calls.append(f"about {year}")
            return {"year": year}

        @handler("tile", queue="q")
        async def tile() -> None:
            self.calls.append("tile")
            if self.is_broken:
                raise PermanentError("the tile is broken")

        self.registry = Registry([about, tile])

    def compiled(self, text: str = FLOW) -> Any:
        return compile_text(text, handlers=self.registry).graph


def failed_job(test: Callable[[Application, str, Tiles], Coroutine[Any, Any, None]]) -> None:
    """Run a job whose tile fails, then the test, all in one loop."""

    async def work() -> None:
        tiles = Tiles()
        async with served_application(tiles.registry) as app:
            job_id = str(
                (await submit_job(app, JobRequest(graph=tiles.compiled(), submitted_by="ada"))).job_id
            )
            view = await finished(app, job_id)
            assert (view.status, sorted(tiles.calls)) == (JobStatus.FAILED, ["about 2024", "tile"])
            tiles.calls.clear()
            await test(app, job_id, tiles)

    asyncio.run(work())


def planned(views: Any) -> dict[str, str]:
    return {view.node: view.reason for view in views}


def test_a_dry_run_says_what_a_resume_does_and_changes_nothing():
    async def test(app: Application, job_id: str, tiles: Tiles) -> None:
        before = await app.read.job(job_id)
        plan = await plan_resume(app, job_id, ResumeRequest(sent_by="ada"))
        assert (plan.is_new_job, plan.run, plan.has_workers) == (False, 2, True)
        assert set(planned(plan.reused)) == {"about"}
        assert set(planned(plan.redone)) == {"tile", "after"}
        assert plan.impossible == ()
        assert await plan_retry(app, job_id, "tile") == plan
        after = await app.read.job(job_id)
        assert before is not None
        assert after is not None
        assert (after.event_seq, after.run, tiles.calls) == (before.event_seq, 1, [])
        assert await app.read.pending_commands(job_id) == []

    failed_job(test)


@pytest.mark.parametrize("command", ["resume", "retry"])
def test_a_new_run_does_only_what_the_dry_run_said(command: str):
    async def test(app: Application, job_id: str, tiles: Tiles) -> None:
        tiles.is_broken = False
        if command == "resume":
            result = await resume_job(app, job_id, ResumeRequest(sent_by="ada"))
        else:
            result = await retry_node(app, job_id, "tile", sent_by="ada")
        assert isinstance(result, CommandResult)
        assert (result.accepted, result.is_done, result.command.value) == (True, True, command)
        assert result.event is not None
        assert (result.event.type, result.event.by) == ("JobResumed", "ada")
        view = await finished(app, job_id)
        assert (view.status, view.run, tiles.calls) == (JobStatus.COMPLETED, 2, ["tile", "about 1"])

    failed_job(test)


def test_nodes_that_completed_are_run_again_when_they_are_named():
    async def test(app: Application, job_id: str, tiles: Tiles) -> None:
        tiles.is_broken = False
        request = ResumeRequest(sent_by="ada", from_nodes=("about",))
        plan = await plan_resume(app, job_id, request)
        assert set(planned(plan.redone)) == {"about", "tile", "after"}
        await resume_job(app, job_id, request)
        await finished(app, job_id)
        assert sorted(tiles.calls) == ["about 1", "about 2024", "tile"]

    failed_job(test)


def test_other_inputs_make_a_new_job_that_reuses_what_fits():
    async def test(app: Application, job_id: str, tiles: Tiles) -> None:
        tiles.is_broken = False
        await resume_job(app, job_id, ResumeRequest(sent_by="ada"))
        await finished(app, job_id)
        tiles.calls.clear()
        request = ResumeRequest(sent_by="ada", input_texts={"year": "2025"})
        plan = await plan_resume(app, job_id, request)
        assert (plan.is_new_job, plan.run) == (True, None)
        assert planned(plan.redone) == {"about": "inputs.year changed"}
        assert set(planned(plan.reused)) == {"tile", "after"}
        result = await resume_job(app, job_id, request)
        assert isinstance(result, SubmitResult)
        assert (result.is_new, result.resumed_from) == (True, job_id)
        view = await finished(app, result.job_id)
        assert (view.result, tiles.calls) == ({"year": 2025}, ["about 2025"])
        again = await resume_job(app, job_id, request)
        assert isinstance(again, SubmitResult)
        assert (again.job_id, again.is_new) == (result.job_id, False)

    failed_job(test)


def test_another_version_makes_a_new_job():
    async def test(app: Application, job_id: str, tiles: Tiles) -> None:
        tiles.is_broken = False
        graph = tiles.compiled(FLOW.replace("version: 1", "version: 2").replace("year: 1}", "year: 2}"))
        await publish_workflows(app, [WorkflowSource(graph)])
        result = await resume_job(app, job_id, ResumeRequest(sent_by="ada", version=2))
        assert isinstance(result, SubmitResult)
        assert (result.is_new, result.version) == (True, 2)
        assert (await finished(app, result.job_id)).status is JobStatus.COMPLETED
        assert tiles.calls == ["tile", "about 2"]

    failed_job(test)


SECRET_FLOW = FLOW.replace(", default: hunter2-canary}", "}").replace(
    "workflow_id: tiles", "workflow_id: secret"
)


def test_a_resume_with_another_input_needs_the_secrets_again():
    """Who may resume a job must not choose where the secrets of its submitter go."""

    async def main() -> None:
        tiles = Tiles()
        async with served_application(tiles.registry) as app:
            graph = tiles.compiled(SECRET_FLOW)
            job = JobRequest(graph=graph, submitted_by="ada", inputs={"token": "canary-of-ada"})
            job_id = str((await submit_job(app, job)).job_id)
            await finished(app, job_id)
            for request in (
                ResumeRequest(sent_by="eve", inputs={"year": 2025}),
                ResumeRequest(sent_by="eve", input_texts={"year": "2025"}),
            ):
                for resume in (resume_job, plan_resume):
                    with pytest.raises(SecretInputsMissing, match=r"given again: token$") as caught:
                        await resume(app, job_id, request)
                    assert "canary" not in str(caught.value)
            again = await resume_job(
                app, job_id, ResumeRequest(sent_by="eve", inputs={"year": 2025, "token": "mine"})
            )
            assert isinstance(again, SubmitResult)
            tiles.is_broken = False
            await resume_job(app, job_id, ResumeRequest(sent_by="eve"))
            assert (await finished(app, job_id)).status is JobStatus.COMPLETED, "a new run has what it had"

    asyncio.run(main())


def test_a_resume_does_not_tell_whether_a_secret_was_guessed():
    """Neither the scope that a guess needs nor its kind of resume depends on what is stored."""

    async def main() -> None:
        tiles = Tiles()
        async with served_application(tiles.registry) as app:
            graph = tiles.compiled(SECRET_FLOW)
            job = JobRequest(graph=graph, submitted_by="ada", inputs={"token": "1234"})
            job_id = str((await submit_job(app, job)).job_id)
            await finished(app, job_id)
            caller = Caller(key_id="1", name="eve", scopes=frozenset({Scope.OPERATE}))
            as_operator = app.on_behalf_of(ChangeOrigin(actor=caller.actor), caller)
            for guess in ("1234", "1235"):
                for request in (
                    ResumeRequest(sent_by="eve", inputs={"token": guess}),
                    ResumeRequest(sent_by="eve", input_texts={"token": guess}),
                ):
                    for resume in (plan_resume, resume_job):
                        with pytest.raises(ScopeMissing, match="needs the scope `submit`"):
                            await resume(as_operator, job_id, request)
                    assert (await plan_resume(app, job_id, request)).is_new_job

    asyncio.run(main())


def test_neither_a_plan_nor_the_reused_results_tell_whether_a_secret_was_guessed():
    calls: list[str] = []

    @handler("login", queue="q")
    async def login(text: str) -> dict[str, int]:
        calls.append(text)
        return {}

    text = """
workflow_id: oracle
version: 1
inputs: {token: {type: string, secret: true}, year: {type: integer, default: 1}}
nodes:
  alone: {handler: login, params: {text: alone}}
  login: {handler: login, params: {text: "as {{ inputs.token }}"}, next: after}
  after: {handler: login, params: {text: after}}
  each: {type: fan_out, source: [1], task: {handler: login, params: {text: "{{ inputs.token }}"}}}
"""
    registry = Registry([login])

    async def main() -> None:
        async with served_application(registry) as app:
            graph = compile_text(text, handlers=registry).graph
            newer = compile_text(text.replace("version: 1", "version: 2"), handlers=registry).graph
            await publish_workflows(app, [WorkflowSource(newer)])
            job = JobRequest(graph=graph, submitted_by="ada", inputs={"token": "1234"})
            job_id = str((await submit_job(app, job)).job_id)
            await finished(app, job_id)
            # A version alone keeps the secrets, and their results.
            kept = await resume_job(app, job_id, ResumeRequest(sent_by="eve", version=2))
            calls.clear()
            assert isinstance(kept, SubmitResult)
            await finished(app, kept.job_id)
            assert calls == []
            for source in (job_id, str(kept.job_id)):
                seen = []
                for guess in ("1234", "1235"):
                    request = ResumeRequest(sent_by="eve", inputs={"token": guess, "year": 2})
                    plan = await plan_resume(app, source, request)
                    calls.clear()
                    result = await resume_job(app, source, request)
                    assert isinstance(result, SubmitResult)
                    await finished(app, result.job_id)
                    made = sorted(call.replace(guess, "***") for call in calls)
                    seen.append((planned(plan.reused), planned(plan.redone), made))
                assert seen[0] == seen[1]
                assert seen[0][2] == ["***", "after", "as ***"]
                assert set(seen[0][0]) == {"alone"}
                assert seen[0][1]["login"] == "may depend on a secret input that is given again"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("declared", "error"),
    [
        ("type: string, secret: true, pattern: '^9'", None),
        ("type: integer, secret: true", InputsInvalid),
        ("type: string", SecretInputsMissing),
    ],
)
def test_another_version_neither_shows_nor_tests_the_secrets_of_the_job(
    declared: str, error: type[DagmasterError] | None
):
    async def main() -> None:
        tiles = Tiles()
        async with served_application(tiles.registry) as app:
            text = SECRET_FLOW.replace("type: string, secret: true", declared)
            await publish_workflows(
                app, [WorkflowSource(tiles.compiled(text.replace("version: 1", "version: 2")))]
            )
            job = JobRequest(
                graph=tiles.compiled(SECRET_FLOW), submitted_by="ada", inputs={"token": "1234-canary"}
            )
            job_id = str((await submit_job(app, job)).job_id)
            await finished(app, job_id)
            request = ResumeRequest(sent_by="eve", version=2)
            if error is None:
                assert (await plan_resume(app, job_id, request)).is_new_job
                return
            for resume in (plan_resume, resume_job):
                with pytest.raises(error) as caught:
                    await resume(app, job_id, request)
                assert "canary" not in str(caught.value)

    asyncio.run(main())


def test_the_same_resume_is_one_job_across_a_rotation():
    async def main() -> None:
        tiles, old = Tiles(), new_key()
        async with served_application(tiles.registry) as app:
            before = replace(app, vault=KeyVault(KeySource(text=old)))
            after = replace(app, vault=KeyVault(KeySource(text=f"{new_key()},{old}")))
            graph = tiles.compiled(SECRET_FLOW)
            job = JobRequest(graph=graph, submitted_by="ada", inputs={"token": "canary"})
            job_id = str((await submit_job(before, job)).job_id)
            await finished(before, job_id)
            request = ResumeRequest(sent_by="ada", inputs={"year": 2025, "token": "canary"})
            first = await resume_job(before, job_id, request)
            again = await resume_job(after, job_id, request)
            assert isinstance(first, SubmitResult)
            assert isinstance(again, SubmitResult)
            assert (again.job_id, again.is_new) == (first.job_id, False)
            other = replace(request, inputs={"year": 2025, "token": "canary-2"})
            new = await resume_job(after, job_id, other)
            assert isinstance(new, SubmitResult)
            assert new.is_new

    asyncio.run(main())


def test_a_resume_as_a_new_job_needs_the_scope_submit_and_the_workflow():
    async def test(app: Application, job_id: str, tiles: Tiles) -> None:
        tiles.is_broken = False
        graph = tiles.compiled(FLOW.replace("version: 1", "version: 2").replace("year: 1}", "year: 2}"))
        await publish_workflows(app, [WorkflowSource(graph)])

        def as_caller(*scopes: Scope, **limits: Any) -> Application:
            caller = Caller(key_id="1", name="ci", scopes=frozenset(scopes), limits=KeyLimits(**limits))
            return app.on_behalf_of(ChangeOrigin(actor=caller.actor), caller)

        changes = (
            ResumeRequest(sent_by="ci", inputs={"year": 2025}),
            ResumeRequest(sent_by="ci", version=2),
        )
        for request in changes:
            with pytest.raises(ScopeMissing, match="needs the scope `submit`"):
                await resume_job(as_caller(Scope.OPERATE), job_id, request)
            with pytest.raises(KeyNarrowed, match="it may submit: other"):
                await resume_job(
                    as_caller(Scope.OPERATE, Scope.SUBMIT, workflows=("other",)), job_id, request
                )
        both = as_caller(Scope.OPERATE, Scope.SUBMIT, workflows=("tiles",))
        assert isinstance(await resume_job(both, job_id, changes[0]), SubmitResult)
        await resume_job(as_caller(Scope.OPERATE), job_id, ResumeRequest(sent_by="ci"))
        assert (await finished(app, job_id)).status is JobStatus.COMPLETED

    failed_job(test)


def test_a_reason_shows_no_secret():
    async def test(app: Application, job_id: str, tiles: Tiles) -> None:
        for token in ("hunter2-canary", "other-canary"):
            plan = await plan_resume(app, job_id, ResumeRequest(sent_by="ada", inputs={"token": token}))
            assert "canary" not in str(plan.to_dict())

    failed_job(test)


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        (ResumeRequest(sent_by=""), CommandInvalid, "1 to 113"),
        (ResumeRequest(sent_by="ada", from_nodes=("tyle",)), NodeNotFound, "Did you mean 'tile'"),
        (ResumeRequest(sent_by="ada", version=7), WorkflowNotFound, "tiles"),
        (ResumeRequest(sent_by="ada", inputs={"yeer": 1}), InputsInvalid, "yeer"),
        (ResumeRequest(sent_by="ada", idempotency_key="k"), CommandInvalid, "no idempotency key"),
    ],
)
def test_a_resume_that_cannot_be_is_refused_as_its_dry_run_is(
    request_: ResumeRequest, error: type[DagmasterError], text: str
):
    async def test(app: Application, job_id: str, tiles: Tiles) -> None:
        for command in (plan_resume, resume_job):
            with pytest.raises(error, match=text):
                await command(app, job_id, request_)
        record = await app.read.job(job_id)
        assert record is not None
        assert (record.run, await app.read.pending_commands(job_id)) == (1, [])

    failed_job(test)


def test_a_job_that_completed_has_nothing_to_resume_and_one_that_runs_cannot_be():
    async def test(app: Application, job_id: str, tiles: Tiles) -> None:
        tiles.is_broken = False
        await resume_job(app, job_id, ResumeRequest(sent_by="ada"))
        await finished(app, job_id)
        with pytest.raises(NothingToResume, match="name the nodes to run again"):
            await resume_job(app, job_id, ResumeRequest(sent_by="ada"))
        plan = await plan_resume(app, job_id, ResumeRequest(sent_by="ada"))
        assert (plan.is_new_job, plan.run, plan.redone, plan.impossible) == (False, None, (), ())
        assert {node.reason for node in plan.reused} == {"completed"}
        waiting = compile_text("{name: waits, nodes: {w: {type: wait, signal: go}}}").graph
        open_job = await submit_job(app, JobRequest(graph=waiting))
        with pytest.raises(JobNotFinished, match="only a finished job"):
            await resume_job(app, open_job.job_id, ResumeRequest(sent_by="ada"))
        await cancel_job(app, open_job.job_id, sent_by="ada")

    failed_job(test)

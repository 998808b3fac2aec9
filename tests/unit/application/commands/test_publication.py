"""Publish, activate and validate workflow versions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.commands.publication import WorkflowSource, activate_version, publish_workflows
from dagmaster.application.commands.validation import to_sources, validate_files, validate_text
from dagmaster.application.submission import JobRequest, submit_job
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.errors import QueryInvalid, WorkflowInvalid, WorkflowNotFound, WorkflowVersionConflict
from dagmaster.sdk.handler_registry import Registry, handler
from tests.unit.application.memory_application import memory_application

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.application.context import Application


def a_source(
    version: int = 1, node: str = "a", workflow_id: str = "flow", file: str = "flow.yaml"
) -> WorkflowSource:
    text = f"{{workflow_id: {workflow_id}, version: {version}, nodes: {{{node}: {{handler: h, queue: q}}}}}}"
    return WorkflowSource(compile_text(text).graph, file)


async def versions(app: Application, workflow_id: str = "flow") -> dict[int, tuple[str, bool]]:
    """Return the published versions: content and whether it is the active one."""
    return {
        record.version: (record.content_hash, record.is_active)
        for record in await app.read.versions(workflow_id)
    }


def outcomes(results: Any) -> list[tuple[str, int, str, bool]]:
    return [
        (result.workflow_id, result.version, result.outcome.value, result.is_active) for result in results
    ]


def test_a_version_is_published_once_and_is_active():
    async def work() -> None:
        app = memory_application()
        first = await publish_workflows(app, [a_source(1), a_source(1, workflow_id="other")])
        assert outcomes(first) == [("flow", 1, "published", True), ("other", 1, "published", True)]
        assert first[0].file == "flow.yaml"
        assert outcomes(await publish_workflows(app, [a_source(1)])) == [("flow", 1, "unchanged", True)]
        assert await versions(app) == {1: (a_source(1).graph.content_hash, True)}
        assert await app.read.definition(a_source(1).graph.content_hash) == a_source(1).graph.definition

    asyncio.run(work())


def test_a_published_version_does_not_change_and_one_conflict_publishes_nothing():
    async def work() -> None:
        app = memory_application()
        await publish_workflows(app, [a_source(1), a_source(4)])
        before = await versions(app)
        with pytest.raises(WorkflowVersionConflict) as conflict:
            await publish_workflows(app, [a_source(5), a_source(1, node="b"), a_source(1, workflow_id="new")])
        assert "flow v1 is published with other content: raise `version:` to 5 in flow.yaml" in str(
            conflict.value
        )
        assert str(conflict.value).endswith("nothing was published")
        assert await versions(app) == before
        assert await versions(app, "new") == {}

    asyncio.run(work())


def test_a_file_that_was_published_with_the_default_retry_in_its_definition_is_published_without_it():
    async def work() -> None:
        app = memory_application()
        task = "handler: h, queue: q"
        text = "{{workflow_id: flow, version: 1, nodes: {{a: {{{0}}}, f: {{type: fan_out, source: [1], task: {{{0}}}}}}}}}"
        retry = "retry: {max_attempts: 3}"
        earlier, now, other = (
            WorkflowSource(compile_text(text.format(one)).graph)
            for one in (f"{task}, {retry}", task, f"{task}, retry: none")
        )
        await publish_workflows(app, [earlier])
        assert outcomes(await publish_workflows(app, [now])) == [("flow", 1, "replaced", True)]
        assert await versions(app) == {1: (now.graph.content_hash, True)}, (
            "the operator's setting counts from now on"
        )
        for source in (other, earlier):
            with pytest.raises(WorkflowVersionConflict):
                await publish_workflows(app, [source])

    asyncio.run(work())


def test_a_version_is_replaced_when_that_is_asked_for():
    async def work() -> None:
        app = memory_application()
        await publish_workflows(app, [a_source(1)])
        job = await submit_job(app, JobRequest(workflow_id="flow"))
        replaced = await publish_workflows(app, [a_source(1, node="b")], replace=True)
        assert outcomes(replaced) == [("flow", 1, "replaced", True)]
        assert (await versions(app))[1][0] == a_source(1, node="b").graph.content_hash
        stored = await app.read.job(str(job.job_id))
        assert stored is not None
        assert stored.content_hash == a_source(1).graph.content_hash, (
            "a job keeps the graph it was submitted with"
        )

    asyncio.run(work())


def test_a_secret_default_that_is_shown_as_stars_is_not_published():
    async def work() -> None:
        app = memory_application()
        text = (
            "{workflow_id: flow, inputs: {token: {type: string, secret: true, default: '***'}},"
            " nodes: {a: {handler: h, queue: q}}}"
        )
        with pytest.raises(WorkflowInvalid, match="secret input 'token'"):
            await publish_workflows(
                app, [a_source(workflow_id="other"), WorkflowSource(compile_text(text).graph)]
            )
        assert await versions(app, "other") == {}

    asyncio.run(work())


def test_two_files_of_one_version_with_different_content_are_a_conflict():
    async def work() -> None:
        app = memory_application()
        with pytest.raises(WorkflowVersionConflict, match=r"b\.yaml and a\.yaml are the same version"):
            await publish_workflows(app, [a_source(1, file="a.yaml"), a_source(1, node="b", file="b.yaml")])
        assert await versions(app) == {}
        twins = await publish_workflows(app, [a_source(1, file="a.yaml"), a_source(1, file="b.yaml")])
        assert [result.outcome.value for result in twins] == ["published", "published"]

    asyncio.run(work())


def test_a_version_can_be_published_without_being_activated():
    async def work() -> None:
        app = memory_application()
        await publish_workflows(app, [a_source(1)])
        assert outcomes(await publish_workflows(app, [a_source(2)], activate=False)) == [
            ("flow", 2, "published", False)
        ]
        assert outcomes(await publish_workflows(app, [a_source(1)], activate=False)) == [
            ("flow", 1, "unchanged", True)
        ]
        assert (await submit_job(app, JobRequest(workflow_id="flow"))).version == 1
        assert (await submit_job(app, JobRequest(workflow_id="flow", version=2))).version == 2

    asyncio.run(work())


def test_new_jobs_get_the_version_that_was_activated():
    async def work() -> None:
        app = memory_application()
        await publish_workflows(app, [a_source(1), a_source(2)])
        result = await activate_version(app, "flow", 1)
        assert result.to_dict() == {
            "workflow_id": "flow",
            "version": 1,
            "content_hash": a_source(1).graph.content_hash,
            "previous_version": 2,
        }
        assert (await submit_job(app, JobRequest(workflow_id="flow"))).version == 1
        assert (await activate_version(app, "flow", 1)).previous_version == 1

    asyncio.run(work())


def test_the_first_activation_has_no_previous_version():
    async def work() -> None:
        app = memory_application()
        await publish_workflows(app, [a_source(1)], activate=False)
        with pytest.raises(WorkflowNotFound, match="no active version"):
            await submit_job(app, JobRequest(workflow_id="flow"))
        assert (await activate_version(app, "flow", 1)).previous_version is None
        assert (await submit_job(app, JobRequest(workflow_id="flow"))).version == 1

    asyncio.run(work())


@pytest.mark.parametrize(
    ("workflow_id", "version", "text"), [("flow", 3, "its versions are 2 and 1"), ("flaw", 1, "'flow'")]
)
def test_what_is_not_published_is_not_activated(workflow_id: str, version: int, text: str):
    async def work() -> None:
        app = memory_application()
        await publish_workflows(app, [a_source(1), a_source(2)])
        with pytest.raises(WorkflowNotFound, match=text):
            await activate_version(app, workflow_id, version)
        assert (await versions(app))[2][1]

    asyncio.run(work())


# ── Validation ──


@handler("known", queue="q")
async def known() -> None: ...


HANDLERS = Registry([known])
VALID = "{name: good, nodes: {a: {handler: known}}}"
INVALID = "{name: bad, nodes: {a: {handler: knwon}}}"


def test_files_are_validated_each_once_and_one_invalid_file_hides_no_other(tmp_path: Path):
    for name, text in (("a.yaml", VALID), ("b.yml", INVALID), ("c.yaml", "{"), ("notes.txt", "no workflow")):
        (tmp_path / name).write_text(text)
    results = validate_files([tmp_path, tmp_path / "a.yaml"], HANDLERS)
    assert [result.file for result in results] == [
        str(tmp_path / name) for name in ("a.yaml", "b.yml", "c.yaml")
    ]
    assert [result.is_valid for result in results] == [True, False, False]
    assert "did you mean 'known'?" in str(results[1].to_dict())
    with pytest.raises(WorkflowInvalid) as invalid:
        to_sources(results)
    assert len(invalid.value.problems) == 2
    assert [(source.graph.workflow_id, source.file) for source in to_sources(results[:1])] == [
        ("good", str(tmp_path / "a.yaml"))
    ]


def test_a_folder_without_workflows_is_refused(tmp_path: Path):
    with pytest.raises(QueryInvalid, match=r"no \.yaml or \.yml file"):
        validate_files([tmp_path], HANDLERS)


def test_a_text_is_validated_as_a_file_is():
    assert validate_text(VALID, HANDLERS).to_dict() == {
        "file": "workflow.yaml",
        "is_valid": True,
        "problems": [],
    }
    assert not validate_text(INVALID, HANDLERS, name="x.yaml").is_valid


def test_a_missing_handler_can_be_a_warning():
    result = validate_text(
        INVALID.replace("handler", "queue: q, handler"), HANDLERS, allow_missing_handlers=True
    )
    assert result.is_valid
    assert [problem.severity for problem in result.problems] == ["warning"]
    assert to_sources([result])[0].graph.workflow_id == "bad"

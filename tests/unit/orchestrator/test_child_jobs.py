"""Child jobs that get secret inputs of their parent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.submission import JobRequest, submit_job
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.engine.status import NodeStatus
from dagmaster.sdk.handler_registry import Registry, handler
from tests.unit.application.memory_application import finished, served_application

if TYPE_CHECKING:
    from dagmaster.json_types import JsonObject
    from dagmaster.records.nodes import NodeRecord

PARENT = """
workflow_id: parent
inputs: {word: {type: string, secret: true}, box: {type: object, secret: true}}
nodes: {start: {type: workflow, workflow_id: child, inputs: {key: "%s"}}}
"""
CHILD = """
workflow_id: child
inputs: {key: {secret: true, %s}, note: {type: string, default: as always}}
nodes: {work: {handler: note, params: {key: "{{ inputs.key }}", note: "{{ inputs.note }}"}}}
"""


def started(value: str, definition: str, met: list[Any]) -> NodeRecord:
    """Return the node that started a child job, whose input has this definition, with a secret."""

    @handler("note", queue="q")
    async def note(key: Any, note: str) -> None:
        met.append((key, note))

    async def main() -> NodeRecord:
        registry = Registry([note])
        async with served_application(registry) as app:
            parent, child = (
                compile_text(text, handlers=registry).graph for text in (PARENT % value, CHILD % definition)
            )
            inputs: JsonObject = {"word": "1234", "box": {"pin": "1234"}}
            request = JobRequest(graph=parent, child_graphs=(child,), submitted_by="ada", inputs=inputs)
            job = await finished(app, (await submit_job(app, request)).job_id)
            return job.nodes["start"]

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("value", "definition"),
    [
        ("{{ inputs.word }}", "type: string, pattern: '^.{2}[0-2]'"),
        ("{{ inputs.word }}", "type: string, enum: ['1235']"),
        ("{{ inputs.word }}", "type: string, constraints: {minLength: 5}"),
        ("{{ inputs.word }}", "type: date"),
        ("x{{ inputs.word }}", "type: string, pattern: '^x9'"),
        ("{{ inputs.box }}", "type: object, properties: {pin: {type: string, pattern: '^9'}}"),
        ("{{ inputs.box }}", "type: object, constraints: {maxProperties: 0}"),
    ],
)
def test_whether_a_child_starts_does_not_depend_on_the_secret_that_it_gets(value: str, definition: str):
    met: list[Any] = []
    assert started(value, definition, met).status is NodeStatus.COMPLETED
    ((key, note),) = met
    assert ("1234" in str(key), note) == (True, "as always")


def test_a_secret_of_another_type_is_refused_without_its_value():
    node = started("{{ inputs.word }}", "type: integer", [])
    assert node.status is NodeStatus.FAILED
    assert node.error is not None
    assert node.error["kind"] == "invalid_inputs"
    assert "1234" not in str(node.error)

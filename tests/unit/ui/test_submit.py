"""The page that submits jobs: its form from the schema, what was typed, problems at their fields, and the job."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dagmaster.authoring.input_schema import inputs_schema
from dagmaster.errors import InputsInvalid, Problem
from dagmaster.ports.api_keys import Scope
from dagmaster.ui.pages.submit import (
    SubmitEntry,
    input_fields,
    locate_problems,
    read_inputs,
    submit_page,
    to_form,
    to_text,
)
from tests.unit.ui.page_client import opened_pages, text_of

INPUTS: dict[str, Any] = {
    "size": {"type": "string", "enum": ["small", "large"], "default": "small"},
    "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "How many."},
    "area": {"type": "object", "default": {"west": 1}},
    "exact": {"type": "boolean"},
    "url": {"type": "uri", "required": True},
    "password": {"type": "string", "secret": True, "default": "hidden"},
}
SCHEMA = inputs_schema(INPUTS)
WORKFLOW = json.dumps(
    {"workflow_id": "flow", "version": 1, "inputs": INPUTS, "nodes": {"a": {"handler": "h", "queue": "q"}}}
)


def test_each_input_has_a_field_of_its_type_and_required_ones_come_first():
    fields = {field.name: field for field in input_fields(SCHEMA, {"count": "x<"})}
    assert next(iter(fields)) == "url"
    assert {name: field.kind for name, field in fields.items()} == {
        "url": "text", "size": "choice", "count": "number", "area": "json", "exact": "choice", "password": "secret",
    }  # fmt: skip
    assert fields["exact"].options == ("true", "false")
    assert fields["size"].options == ("small", "large")
    assert (fields["count"].value, fields["count"].minimum, fields["count"].maximum) == ("x<", "1", "9")
    assert fields["area"].default == '{"west": 1}'
    assert fields["password"].default == "", "a secret is never shown"
    assert [field.is_required for field in fields.values()] == [True, *[False] * 5]


def test_problems_are_at_their_fields_and_others_above_the_form():
    problems = [
        Problem(message="'x' is not a whole number", path="count", hint="write 3"),
        Problem(message="missing key 'west'", path="area.box[0]"),
        Problem(message="unknown input 'sise'", path="sise"),
    ]
    page = submit_page(SubmitEntry(workflow_id="flow"), SCHEMA, [], [], problems=problems)
    fields = {field.name: field.problems for field in page.fields if field.problems}
    assert fields == {"count": ("'x' is not a whole number\nwrite 3",), "area": ("missing key 'west'",)}
    assert [problem.splitlines()[0] for problem in page.problems] == ["error: unknown input 'sise'"]


def test_an_empty_field_is_an_input_that_is_left_out():
    assert read_inputs(SubmitEntry(values={"count": "3", "size": "", "url": "  "})) == ({}, {"count": "3"})
    assert read_inputs(SubmitEntry(is_text=True, text="  ")) == ({}, {})


def test_a_text_may_be_yaml_or_json_and_problems_have_their_lines():
    assert read_inputs(SubmitEntry(is_text=True, text="count: 3 # three\n"))[0] == {"count": 3}
    assert read_inputs(SubmitEntry(is_text=True, text='{"count": 3}'))[0] == {"count": 3}
    with pytest.raises(InputsInvalid) as caught:
        read_inputs(SubmitEntry(is_text=True, text="a: 1\nb: [\n"))
    assert caught.value.problems[0].line == 2
    with pytest.raises(InputsInvalid, match="the inputs are a mapping"):
        read_inputs(SubmitEntry(is_text=True, text="- 1"))
    entry = SubmitEntry(is_text=True, text="url: x\ncount: many\n")
    (located,) = locate_problems(entry, [Problem(message="m", path="count")])
    assert located.line == 2


def test_inputs_change_between_form_and_text_without_a_loss():
    typed = SubmitEntry(
        values={"count": "4", "area": '{"west": 2}', "url": "file:///x", "exact": "true", "size": ""}
    )
    text = to_text(typed, SCHEMA)
    assert text.is_text
    assert read_inputs(text)[0] == {
        "url": "file:///x", "size": "small", "count": 4, "area": {"west": 2}, "exact": True, "password": "hidden",
    }  # fmt: skip
    values = to_form(text).values
    assert {name: json.loads(values[name]) for name in ("count", "area", "exact")} == {
        "count": 4,
        "area": {"west": 2},
        "exact": True,
    }
    assert values["url"] == "file:///x"


def test_a_job_is_submitted_once_for_its_key_and_bad_input_keeps_what_was_typed():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish(WORKFLOW)
            page = await pages.get("/ui/submit")
            assert 'value="flow"' in page.text
            form = (await pages.get("/ui/submit?workflow_id=flow")).text
            assert 'type="password"' in form
            assert "Secret: no page shows it again, and tasks alone get it." in text_of(form)
            assert "hidden" not in text_of(form)
            typed = {
                "workflow_id": "flow",
                "mode": "form",
                "input.count": "many",
                "name": "<my job>",
                "priority": "7",
            }
            answer = await pages.post("/ui/submit", {**typed, "action": "submit"})
            assert answer.status_code == 422
            assert "missing input &#39;url&#39;" in answer.text
            assert "is not a whole number" in answer.text
            assert 'value="many"' in answer.text
            assert "&lt;my job&gt;" in answer.text
            right = {**typed, "input.count": "2", "input.url": "file:///x", "idempotency_key": "k"}
            assert (
                "The inputs are valid" in (await pages.post("/ui/submit", {**right, "action": "check"})).text
            )
            first = await pages.post("/ui/submit", {**right, "action": "submit"})
            second = await pages.post("/ui/submit", {**right, "action": "submit"})
            assert first.status_code == 303
            assert first.headers["location"] == second.headers["location"]
            assert first.headers["location"].startswith("/ui/jobs/")
            other = await pages.post("/ui/submit", {**right, "input.count": "3", "action": "submit"})
            assert other.status_code == 409
            assert "use a new key for a new job" in other.text

    asyncio.run(main())


def test_text_and_form_are_exchanged_by_a_button_and_a_wrong_text_stays():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish(WORKFLOW)
            fields = {"workflow_id": "flow", "input.count": "5"}
            text = (await pages.post("/ui/submit", {**fields, "mode": "form", "action": "text"})).text
            assert "count: 5" in text
            wrong = {"workflow_id": "flow", "mode": "text", "text": "count: [\r\n", "action": "form"}
            answer = await pages.post("/ui/submit", wrong)
            assert answer.status_code == 422
            assert "count: [" in answer.text
            assert "not valid YAML" in answer.text
            assert (await pages.post("/ui/submit", {**fields, "priority": "high"})).status_code == 422
            assert (await pages.get("/ui/submit?workflow_id=flaw")).status_code == 404
            offered = (await pages.get("/ui/submit/completions?workflow_id=flow")).json()["items"]
            assert {"label": "large", "kind": "value", "after": "size", "detail": "size"} in offered
            await pages.log_in(Scope.READ)
            assert (await pages.get("/ui/submit")).status_code == 403

    asyncio.run(main())

"""The editor of workflows: problems as the command line has them, a graph of any draft, edits, versions."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from dagmaster.application.commands.validation import validate_text
from dagmaster.application.queries.workflows import workflow_detail
from dagmaster.authoring.node_edits import add_node, connect_nodes
from dagmaster.http.compiler_threads import CompilerThreads
from dagmaster.ports.api_keys import Scope
from dagmaster.sdk.handler_definitions import PublishedHandlers
from dagmaster.sdk.handler_registry import Registry
from dagmaster.ui.pages.editor import KINDS, NEW, definition_text, draft_document, draw_draft, new_node
from tests.unit.ui.page_client import opened_pages

FLOW = """\
workflow_id: flow   # a comment
version: 1
nodes:
  a: {handler: h, queue: q}
"""


def test_a_draft_with_problems_still_has_its_graph():
    text = FLOW + "  b: {next: c}\n  c: {type: nothing, depends_on: [a, nowhere]}\n"
    document = draft_document(text, validate_text(text, Registry([]), allow_missing_handlers=True))
    assert not document["is_valid"]
    assert [node["node_id"] for node in document["graph"]["nodes"]] == ["a", "b", "c"]
    assert [(edge["source"], edge["target"]) for edge in document["graph"]["edges"]] == [
        ("b", "c"),
        ("a", "c"),
    ]


def test_a_text_that_cannot_be_read_has_problems_and_no_graph():
    document = draft_document("nodes: [", validate_text("nodes: [", Registry([])))
    assert document["graph"] is None
    assert document["problems"][0]["line"] == 1


def test_a_cycle_is_drawn_without_the_edge_that_closes_it():
    nodes = {key: {"handler": "h"} for key in "abc"}
    graph = draw_draft(nodes, [("a", "b"), ("b", "c"), ("c", "a")])
    assert len(graph["edges"]) == 2
    assert draw_draft(nodes, [])["content_hash"] != graph["content_hash"]


def test_a_draft_has_the_groups_that_its_nodes_are_in():
    nodes = {
        "g": {"type": "group"},
        "a": {"handler": "h", "group": "g"},
        "b": {"handler": "h", "group": "missing"},
    }
    graph = draw_draft(nodes, [])
    assert [node["group"] for node in graph["nodes"]] == [None, "g", None]
    assert draw_draft({**nodes, "a": {"handler": "h"}}, [])["content_hash"] != graph["content_hash"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_node_of_every_kind_can_be_added(kind):
    text = connect_nodes(add_node(NEW, "added", new_node(kind, "")), "second", "added")
    result = validate_text(text, Registry([]), allow_missing_handlers=True)
    assert [str(problem) for problem in result.problems if problem.severity == "error"] == []


def test_the_text_of_a_new_workflow_is_valid():
    assert validate_text(NEW, Registry([]), allow_missing_handlers=True).is_valid


def test_a_stored_definition_is_shown_in_the_order_in_which_people_write():
    result = validate_text(NEW, Registry([]), allow_missing_handlers=True)
    assert result.graph is not None
    text = definition_text(dict(result.graph.definition))
    assert [line for line in text.splitlines() if line[0] != " "] == [
        "workflow_id: my_workflow", "name: My workflow", "version: 1", "inputs:", "nodes:",
    ]  # fmt: skip
    again = validate_text(text, Registry([]), allow_missing_handlers=True)
    assert again.graph is not None
    assert again.graph.content_hash == result.graph.content_hash


def test_problems_are_the_same_as_at_the_command_line():
    async def main() -> None:
        async with opened_pages() as pages:
            text = FLOW + "  b: {handler: h, dependson: [a]}\n"
            answer = (await pages.post("/ui/editor/check", {"text": text.replace("\n", "\r\n")})).json()
            expected = validate_text(text, PublishedHandlers([], None), allow_missing_handlers=True)
            assert answer["problems"] == [problem.to_dict() for problem in expected.problems]

    asyncio.run(main())


def test_nodes_are_edited_in_the_text_which_keeps_its_comments():
    async def main() -> None:
        async with opened_pages() as pages:

            async def edit(text: str, **fields: str) -> dict[str, object]:
                answer: dict[str, object] = (
                    await pages.post("/ui/editor/edit", {"text": text, **fields})
                ).json()
                return answer

            added = await edit(FLOW, edit="add", node_id="b", kind="task", handler="h", source="a")
            assert added["text"] == FLOW + "  b:\n    handler: h\n    queue: default\n    depends_on: a\n"
            assert added["edges"] == [["a", "b"]]
            renamed = await edit(str(added["text"]), edit="rename", node_id="a", new_id="z")
            assert "depends_on: z" in str(renamed["text"])
            described = await edit(FLOW, edit="set", node_id="a", key="description", value="It reads.")
            assert '"It reads."' in str(described["text"]) or "It reads." in str(described["text"])
            assert "there is no node 'x'" in str((await edit(FLOW, edit="remove", node_id="x"))["error"])
            assert "cannot be read" in str((await edit("nodes: [", edit="remove", node_id="x"))["error"])
            assert "edit: add" in str((await edit(FLOW, edit="explode"))["error"])

    asyncio.run(main())


def test_edits_run_where_they_can_be_killed(monkeypatch):
    checked = []

    async def check(self, function, /, **arguments):
        checked.append(function.__name__)
        return json.loads(json.dumps(function(**json.loads(json.dumps(arguments)))))

    async def main() -> None:
        async with opened_pages() as pages:
            monkeypatch.setattr(CompilerThreads, "check", check)
            monkeypatch.delattr(CompilerThreads, "run")
            edits = {"edit": "add", "node_id": "b", "kind": "task", "handler": "h", "source": "a"}
            added = await pages.post("/ui/editor/edit", {"text": FLOW, **edits})
            assert added.status_code == 200
            assert (await pages.post("/ui/editor/edit", {"text": FLOW, "edit": "explode"})).status_code == 422
            assert checked == ["edit_draft", "check_draft", "edit_draft"]

    asyncio.run(main())


def test_a_text_does_not_overwrite_what_another_person_published_since_it_was_opened():
    async def main() -> None:
        async with opened_pages() as pages:
            form = {"text": FLOW, "action": "publish", "next_version": "yes", "activate": "yes"}
            await pages.post("/ui/editor", form)
            opened = (await pages.get("/ui/editor?workflow_id=flow")).text
            state = state_in(opened)
            mine = {
                **form,
                "workflow_id": "flow",
                "state": state,
                "text": FLOW + "  b: {handler: h, queue: q}\n",
            }
            theirs = {**mine, "text": FLOW + "  c: {handler: h, queue: q}\n"}
            assert (await pages.post("/ui/editor", theirs)).status_code == 303
            refused = await pages.post("/ui/editor", mine)
            assert refused.status_code == 412
            assert "has v1 and v2, and v2 is active" in refused.text
            assert "b: {handler" in refused.text, "the text stays"
            versions = (await workflow_detail(pages.api.application, "flow")).versions
            assert len(versions) == 2
            # Who has seen that may insist.
            insists = await pages.post("/ui/editor", {**mine, "state": state_in(refused.text)})
            assert insists.headers["location"] == "/ui/editor?workflow_id=flow&version=3"

    asyncio.run(main())


def state_in(page: str) -> str:
    match = re.search(r'name="state" value="([0-9a-f]{32})"', page)
    assert match is not None
    return match.group(1)


def test_a_text_is_published_as_the_next_version():
    async def main() -> None:
        async with opened_pages() as pages:
            form = {"text": FLOW, "action": "publish", "next_version": "yes", "activate": "yes"}
            first = await pages.post("/ui/editor", form)
            assert first.headers["location"] == "/ui/editor?workflow_id=flow&version=1"
            changed = {**form, "text": FLOW + "  b: {handler: h, queue: q}\n"}
            second = await pages.post("/ui/editor", changed)
            assert second.headers["location"] == "/ui/editor?workflow_id=flow&version=2"
            shown = (await pages.get("/ui/editor?workflow_id=flow")).text
            assert "version: 2" in shown
            again = {**form, "text": FLOW + "  c: {handler: h, queue: q}\n", "next_version": ""}
            conflict = await pages.post("/ui/editor", again)
            assert conflict.status_code == 409
            assert "a comment" in conflict.text, "the text stays"
            wrong = await pages.post("/ui/editor", {**form, "text": "nodes: ["})
            assert wrong.status_code == 422
            await pages.log_in(Scope.READ)
            assert (await pages.post("/ui/editor", form)).status_code == 403
            assert "needs a key with the scope admin" in (await pages.get("/ui/editor")).text

    asyncio.run(main())

"""Published workflows and their versions."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.application.queries.workflows import list_versions, list_workflows, workflow_detail
from dagmaster.errors import WorkflowNotFound
from dagmaster.records.workflows import VersionRecord, WorkflowRecord
from tests.unit.application.world import FLOW, FakeReadStore, an_application, run


def a_version(version: int, *, is_active: bool = False) -> VersionRecord:
    return VersionRecord(
        workflow_id="flow",
        version=version,
        content_hash="x",
        is_active=is_active,
        published_at=100.0,
    )


def a_workflow(workflow_id: str) -> WorkflowRecord:
    return WorkflowRecord(
        workflow_id=workflow_id,
        tenant="default",
        name=None,
        tags=(),
        versions_total=2,
        newest_version=2,
        active_version=1,
        published_at=100.0,
        read_at=200.0,
    )


def test_workflows_are_paged_by_id():
    app = an_application(FakeReadStore(workflow_records=[a_workflow(name) for name in ("a", "b", "c")]))
    first = run(list_workflows(app, limit=2))
    assert [view.workflow_id for view in first.items] == ["a", "b"]
    assert [
        view.workflow_id for view in run(list_workflows(app, cursor=first.next_cursor, limit=2)).items
    ] == ["c"]
    assert first.items[0].to_dict() == {
        "workflow_id": "a", "tenant": "default", "name": None, "tags": [], "versions_total": 2, "newest_version": 2, "active_version": 1,
        "published_at": "1970-01-01T00:01:40Z",
    }  # fmt: skip


def test_the_active_version_is_shown_unless_one_is_named():
    app = an_application(FakeReadStore(version_records=[a_version(1, is_active=True), a_version(2)]))
    view = run(workflow_detail(app, "flow"))
    assert (view.version, view.is_active, view.definition) == (1, True, FLOW)
    assert [each.version for each in view.versions] == [1, 2]
    assert run(workflow_detail(app, "flow", 2)).version == 2
    with pytest.raises(WorkflowNotFound, match="its versions are 2 and 1"):
        run(workflow_detail(app, "flow", 3))


def test_defaults_of_secret_inputs_are_redacted():
    stored = {
        **FLOW,
        "inputs": {
            "token": {"type": "string", "secret": True, "default": "hunter2"},
            "pin": {"type": "integer", "secret": True, "default": 1234},
            "key": {"type": "string", "secret": True},
            "year": {"type": "integer", "default": 2026},
        },
    }
    app = an_application(FakeReadStore(version_records=[a_version(1)], definitions={"x": stored}))
    view = run(workflow_detail(app, "flow"))
    inputs: Any = view.to_dict()["definition"]["inputs"]
    assert {name: declared.get("default") for name, declared in inputs.items()} == {
        "token": "***", "pin": "***", "key": None, "year": 2026,
    }  # fmt: skip
    assert stored["inputs"]["token"]["default"] == "hunter2", "the stored definition is not changed"


def test_where_none_is_active_the_newest_is_shown():
    app = an_application(FakeReadStore(version_records=[a_version(1), a_version(2)]))
    assert run(workflow_detail(app, "flow")).version == 2


def test_versions_are_paged_oldest_first():
    app = an_application(FakeReadStore(version_records=[a_version(number) for number in (1, 2, 3)]))
    first = run(list_versions(app, "flow", limit=2))
    second = run(list_versions(app, "flow", limit=2, cursor=first.next_cursor))
    assert [view.version for view in (*first.items, *second.items)] == [1, 2, 3]
    assert second.next_cursor is None


def test_a_wrong_name_gets_the_nearest():
    app = an_application(FakeReadStore(workflow_records=[a_workflow("flow")]))
    with pytest.raises(WorkflowNotFound, match="Did you mean 'flow'"):
        run(list_versions(app, "flov"))
    with pytest.raises(WorkflowNotFound, match="no workflow 'flow' is published"):
        run(list_versions(an_application(FakeReadStore()), "flow"))

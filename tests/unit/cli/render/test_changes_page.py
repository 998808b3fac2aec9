"""The page of `dagmaster changes`."""

from __future__ import annotations

from typing import Any

from dagmaster.application.views import AuditRecord
from dagmaster.cli.render.changes_page import changes_page
from tests.unit.cli.render.drawing import drawn


def an_entry(**fields: Any) -> AuditRecord:
    entry: dict[str, Any] = {
        "entry_id": "1", "at": 1_767_225_600.0, "actor": "ada@example.com", "key_id": "115601869557067777",
        "action": "worker.deregister", "object_kind": "job", "object_id": "115601869557067776", "request_id": None,
        "details": {"node_id": "tiles__47", "host": "worker-7.example.com"},
    }  # fmt: skip
    return AuditRecord(**{**entry, **fields})


def test_a_change_is_a_line_of_80_columns_with_its_details_below():
    header, line, details, other = drawn(
        *changes_page([an_entry(), an_entry(actor="bo", key_id=None, details={})]), width=80
    ).splitlines()
    assert header.split() == ["at", "actor", "action", "object"]
    assert line.endswith("ada@example.com  worker.deregister  115601869557067776")
    assert details == "    key: 115601869557067777, node_id: tiles__47, host: worker-7.example.com"
    assert other.index("worker.deregister") == line.index("worker.deregister") == header.index("action")
    assert max(map(len, (line, details, other))) <= 80

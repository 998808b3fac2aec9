"""How a worker counts what it reported."""

from __future__ import annotations

import json

import pytest

from dagmaster.ports.task_ledger import TaskReport
from dagmaster.worker.report_delivery import counter_of


@pytest.mark.parametrize(
    ("status", "error", "counted"),
    [
        ("COMPLETED", None, "completed"),
        ("RELEASED", None, "released"),
        ("FAILED", {"kind": "error", "message": "no"}, "failed"),
        ("FAILED", {"kind": "cancelled", "message": "the task was asked to stop"}, "stopped"),
    ],
)
def test_what_stopped_on_request_has_not_failed(status, error, counted):
    report = TaskReport("1", 1, status, error=None if error is None else json.dumps(error))
    assert counter_of(report) == counted

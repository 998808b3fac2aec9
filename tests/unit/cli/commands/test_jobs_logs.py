"""`jobs logs`: the lines of a job and its child jobs, and the traceback of a node that failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dagmaster.application.views import LogView
from dagmaster.cli.commands.jobs_logs import LogPrinter, last_traceback
from dagmaster.client.system import LocalSystem
from dagmaster.engine.status import NodeStatus
from dagmaster.records.nodes import NodeRecord
from tests.unit.application.world import SECRET, FakeReadStore, a_record, an_application, run

if TYPE_CHECKING:
    import pytest


def test_the_traceback_of_the_last_attempt_is_returned_without_secrets():
    failed = NodeRecord(
        node_id="fetch",
        status=NodeStatus.FAILED,
        job_id="7",
        attempt=2,
        error={"traceback": f"at {SECRET}\n"},
    )
    system = LocalSystem(an_application(FakeReadStore([a_record()], node_records=[failed])))
    assert run(last_traceback(system, "7", "fetch", None)) == (2, "at ***")
    assert run(last_traceback(system, "7", "fetch", 1)) is None


def a_chunk(text: str, *, job_id: str = "7", node_id: str = "fetch", attempt: int = 1) -> LogView:
    return LogView(job_id=job_id, node_id=node_id, attempt=attempt, at=1.0, text=text, cursor="c")


def test_a_line_of_a_child_job_begins_with_the_path_of_its_node(capsys: pytest.CaptureFixture[str]):
    printer = LogPrinter(is_prefixed=True, as_json=False)
    printer.print("fetch", a_chunk("one\ntw"))
    printer.print("sub/fetch", a_chunk("of a child", job_id="8"))
    # The child job of the second attempt: not the rest of the line of the first.
    printer.print("sub/fetch", a_chunk("of the next\n", job_id="9"))
    printer.print("sub/fetch", a_chunk("again\n", job_id="9", attempt=2))
    assert capsys.readouterr().out.splitlines() == [
        "fetch │ one",
        "fetch │ tw",
        "sub/fetch │ of a child",
        "sub/fetch │ of the next",
        "sub/fetch#2 │ again",
    ]


def test_of_one_node_only_lines_of_its_child_job_have_a_path(capsys: pytest.CaptureFixture[str]):
    printer = LogPrinter(is_prefixed=False, as_json=False)
    printer.print("sub", a_chunk("own\n", node_id="sub"))
    printer.print("sub/fetch", a_chunk("of a child\n", job_id="8"))
    assert capsys.readouterr().out == "own\nsub/fetch │ of a child\n"


def test_a_line_of_json_names_the_job_the_node_and_its_path(capsys: pytest.CaptureFixture[str]):
    LogPrinter(is_prefixed=True, as_json=True).print("sub/fetch", a_chunk("x\n", job_id="8"))
    document = json.loads(capsys.readouterr().out)
    assert (document["job_id"], document["node_id"], document["node_path"]) == ("8", "fetch", "sub/fetch")

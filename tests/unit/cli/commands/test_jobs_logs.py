"""`jobs logs`: the traceback of a node that failed."""

from __future__ import annotations

from dagmaster.cli.commands.jobs_logs import last_traceback
from dagmaster.cli.system import LocalSystem
from dagmaster.engine.status import NodeStatus
from dagmaster.ports.read_store import NodeRecord
from tests.unit.application.world import SECRET, FakeReadStore, a_record, an_application, run


def test_the_traceback_of_the_last_attempt_is_returned_without_secrets():
    failed = NodeRecord(
        node_id="fetch", status=NodeStatus.FAILED, job_id="7", attempt=2, error={"traceback": f"at {SECRET}\n"}
    )
    system = LocalSystem(an_application(FakeReadStore([a_record()], node_records=[failed])))
    assert run(last_traceback(system, "7", "fetch", None)) == (2, "at ***")
    assert run(last_traceback(system, "7", "fetch", 1)) is None

"""Pages of jobs, nodes, explanations and the fleet: their content, and that they fit the screen."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from dagmaster.application.diagnosis import why_job, why_node
from dagmaster.application.queries.fleet import fleet
from dagmaster.application.queries.job_detail import snapshot_view
from dagmaster.application.queries.jobs import list_jobs
from dagmaster.application.queries.nodes import node_detail
from dagmaster.application.queries.workflows import workflow_detail
from dagmaster.cli.render.fleet_page import fleet_page
from dagmaster.cli.render.job_page import job_page
from dagmaster.cli.render.jobs_table import jobs_table
from dagmaster.cli.render.node_page import node_page
from dagmaster.cli.render.text import local_time
from dagmaster.cli.render.why_page import job_why_page, node_why_page
from dagmaster.cli.render.workflow_page import workflow_page
from dagmaster.engine.status import AttemptStatus, JobStatus, NodeStatus
from dagmaster.records.fleet import DrainRecord, FleetRecord, LeftTasksRecord, TaskNodeRecord
from dagmaster.records.nodes import ChildCounts, NodeRecord, NodeValues, WaitInfo
from dagmaster.records.tasks import AttemptRecord
from tests.unit.application.queries.test_fleet import A_QUEUE, a_worker
from tests.unit.application.queries.test_workflows import a_version
from tests.unit.application.test_diagnosis import in_queue
from tests.unit.application.world import (
    ASKED,
    DONE,
    FLOW,
    SECRET,
    TILES,
    FakeReadStore,
    a_record,
    a_snapshot,
    an_application,
    run,
)
from tests.unit.cli.render.drawing import drawn


def page(*nodes: NodeRecord, result: Any = None, failed: Any = None, width: int = 80, **changes: Any) -> str:
    view = snapshot_view(a_snapshot(*nodes, **changes), result=result)
    return drawn(*job_page(view, failed or {}), width=width)


# ── A job ──


def test_a_page_has_the_nodes_their_errors_and_the_result():
    error: dict[str, Any] = {"kind": "x", "message": "no network"}
    failed = NodeRecord(node_id="fetch", status=NodeStatus.FAILED, attempt=2, error=error)
    ended: dict[str, Any] = {
        "status": JobStatus.FAILED,
        "finished_at": 109.0,
        "error": {"message": "node fetch failed: no network"},
    }
    text = page(failed, result={"a": 1}, **ended)
    assert "✘ failed  1/4 nodes  8.0 s" in text
    assert "error      node fetch failed: no network" in text
    assert "✘ fetch       echo  attempt 2\n    no network\n├─ · tiles    fan_out" in text
    assert text.endswith('result\n  {\n    "a": 1\n  }')


def test_a_page_shows_what_the_job_waits_for():
    text = page(DONE, ASKED, around={"waits": {"release": WaitInfo(103.0, "Release?")}})
    assert "waits for approval: Release?" in text
    assert "dagmaster jobs approve 7 release" in text


def test_a_task_that_waits_inside_a_worker_is_not_shown_as_running():
    fetch = NodeRecord(node_id="fetch", status=NodeStatus.CLAIMED, queue="light", worker_id="3")
    assert "▸ fetch       echo\n    claimed by a worker" in page(fetch)


def test_the_duration_is_that_of_the_last_run():
    text = page(DONE, status=JobStatus.COMPLETED, run=2, resumed_at=142.0, finished_at=145.0, read_at=500.0)
    assert "3.0 s in run 2" in text


def test_secret_inputs_are_never_shown():
    text = page(DONE, result={"a": SECRET})
    assert SECRET not in text
    assert '"token": "***"' in text


def test_a_result_of_another_job_is_marked_and_that_job_is_named():
    text = page(NodeRecord(node_id="fetch", status=NodeStatus.COMPLETED, finished_at=102.0), resumed_from="5")
    assert "✔ fetch       echo, reused" in text
    assert "resumed from job 5" in text


def test_failed_children_are_shown_below_their_fan_out():
    child = NodeRecord(node_id="tiles__3", status=NodeStatus.FAILED, error={"message": "no data"})
    snapshot = a_snapshot(DONE, TILES, around={"children": {"tiles": ChildCounts({NodeStatus.FAILED: 1})}})
    views = {"tiles": [snapshot.node_view(child)]}
    assert "│      ✘ tiles__3: no data" in drawn(*job_page(snapshot_view(snapshot), views))


def test_a_page_fits_eighty_columns():
    counts = ChildCounts(dict.fromkeys(NodeStatus, 2))
    around = {"waits": {"release": WaitInfo(103.0, "m" * 300)}, "children": {"tiles": counts}}
    text = page(DONE, ASKED, TILES, around=around, result="r" * 500, submitted_by="a" * 64, name="n" * 128)
    assert max(map(len, text.splitlines())) <= 80


# ── Lists, nodes ──


def test_a_list_has_a_column_of_names_only_if_a_job_has_a_name():
    unnamed, named = a_record(), a_record(job_id="8", name="nightly", is_cancelling=True)
    jobs = run(list_jobs(an_application(FakeReadStore([unnamed])))).items
    assert drawn(jobs_table(jobs)).splitlines() == [
        "job  status     workflow  nodes    took   age  by",
        "7    ▶ running  flow v2     1/4  10.0 s  11 s  ada",
    ]
    text = drawn(jobs_table(run(list_jobs(an_application(FakeReadStore([unnamed, named])))).items))
    assert "nightly" in text
    assert "◌ cancelling" in text


def test_a_narrow_list_cuts_names_and_no_number_or_status():
    record = a_record(job_id="116355178019844096", workflow_id="w" * 40, name="n" * 40, submitted_by="s" * 40)
    line = drawn(jobs_table(run(list_jobs(an_application(FakeReadStore([record])))).items)).splitlines()[1]
    assert len(line) <= 80
    for text in ("116355178019844096", "▶ running", "1/4", "10.0 s", "11 s"):
        assert text in line


def test_names_that_look_like_markup_or_an_emoji_are_printed_as_they_are():
    record = a_record(name="[/x] :warning:", submitted_by="[red]ada", correlation_id=":x:")
    listed = drawn(jobs_table(run(list_jobs(an_application(FakeReadStore([record])))).items))
    shown = page(name=record.name, submitted_by=record.submitted_by, correlation_id=record.correlation_id)
    for text in (listed, shown):
        assert "[/x] :warning:" in text
        assert "[red]ada" in text
    assert "correlation :x:" in shown


def test_a_node_page_has_attempts_errors_and_values():
    attempt = AttemptRecord(
        job_id="7", node_id="fetch", attempt=1, task_id="5", status=AttemptStatus.FAILED, queue="q", worker_id="3", worker="h:1",
        dispatched_at=100.0, claimed_at=100.5, started_at=101.0, finished_at=103.5, error={"message": "no"},
    )  # fmt: skip
    failed = replace(DONE, status=NodeStatus.FAILED, error={"message": "no", "type": "ValueError", "code": 7})
    store = FakeReadStore(
        [a_record()],
        node_records=[failed],
        attempt_records=[attempt],
        values={"fetch": NodeValues(output={"a": 1})},
    )
    text = drawn(*node_page(run(node_detail(an_application(store), "7", "fetch"))))
    assert "✘ failed" in text
    assert "2.5 s" in text
    assert "worker h:1  no" in text
    assert "ValueError: no\n  code: 7" in text
    assert '"a": 1' in text


# ── Explanations ──


def test_an_explanation_begins_with_the_reason_and_the_command():
    app = an_application(FakeReadStore([a_record(deadline_at=201.0)], facts=in_queue()))
    lines = drawn(*job_why_page(run(why_job(app, "7")))).splitlines()
    assert lines[0] == "▶ running  flow v2  job 7  10.0 s  deadline in 1 min"
    assert lines[2].startswith("fetch ")
    assert "no live worker serves this queue" in lines[2]
    assert lines[3] == "  dagmaster worker --queue default"


def test_a_chain_has_its_root_cause_last():
    app = an_application(FakeReadStore([a_record()], facts=in_queue()))
    text = drawn(*node_why_page(run(why_node(app, "7", "after"))))
    after, release, fetch, *_ = text.splitlines()[2:]
    assert after.startswith("· after")
    assert release.startswith("└ · release")
    assert fetch.startswith("  └ ▷ fetch")
    assert text.splitlines()[-1] == "  dagmaster worker --queue default"


def test_an_explanation_fits_eighty_columns_and_counts_the_other_nodes():
    view = run(why_job(an_application(FakeReadStore([a_record()], facts=in_queue())), "7"))
    groups = tuple(
        replace(view.groups[0], subject=f"a_node_with_a_rather_long_name_{n}", sentence="why? " * 40)
        for n in range(39)
    )
    text = drawn(*job_why_page(replace(view, groups=groups)))
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[-1] == "… 19 more nodes: --json shows all"


# ── The fleet ──


def fleet_text(*workers: Any, unowned: int = 0, queues: Any = (A_QUEUE,), width: int = 120) -> str:
    record = FleetRecord(orchestrators=(), workers=workers, queues=queues, unowned_jobs=unowned)
    return drawn(*fleet_page(run(fleet(an_application(FakeReadStore(fleet_record=record))))), width=width)


def test_a_fleet_that_was_read_before_says_so_first():
    record = FleetRecord(orchestrators=(), workers=(), queues=(), unowned_jobs=0, read_at=1_000_000.0)
    first = drawn(*fleet_page(record)).splitlines()[0]
    assert first == f"as of {local_time(1_000_000.0)}, the database does not answer"


def test_a_service_that_meets_a_full_disk_says_so():
    text = fleet_text(a_worker("heavy", counters={"database_condition": "database_disk_full"}), width=160)
    assert "the disk of the database is full" in text


LEFT = LeftTasksRecord(tasks=12, not_reclaimed=0, now={"finished": 3})


def test_a_queue_that_no_live_worker_serves_is_marked():
    gone = a_worker(
        "light", is_alive=False, has_died=True, silent_seconds=40.0, stopped_seconds=30.0, left=LEFT
    )
    text = fleet_text(a_worker("heavy"), gone, unowned=2)
    assert text.count("✘ no live worker serves light: dagmaster worker --queue light") == 1
    assert "none is alive; no job advances" in text
    assert "2 open jobs have no owner" in text
    assert "✘ worker h:9  died 40 s ago  left 12 tasks: 3 finished" in text
    assert " h:9   1 min    1 s ago   2/4           9     7       0  heavy" in text


def test_a_dead_worker_names_the_tasks_that_crashed_since():
    left = replace(LEFT, crashed=(TaskNodeRecord(job_id="7", node_id="boom"),))
    text = fleet_text(
        a_worker(is_alive=False, has_died=True, silent_seconds=40.0, stopped_seconds=30.0, left=left)
    )
    assert "left 12 tasks: 3 finished; crashed since: node boom of job 7" in text


def test_a_worker_that_drains_is_marked():
    text = fleet_text(a_worker("light", is_draining=True))
    assert "h:9 draining" in text
    assert "✘ no worker claims from light: the only live worker is draining" in text
    drain = DrainRecord(requested_seconds=3.0, is_seen=True)
    text = fleet_text(a_worker("light", is_draining=True, drain=drain, running=0, prefetched=0))
    assert "h:9 drained" in text
    assert "is draining: dagmaster fleet undrain 5" in text


def test_a_worker_that_stopped_did_not_die():
    left = replace(LEFT, not_reclaimed=1)
    assert "■ worker h:9  stopped 39 s ago" in fleet_text(
        a_worker(is_alive=False, silent_seconds=40.0, stopped_seconds=39.0, left=left)
    )


def test_services_that_stopped_and_left_nothing_are_counted_not_listed():
    stopped = [a_worker(is_alive=False, silent_seconds=40.0, stopped_seconds=39.0) for _ in range(2)]
    text = fleet_text(a_worker(), *stopped)
    assert "stopped 39 s ago" not in text
    assert (
        "2 services stopped, and nothing waits for them (each `dagmaster run` has two): `--json` lists them"
        in text
    )


def test_what_speaks_http_has_no_version_that_differs():
    assert "several versions" not in fleet_text(a_worker(version="0.2.0"), a_worker(version="http"))
    text = fleet_text(a_worker(version="0.2.0"), a_worker(version="0.3.0"), a_worker(version="http"))
    assert "services run several versions: 0.2.0, 0.3.0\n" in text


def test_a_queue_that_waits_for_processes_has_a_note():
    note = "light waits although there are free slots: the worker's 6 processes"
    assert note not in fleet_text(a_worker("light"))
    assert note in fleet_text(a_worker("light", processes_busy=6))


def test_workers_that_died_come_before_those_that_stopped():
    left = replace(LEFT, not_reclaimed=1)
    stopped = [
        a_worker(is_alive=False, silent_seconds=40.0, stopped_seconds=39.0, left=left) for _ in range(9)
    ]
    dead = a_worker(is_alive=False, has_died=True, silent_seconds=900.0, stopped_seconds=890.0)
    assert "died 15 min ago" in fleet_text(*stopped, dead)


def test_pages_can_be_printed_as_json():
    view = snapshot_view(a_snapshot(DONE))
    assert json.loads(json.dumps(view.to_dict()))["nodes"]["fetch"]["status"] == "COMPLETED"


def test_a_workflow_is_drawn_without_the_defaults_of_secret_inputs():
    pin = {"type": "integer", "secret": True, "default": 1234}
    definitions = {"x": {**FLOW, "inputs": {"pin": pin, "year": {"type": "integer", "default": 2026}}}}
    app = an_application(FakeReadStore(version_records=[a_version(1)], definitions=definitions))
    lines = drawn(*workflow_page(run(workflow_detail(app, "flow")))).splitlines()
    assert [line.split() for line in lines if "integer" in line] == [
        ["pin", "integer", "secret"],
        ["year", "integer", "default", "2026"],
    ]


def test_a_worker_that_ends_itself_shows_why():
    text = fleet_text(a_worker("light", is_draining=True, counters={"recycling": "unstoppable"}))
    assert "draining could not stop a handler, restarts" in " ".join(text.split())

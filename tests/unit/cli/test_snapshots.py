"""A job as it stands: its status, what it waits for, and what programs are told."""

from __future__ import annotations

import json

from dagmaster.cli.commands.fleet import fleet_document, fleet_page
from dagmaster.cli.commands.jobs_show import page
from dagmaster.cli.commands.jobs_watch import Rates, alike_together, rest_after
from dagmaster.cli.snapshots import blocking_reasons, job_view, to_dict, view_of
from dagmaster.engine.status import NodeStatus
from dagmaster.ports.audit_events import StoredEvent
from dagmaster.store.postgres.legacy_fleet import Fleet
from dagmaster.store.postgres.legacy_read_store import (
    ChildCounts,
    FleetCounts,
    NodeRecord,
    PendingCommand,
    QueueBacklog,
    WaitInfo,
)
from tests.unit.cli.views import drawn, snapshot

DONE = NodeRecord(node_id="fetch", status="COMPLETED", attempt=1, started_at=101.0, finished_at=102.0)
ASKED = NodeRecord(node_id="release", status="WAITING")
TILES = NodeRecord(node_id="tiles", status="RUNNING", source_count=10, expanded_count=10)


def test_a_node_that_nothing_happened_to_is_pending():
    assert view_of(snapshot(), "after").status is NodeStatus.PENDING


def test_a_job_that_only_a_person_can_move_is_waiting():
    assert snapshot(DONE, ASKED).status == "WAITING"


def test_a_job_whose_fan_out_has_children_at_work_is_running():
    found = snapshot(DONE, ASKED, TILES)
    found.children["tiles"] = ChildCounts({"COMPLETED": 4, "RUNNING": 2})
    assert found.status == "RUNNING"


def test_children_are_counted_also_those_that_have_no_row_yet():
    found = snapshot(DONE, TILES)
    found.children["tiles"] = ChildCounts({"COMPLETED": 4, "FAILED": 1, "RUNNING": 2}, 103.0)
    view = job_view(found)
    assert (view.over, view.nodes) == (6, 14)
    tiles = view_of(found, "tiles")
    assert tiles.fan is not None
    assert (tiles.started, tiles.fan.completed, tiles.fan.running, tiles.fan.total) == (103.0, 4, 2, 10)


def test_a_fan_out_lasts_from_when_it_began_also_if_all_its_children_were_lost_and_began_again():
    tiles = NodeRecord(node_id="tiles", status="COMPLETED", source_count=4, started_at=101.0, finished_at=149.0)
    found = snapshot(DONE, tiles, finished_at=150.0, now=500.0)
    found.children["tiles"] = ChildCounts({"COMPLETED": 4}, 125.0)
    assert view_of(found, "tiles").started == 101.0


def test_the_time_between_two_runs_is_nobodys_work():
    tiles = NodeRecord(node_id="tiles", status="COMPLETED", source_count=4, started_at=102.0, finished_at=144.0)
    after = NodeRecord(node_id="after", status="COMPLETED", started_at=103.0, finished_at=144.0)
    found = snapshot(DONE, tiles, after, status="COMPLETED", run=2, resumed_at=142.0, finished_at=145.0, now=500.0)
    found.children["tiles"] = ChildCounts({"COMPLETED": 4}, 102.0)
    assert found.seconds == 3.0
    assert view_of(found, "tiles").started == 142.0
    assert view_of(found, "after").started is None, "when it began in this run is not stored"
    assert view_of(found, "fetch").started == 101.0, "it is of the first run, and was not touched"
    assert "3.0 s in run 2" in drawn(*page(found, None, {}))
    assert to_dict(found, None, 1)["duration_seconds"] == 3.0


def test_what_a_job_waits_for_is_a_command_to_type():
    found = snapshot(DONE, ASKED)
    assert blocking_reasons(found) == ["release waits for approval by ada → dagmaster jobs approve 7 release"]
    signalled = snapshot(DONE, NodeRecord(node_id="after", status="WAITING"))
    assert blocking_reasons(signalled) == ["after waits for signal go → dagmaster jobs signal 7 go"]


def test_a_queue_that_nobody_serves_is_named():
    found = snapshot(DONE)
    found.waits = [
        QueueBacklog("light", 3, 1.0),
        QueueBacklog("heavy", 1, 70.0, 2, 8, 7),
        QueueBacklog("fine", 9, 1.0, 1),
    ]
    assert blocking_reasons(found) == [
        "3 tasks wait in queue light: no live worker serves it → dagmaster worker --queue light",
        "1 task has waited 1 min in queue heavy: 2 workers are alive, 7 of 8 places busy",
    ]


def test_a_job_without_a_live_orchestrator_says_so():
    found = snapshot(owner_id=None, status="PENDING")
    found.alive = FleetCounts(0, 1)
    assert blocking_reasons(found) == ["the job waits for an owner: no orchestrator is alive → dagmaster orchestrator"]


def test_a_job_that_is_over_waits_for_nothing():
    assert blocking_reasons(snapshot(DONE, ASKED, status="CANCELLED", finished_at=109.0)) == []


def test_what_was_asked_of_a_job_that_is_over_waits_for_an_orchestrator():
    found = snapshot(DONE, status="FAILED", finished_at=109.0)
    found.commands, found.alive = (
        [PendingCommand("resume", "ada", 12.3), PendingCommand("approve", "", 1.0)],
        FleetCounts(0, 1),
    )
    rest = "none is alive → dagmaster orchestrator"
    assert blocking_reasons(found) == [
        f"a resume by ada waits for an orchestrator since 12 s: {rest}",
        f"an approve waits for an orchestrator since 1 s: {rest}",
    ]
    found.alive = FleetCounts(1, 1)
    assert blocking_reasons(found) == ["a resume by ada waits since 12 s to be taken up"]


def test_many_waits_are_not_all_said():
    found = snapshot(DONE)
    found.waits = [QueueBacklog(f"q{i}", 1, 1.0, 0) for i in range(50)]
    assert blocking_reasons(found)[-1] == "and 44 more"


def test_secret_inputs_are_never_shown():
    found = snapshot(DONE)
    said = drawn(*page(found, None, {})) + json.dumps(to_dict(found, None, 1))
    assert "hunter2" not in said
    assert '"token": "***"' in said


def test_a_page_has_the_nodes_their_errors_and_the_result():
    failed = NodeRecord(node_id="fetch", status="FAILED", attempt=2, error={"kind": "x", "message": "no network"})
    found = snapshot(failed, status="FAILED", finished_at=109.0, error={"message": "node fetch failed: no network"})
    said = drawn(*page(found, {"a": 1}, {}))
    assert "✘ failed  1/4 nodes  8.0 s" in said
    assert "error      node fetch failed: no network" in said
    assert "✘ fetch       echo  attempt 2\n    no network\n├─ · tiles    fan_out" in said
    assert said.endswith('result\n  {\n    "a": 1\n  }')


def test_a_result_of_another_job_is_marked_and_that_job_is_named():
    found = snapshot(NodeRecord(node_id="fetch", status="COMPLETED", finished_at=102.0), resumed_from="5")
    seen = drawn(*page(found, None, {}))
    assert "✔ fetch       echo, reused" in seen
    assert "resumed from job 5" in seen
    assert view_of(snapshot(DONE), "fetch").what == "echo"


def test_failed_children_stand_below_their_fan_out():
    found = snapshot(DONE, TILES)
    found.children["tiles"] = ChildCounts({"FAILED": 1})
    child = NodeRecord(node_id="tiles__3", status="FAILED", error={"message": "no data"})
    assert "│      ✘ tiles__3: no data" in drawn(*page(found, None, {"tiles": [child]}))


def test_a_page_fits_eighty_columns():
    found = snapshot(DONE, ASKED, TILES, submitted_by="a" * 64)
    found.questions["release"] = WaitInfo(103.0, "m" * 300)
    found.children["tiles"] = ChildCounts({"FAILED": 3, "RUNNING": 2, "DISPATCHED": 5})
    assert max(map(len, drawn(*page(found, "r" * 500, {})).splitlines())) <= 80


def test_programs_get_ids_as_text_and_every_node():
    found = snapshot(DONE, TILES)
    found.children["tiles"] = ChildCounts({"COMPLETED": 4})
    said = to_dict(found, {"a": 1}, 5)
    assert (said["job_id"], said["owner"]["id"], said["duration_seconds"]) == ("7", "1", 10.0)
    assert list(said["nodes"]) == ["fetch", "tiles", "release", "after"]
    assert said["nodes"]["tiles"]["children"] == {"total": 10, "COMPLETED": 4}
    assert said["nodes"]["after"] == {"status": "PENDING", "attempts": 0, "started_at": None, "finished_at": None}


def test_a_rate_is_that_of_the_last_seconds():
    rates = Rates()
    assert rates.of("x") is None
    for second in range(20):
        rates.note("x", float(second), 0 if second < 10 else (second - 10) * 100)
    assert rates.of("x") == 100.0


def a_worker(*queues: str, alive: bool = True, silent: float = 1.0, stopped: float | None = None) -> dict[str, object]:
    return {
        "worker_id": "5", "host": "h", "pid": 9, "version": "1", "queues": list(queues), "concurrency": 4, "running": 2,
        "prefetched": 9, "died": not alive and stopped != 39.0, "left": {"tasks": 12, "not_reclaimed": 0, "now": {"over": 3}},
        "counters": {"completed": 7}, "alive": alive, "silent_seconds": silent, "age_seconds": 90.0,
        "stopped_seconds": stopped, "lease_seconds": 6.0, "processes": 6, "processes_busy": 5, "draining": False,
    }  # fmt: skip


def test_a_queue_that_nobody_serves_is_marked():
    queues = [
        {"queue": "light", "waiting": 3, "held": 0, "oldest_seconds": 65.0},
        {"queue": "heavy", "waiting": 1, "held": 2, "oldest_seconds": 2.0},
    ]
    found = Fleet([], [a_worker("heavy"), a_worker("light", alive=False, silent=40.0, stopped=30.0)], queues, 2)
    said = drawn(*fleet_page(found), width=100)
    assert "light" in said
    assert said.count("✘ nobody serves light: dagmaster worker --queue light") == 1
    assert "none is alive: no job moves" in said
    assert "2 open jobs have no owner" in said
    assert "✘ worker h:9  died 40 s ago  left 12 tasks: 3 over" in said
    assert " h:9    1 min  1 s ago   2/4      9     7       0  heavy" in said
    assert [each["workers"] for each in fleet_document(found)["queues"]] == [0, 1]


def test_a_worker_without_queues_serves_all_but_those_of_a_run():
    queues = [{"queue": name, "waiting": 1, "held": 0, "oldest_seconds": 1.0} for name in ("any", "run:1")]
    found = Fleet([], [a_worker()], queues, 0)
    assert [each["workers"] for each in fleet_document(found)["queues"]] == [1, 0]


def test_a_worker_that_drains_is_marked_and_serves_nobody():
    queues = [{"queue": "light", "waiting": 3, "held": 0, "oldest_seconds": 65.0}]
    found = Fleet([], [a_worker("light") | {"draining": True}], queues, 0)
    said = drawn(*fleet_page(found), width=100)
    assert "h:9 drains" in said
    assert "✘ nobody serves light" in said


def test_one_that_said_goodbye_did_not_die():
    found = Fleet([], [a_worker(alive=False, silent=40.0, stopped=39.0)], [], 0)
    assert "■ worker h:9  stopped 39 s ago" in drawn(*fleet_page(found))


def test_a_queue_that_waits_for_processes_is_told_so():
    queues = [{"queue": "light", "waiting": 14, "held": 6, "oldest_seconds": 65.0}]
    worker = a_worker("light")
    said = "light waits though there are places: the worker's 6 processes for plain functions are busy"
    assert said not in drawn(*fleet_page(Fleet([], [worker], queues, 0)), width=120)
    worker["processes_busy"] = 6
    assert said in drawn(*fleet_page(Fleet([], [worker], queues, 0)), width=120)


def test_those_that_died_come_before_those_that_stopped():
    stopped = [a_worker(alive=False, silent=40.0, stopped=39.0) for _ in range(9)]
    dead = a_worker(alive=False, silent=900.0, stopped=890.0)
    assert "died 15 min ago" in drawn(*fleet_page(Fleet([], [*stopped, dead], [], 0)))


def test_nobody_rests_for_long_after_a_read_that_took_long():
    """It may have waited for a database that was away."""
    assert [rest_after(took) for took in (0.0, 0.5, 10.0)] == [0.25, 2.0, 3.0]


def test_many_attempts_that_died_with_a_worker_are_one_line():
    lost = [
        StoredEvent(
            seq=n, type="AttemptLost", at=float(n), by="o", node=f"tiles__{n}", attempt=1, data={"worker": "h:7"}
        )
        for n in range(93)
    ]
    assert [said for _, said in alike_together(lost)] == [
        "worker h:7 died with 93 attempts: tiles__0, tiles__1, tiles__2 and 90 more"
    ]
    assert len(list(alike_together(lost[:2]))) == 2

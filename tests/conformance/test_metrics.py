"""Metrics of finished jobs are the same in every store, and count each job once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partialmethod
from typing import TYPE_CHECKING

import pytest

from dagmaster.engine.decisions import FinishJob
from dagmaster.engine.events import ResumeRequested
from dagmaster.engine.status import AttemptStatus, JobStatus
from dagmaster.errors import PermanentError
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.ids import EPOCH_MS
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.metrics import PERIOD_SECONDS
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.records.metrics import NodeMetricsRecord, Percentiles, WorkflowMetricsRecord
from dagmaster.store.memory.database_admin import MemoryMetricRebuilder
from dagmaster.store.memory.metrics import roll_up
from dagmaster.store.metric_rules import bin_seconds, duration_bin, failure_message
from dagmaster.store.postgres import metric_reader, metric_rollups
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.metric_rollups import MetricRollups, PostgresMetricRebuilder
from dagmaster.store.postgres.named_queries import queries
from tests.conformance.jobs import ONE, Played, Scene, a_turn, submitted
from tests.conformance.stores import IN_POSTGRES, MemoryWorld, PostgresWorld

if TYPE_CHECKING:
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.metrics import MetricReader
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.records.metrics import WorkflowMetricsRecord
    from tests.conformance.stores import World

FLOW = """
name: flow
nodes:
  plan: {handler: h, queue: q, next: tiles}
  tiles: {type: fan_out, source: "{{ nodes.plan.output.rows }}", task: {handler: h, queue: q}, next: last}
  last: {handler: h, queue: q}
"""
LEASE = 100_000.0
MESSAGES = [
    "cannot read s3://bucket/a/7.tif: timeout after 30.5 s",
    "no such file: '/data/in/1.tif' (errno=2)",
    "asset 123e4567-e89b-12d3-a456-426614174000 of job 93473847384738473 at 0x7ffe has and/or",
    "hash deadbeefdeadbeefdeadbeef\nis not 00ff00ff00ff00ff00ff",
    "ünïcode 'q' " + "x" * 400,
]


async def pass_time(world: World, orchestrator: OrchestratorStore, seconds: float) -> None:
    # A heartbeat synchronizes the clock of the orchestrator; its machine id is leased for a minute.
    while seconds > 0:
        await world.move(min(seconds, 40))
        await orchestrator.heartbeat({})
        seconds -= 40


async def played_flow(world: World, orchestrator: OrchestratorStore, seconds: float) -> Played:
    played = await Played.begin(world, FLOW, orchestrator)
    await pass_time(world, orchestrator, seconds)
    await played.work({"plan": {"rows": [1, 2]}})
    await played.work({"tiles__0": 1, "tiles__1": 2})
    await played.work({"last": 1})
    return played


async def failed_job(world: World, orchestrator: OrchestratorStore, message: str) -> Played:
    played = await Played.begin(world, "{name: bad, nodes: {a: {handler: h, queue: q}}}", orchestrator)
    await played.work({"a": PermanentError(message)})
    return played


async def count_one(world: World) -> int:
    if isinstance(world, MemoryWorld):
        return roll_up(world.database, 1)
    assert isinstance(world, PostgresWorld)
    connection = Connection(world.config, "one by one")
    taken = await MetricRollups(connection).roll_up(1, 1)
    await connection.close()
    return taken


async def age_sums(world: World) -> None:
    """Move all that is counted 12 hours back."""
    if isinstance(world, MemoryWorld):
        samples = world.database.metric_samples
        samples[:] = [replace(sample, finished_at=sample.finished_at - 43_200) for sample in samples]
        return
    assert isinstance(world, PostgresWorld)
    admin = await world.connect()
    for table, column in (
        ("jobs", "period"), ("nodes", "period"), ("failures", "period"), ("throughput", "minute"),
    ):  # fmt: skip
        await admin.execute(f"UPDATE dag_metric_{table} SET {column} = {column} - interval '12 hours'")


async def resume(world: World, orchestrator: OrchestratorStore, played: Played) -> None:
    await (await world.client()).send(played.job_id, CommandKind.RESUME, {}, "ada")
    (claimed,) = await orchestrator.claim(10)
    played.held.epoch, played.held.event_seq = claimed.epoch, claimed.event_seq
    await played.turn(ResumeRequested())


async def metrics_of(reader: MetricReader, workflow_id: str) -> WorkflowMetricsRecord:
    (metrics,) = [
        one for one in await reader.workflows(await since(reader)) if one.workflow_id == workflow_id
    ]
    return metrics


def is_exact(metrics: WorkflowMetricsRecord | NodeMetricsRecord) -> bool:
    return metrics.percentiles is Percentiles.EXACT


async def since(reader: MetricReader) -> float:
    return (await reader.window(86400, 21600)).since


async def test_finished_jobs_are_counted_by_workflow_and_node_once(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    for seconds in (10, 20, 60):
        await played_flow(world, orchestrator, seconds)
    assert (await reader.window(86400, 21600)).pending_jobs == 3
    assert await orchestrator.roll_up_metrics() == 3
    assert await orchestrator.roll_up_metrics() == 0
    assert (await reader.window(86400, 21600)).pending_jobs == 0
    metrics = await metrics_of(reader, "flow")
    assert (metrics.completed, metrics.failed, metrics.cancelled) == (3, 0, 0)
    assert metrics.percentiles is Percentiles.EXACT
    assert [metrics.avg_duration, metrics.p50_duration, metrics.p95_duration] == pytest.approx(
        [30, 20, 60], abs=9
    )
    nodes = {node.node_id: node.completed for node in await reader.nodes("flow", await since(reader))}
    assert nodes == {"plan": 3, "tiles": 6, "last": 3}
    assert await reader.nodes("unknown", 0.0) == []
    assert await reader.nodes("\0", 0.0) == []


async def run_timed(world: World, orchestrator: OrchestratorStore, name: str, status: AttemptStatus) -> None:
    """Run a job of one node whose handler takes a minute."""
    played = await Played.begin(
        world, f"{{name: {name}, nodes: {{a: {{handler: h, queue: q}}}}}}", orchestrator
    )
    (task,) = await played.worker.claim(10)
    await played.worker.mark_started({task.task_id: (task.token, 60.0)})
    error = '{"kind": "error", "message": "no"}' if status is AttemptStatus.FAILED else None
    output = JsonText("1") if error is None else None
    report = TaskReport(
        task.task_id, task.token, status, permanent=error is not None, error=error, output=output
    )
    await played.worker.report([report])
    await played.gather()


async def test_durations_of_nodes_are_counted_in_bins_of_all_workflows_or_of_one(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    await run_timed(world, orchestrator, "quick", AttemptStatus.COMPLETED)
    await run_timed(world, orchestrator, "bad", AttemptStatus.FAILED)
    # Its nodes never started.
    await played_flow(world, orchestrator, 0)
    await orchestrator.roll_up_metrics()
    start = await since(reader)
    every, of_bad = await reader.node_durations(start), await reader.node_durations(start, workflow_id="bad")
    assert (sum(one.completed for one in every), sum(one.failed for one in every)) == (1, 1)
    assert [(one.completed, one.failed) for one in of_bad] == [(0, 1)]
    assert [one.seconds for one in every] == pytest.approx([60.0] * len(every), abs=20)
    assert await reader.node_durations(start, workflow_id="\0") == []
    assert await reader.node_durations(start + 2 * 86_400) == []


async def test_the_history_of_a_workflow_has_the_periods_in_which_jobs_finished(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    await played_flow(world, orchestrator, 10)
    await played_flow(world, orchestrator, 30)
    await failed_job(world, orchestrator, "no")
    await orchestrator.roll_up_metrics()
    start = await since(reader)
    periods = await reader.history("flow", start)
    assert [period.at % PERIOD_SECONDS for period in periods] == [0] * len(periods)
    assert (sum(period.completed for period in periods), sum(period.failed for period in periods)) == (2, 0)
    assert periods[-1].percentiles is Percentiles.HISTOGRAM
    assert max(period.p95_duration for period in periods) == pytest.approx(30, abs=9)
    assert await reader.history("unknown", start) == await reader.history("\0", start) == []


@IN_POSTGRES
async def test_more_durations_than_the_limit_are_read_from_a_histogram_and_labelled(world, monkeypatch):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    for seconds in (10, 30):
        await played_flow(world, orchestrator, seconds)
    await orchestrator.roll_up_metrics()
    exact = await metrics_of(reader, "flow")
    monkeypatch.setattr(metric_reader, "MAX_EXACT", 1)
    binned = await metrics_of(reader, "flow")
    assert (exact.percentiles, binned.percentiles) == (Percentiles.EXACT, Percentiles.HISTOGRAM)
    assert binned.avg_duration == exact.avg_duration
    assert binned.p50_duration == pytest.approx(exact.p50_duration, rel=0.01)
    assert binned.p95_duration == pytest.approx(exact.p95_duration, rel=0.01)


async def test_percentiles_stay_exact_while_other_jobs_are_not_counted_yet(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    await run_timed(world, orchestrator, "quick", AttemptStatus.COMPLETED)
    await orchestrator.roll_up_metrics()
    counted = await metrics_of(reader, "quick")
    (node,) = await reader.nodes("quick", await since(reader))
    await run_timed(world, orchestrator, "quick", AttemptStatus.COMPLETED)
    assert (await reader.window(86400, 21600)).pending_jobs == 1
    assert (counted.completed, counted.percentiles, node.percentiles) == (
        1,
        Percentiles.EXACT,
        Percentiles.EXACT,
    )
    assert await metrics_of(reader, "quick") == counted
    assert await reader.nodes("quick", await since(reader)) == [node]


@IN_POSTGRES
async def test_while_too_many_jobs_are_not_counted_yet_percentiles_are_read_from_a_histogram(
    world, monkeypatch
):
    monkeypatch.setattr(metric_reader, "MAX_PENDING", 1)
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    await run_timed(world, orchestrator, "quick", AttemptStatus.COMPLETED)
    await orchestrator.roll_up_metrics()
    are_exact = []
    for _ in range(2):
        await run_timed(world, orchestrator, "quick", AttemptStatus.COMPLETED)
        (node,) = await reader.nodes("quick", await since(reader))
        job = await metrics_of(reader, "quick")
        are_exact.append((job.completed, is_exact(job), is_exact(node)))
    assert are_exact == [(1, True, True), (1, False, False)]
    # The rows of jobs, of which there may be millions, are not read in vain.
    connection = await world.connect()
    params = {"since": 0.0, "workflow_id": "quick", "max_exact": 9, "max_pending": 1}
    for query in (queries("metrics")["workflows"], queries("metrics")["nodes"]):
        plan = [
            row[0] for row in await connection.fetch(f"EXPLAIN ANALYZE {query.sql}", *query.arguments(params))
        ]
        scans = ["never executed" in line for line in plan if " on dag_jobs" in line]
        assert scans == [True] * len(scans) != [], plan


async def test_metrics_of_one_workflow_are_those_that_it_has_among_all(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    await played_flow(world, orchestrator, 10)
    await failed_job(world, orchestrator, "no")
    await orchestrator.roll_up_metrics()
    start = await since(reader)
    assert [one.workflow_id for one in await reader.workflows(start)] == ["bad", "flow"]
    assert await reader.workflows(start, workflow_id="flow") == [await metrics_of(reader, "flow")]
    assert await reader.failures(start, workflow_id="bad", limit=9) == await reader.failures(start, limit=9)
    assert await reader.failures(start, workflow_id="flow", limit=9) == []
    for unknown in ("unknown", "\0"):
        assert await reader.workflows(start, workflow_id=unknown) == []
        assert await reader.failures(start, workflow_id=unknown, limit=9) == []


async def test_failures_are_grouped_by_their_message_without_what_differs(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    for message in MESSAGES:
        await failed_job(world, orchestrator, message)
    last = await failed_job(world, orchestrator, MESSAGES[0].replace("7", "8"))
    await orchestrator.roll_up_metrics()
    groups = await reader.failures(await since(reader), limit=20)
    assert {(group.workflow_id, group.node_id) for group in groups} == {("bad", "a")}
    assert {group.message for group in groups} == set(map(failure_message, MESSAGES))
    assert (groups[0].message, groups[0].count) == ("cannot read <uri> timeout after <n> s", 2)
    assert groups[0].job_id == last.job_id
    assert len(await reader.failures(await since(reader), per_workflow=2, limit=20)) == 2
    assert len(await reader.failures(await since(reader), limit=3)) == 3


async def test_a_resumed_job_counts_each_finish_and_only_the_nodes_of_its_run(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    played = await Played.begin(
        world,
        "{name: bad, nodes: {a: {handler: h, queue: q, next: b}, b: {handler: h, queue: q}}}",
        orchestrator,
    )
    await played.work({"a": 1})
    await played.work({"b": PermanentError("no")})
    await orchestrator.roll_up_metrics()
    await pass_time(world, orchestrator, 400)
    await resume(world, orchestrator, played)
    await orchestrator.roll_up_metrics()
    assert (await metrics_of(reader, "bad")).failed == 1
    await pass_time(world, orchestrator, 30)
    await played.work({"b": 1})
    await orchestrator.roll_up_metrics()
    metrics = await metrics_of(reader, "bad")
    assert (metrics.failed, metrics.completed) == (1, 1)
    # The time between the runs is not part of the duration.
    assert metrics.avg_duration == pytest.approx(30, abs=9)
    nodes = {
        node.node_id: (node.completed, node.failed) for node in await reader.nodes("bad", await since(reader))
    }
    assert nodes == {"a": (1, 0), "b": (1, 1)}


async def test_a_job_that_finishes_again_before_it_was_counted_counts_its_last_run_once(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    played = await failed_job(world, orchestrator, "no")
    await resume(world, orchestrator, played)
    await played.work({"a": 1})
    assert (await reader.window(86400, 21600)).pending_jobs == 2
    # Its two rows are in different batches.
    assert [await count_one(world) for _ in range(3)] == [1, 1, 0]
    metrics = await metrics_of(reader, "bad")
    assert (metrics.failed, metrics.completed) == (0, 1)
    assert [node.completed for node in await reader.nodes("bad", await since(reader))] == [1]


async def test_throughput_has_a_bucket_for_each_step(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    client = await world.client()
    await submitted(world, client, id=await world.new_id())
    await orchestrator.claim(10)
    await failed_job(world, orchestrator, "no")
    await orchestrator.roll_up_metrics()
    window = await reader.window(3600, 600)
    buckets = await reader.throughput(window.since, window.until + 600, 600)
    assert [bucket.at % 600 for bucket in buckets] == [0] * len(buckets)
    assert len(buckets) in (7, 8, 9)
    assert sum(bucket.failed for bucket in buckets) == 1
    assert sum(bucket.submitted for bucket in buckets) >= 1


async def test_two_orchestrators_count_each_job_once_and_one_takes_over_after_the_lease(world):
    first, second, reader = (
        await world.orchestrator(),
        await world.orchestrator(LEASE),
        (await world.reader()).metrics,
    )
    await failed_job(world, first, "no")
    assert sum(await asyncio.gather(first.roll_up_metrics(), second.roll_up_metrics())) == 1
    await failed_job(world, first, "no")
    await world.move(60)
    await second.roll_up_metrics()
    assert (await metrics_of(reader, "bad")).failed == 2


async def finish_by_hand(scene: Scene, claimed: ClaimedJob, now: float) -> set[str]:
    """Commit a turn that began at some time, and fails the job."""
    turn = a_turn(
        claimed, ONE, finished=FinishJob(JobStatus.FAILED, None, {"kind": "deadline", "message": "late"})
    )
    turn.job.status = JobStatus.FAILED
    return await scene.orchestrator.commit_turns([turn], now)


async def test_a_turn_that_is_fenced_counts_nothing(world):
    scene = await Scene.begin(world)
    claimed = await scene.now()
    await scene.now()
    assert await finish_by_hand(scene, claimed, scene.orchestrator.clock.now()) == set()
    assert await scene.orchestrator.roll_up_metrics() == 0


async def test_a_turn_that_commits_long_after_it_began_is_counted(world):
    scene, reader = await Scene.begin(world), (await world.reader()).metrics
    await failed_job(world, scene.orchestrator, "no")
    await scene.orchestrator.roll_up_metrics()
    # Its orchestrator was paused: jobs that finished later are counted already.
    began = scene.orchestrator.clock.now() - 7200
    assert await finish_by_hand(scene, await scene.now(), began) == {scene.job_id}
    assert await scene.orchestrator.roll_up_metrics() == 1
    metrics = await metrics_of(reader, "one")
    assert (metrics.failed, metrics.avg_duration) == (1, None)
    (late,) = [
        group for group in await reader.failures(await since(reader), limit=9) if group.workflow_id == "one"
    ]
    assert (late.message, late.node_id, late.last_at) == ("late", None, pytest.approx(began))


async def test_a_hidden_job_counts_nowhere(world):
    job_id = await world.new_id()
    scene, reader = await Scene.begin(world, id=job_id, is_hidden=True), (await world.reader()).metrics
    now = scene.orchestrator.clock.now()
    await finish_by_hand(scene, await scene.now(), now)
    assert await scene.orchestrator.roll_up_metrics() == 1
    assert await reader.workflows(0.0) == []
    assert await reader.failures(0.0, limit=9) == []
    buckets = await reader.throughput(now - 600, now + 600, 60)
    assert sum(bucket.submitted + bucket.failed for bucket in buckets) == 0


async def test_a_rebuild_counts_all_jobs_again_and_gives_the_same_sums(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    await played_flow(world, orchestrator, 10)
    await failed_job(world, orchestrator, "no")
    await orchestrator.roll_up_metrics()
    start = await since(reader)
    before = [
        await reader.workflows(start),
        await reader.nodes("flow", start),
        await reader.failures(start, limit=9),
    ]
    if isinstance(world, PostgresWorld):
        await (await world.connect()).execute("UPDATE dag_metric_jobs SET count = count + 7")
    assert await rebuilt(world) == (2, 0)
    after = [
        await reader.workflows(start),
        await reader.nodes("flow", start),
        await reader.failures(start, limit=9),
    ]
    assert after == before


async def test_sums_of_periods_before_the_retention_are_deleted_and_a_rebuild_counts_them_again(world):
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    await played_flow(world, orchestrator, 10)
    await failed_job(world, orchestrator, "no")
    await orchestrator.roll_up_metrics()
    await age_sums(world)
    await failed_job(world, orchestrator, "no")
    await orchestrator.roll_up_metrics()

    async def totals() -> list[int]:
        window = await reader.window(86400, 21600)
        jobs = sum(one.completed + one.failed for one in await reader.workflows(window.since))
        nodes = sum(one.completed + one.failed for one in await reader.nodes("flow", window.since))
        failures = sum(one.count for one in await reader.failures(window.since, limit=9))
        steps = await reader.throughput(window.since, window.until + 3600, 3600)
        return [jobs, nodes, failures, sum(step.completed + step.failed for step in steps)]

    assert await totals() == [3, 4, 2, 3]
    assert await orchestrator.prune_metrics(86400) == 0
    assert await orchestrator.prune_metrics(3600) > 0
    assert await orchestrator.prune_metrics(3600) == 0
    assert await totals() == [1, 0, 1, 1]
    if isinstance(world, PostgresWorld):
        assert await rebuilt(world) == (3, 0)
        assert await totals() == [3, 4, 2, 3]


async def rebuilt(world: World) -> tuple[int, int]:
    """Count all jobs again; return how many were counted, and how many are left."""
    if isinstance(world, MemoryWorld):
        part = await MemoryMetricRebuilder(world.database).count(
            await MemoryMetricRebuilder(world.database).start()
        )
        return part.counted, part.pending
    assert isinstance(world, PostgresWorld)
    rebuilder = PostgresMetricRebuilder(world.config)
    part = await rebuilder.count(await rebuilder.start())
    await rebuilder.close()
    assert part.is_last
    return part.counted, part.pending


@IN_POSTGRES
async def test_a_rebuild_that_is_interrupted_is_finished_by_an_orchestrator(world, monkeypatch):
    monkeypatch.setattr(metric_rollups, "REBUILD_BATCHES", 1)
    orchestrator, reader = await world.orchestrator(LEASE), (await world.reader()).metrics
    for _ in range(3):
        await failed_job(world, orchestrator, "no")
    first, second = PostgresMetricRebuilder(world.config), PostgresMetricRebuilder(world.config)
    roll_up = partialmethod(MetricRollups.roll_up, limit=1)
    monkeypatch.setattr(MetricRollups, "roll_up", roll_up)
    number = await first.start()
    assert await first.count(number) == (1, 2, False)
    assert await orchestrator.roll_up_metrics() == 0, "the lease is held"
    # Another rebuild takes the lease: it begins again, and this one ends.
    other = await second.start()
    assert await first.count(number) == (0, 3, True)
    assert await second.count(other) == (1, 2, False)
    await world.move(metric_rollups.LEASE_SECONDS + 1)
    while await orchestrator.roll_up_metrics():
        pass
    (metrics,) = await reader.workflows(await since(reader))
    assert metrics.failed == 3
    assert await second.count(other) == (0, 0, True)
    for rebuilder in (first, second):
        await rebuilder.close()


def test_a_bin_is_at_most_one_percent_off():
    for milliseconds in (1.0001, 2, 3, 17.3, 999, 12_345, 86_400_000.5):
        seconds = milliseconds / 1000
        assert bin_seconds(duration_bin(seconds)) == pytest.approx(seconds, rel=0.01)
    assert (duration_bin(None), duration_bin(0), duration_bin(-5.0)) == (-1, 0, 0)
    assert EPOCH_MS % 60_000 == 0

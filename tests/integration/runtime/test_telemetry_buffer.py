"""What tasks say on the way: logs, progress, checkpoints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from tests.integration.runtime.runtime_world import Gate

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

FAST = "{max_attempts: 3, initial_delay_seconds: 0.01, jitter: false}"


@pytest.mark.parametrize("name", ["talk", "talk_on_thread", "talk_in_process"])
async def test_what_a_task_writes_is_its_log_in_order(world: World, name: str):
    text = f"{{name: n, nodes: {{f: {{type: fan_out, source: [ada, bob], task: {{handler: {name}, params: {{word: '{{{{ item }}}}'}}}}}}}}}}"
    report = await world.run(text)
    for index, word in enumerate(["ada", "bob"]):
        lines = (await world.log(report.job_id, f"f__{index}")).splitlines()
        assert [line for line in lines if "printed" in line] == [f"{word} printed {n}" for n in range(3)]
        assert [line for line in lines if "stderr" in line] == [f"{word} on stderr {n}" for n in range(3)]
        assert [line for line in lines if "logged" in line] == [
            f"WARNING lib: {word} logged {n}" for n in range(3)
        ]
        assert len(lines) == 9


async def test_a_long_log_is_kept_in_numbered_pieces(world: World):
    @handler("verbose", queue="q")
    async def verbose() -> None:
        for number in range(3000):
            print(f"{number:0100d}")  # noqa: T201 - that is what is tested

    world.handlers.append(verbose)
    report = await world.run("{name: n, nodes: {a: {handler: verbose}}}")
    lines = (await world.log(report.job_id, "a")).split()
    assert [int(line) for line in lines] == list(range(3000))
    assert await world.value("SELECT count(*) FROM dag_task_logs") > 1


async def test_a_log_can_be_read_while_the_task_runs(world: World):
    gate = Gate()

    @handler("gated", queue="q")
    async def gated() -> None:
        print("begun")  # noqa: T201 - that is what is tested
        await gate.wait()
        print("ended")  # noqa: T201 - likewise

    world.handlers.append(gated)
    await world.start()
    job = await world.submit("{name: n, nodes: {a: {handler: gated}}}")
    await world.until("SELECT text = E'begun\\n' FROM dag_task_logs")
    gate.open()
    await world.finished(job)
    assert await world.log(job, "a") == "begun\nended\n"


async def test_each_attempt_has_a_separate_log(world: World):
    @handler("counts", queue="q")
    async def counts(ctx: HandlerContext) -> None:
        ctx.logger.info("attempt %d", ctx.attempt)
        if ctx.attempt < 3:
            raise RuntimeError("again")

    world.handlers.append(counts)
    await world.run(f"{{name: n, nodes: {{a: {{handler: counts, retry: {FAST}}}}}}}")
    rows = await world.rows("SELECT attempt, text FROM dag_task_logs ORDER BY attempt")
    assert [(row["attempt"], row["text"].split(": ")[1]) for row in rows] == [
        (n, f"attempt {n}\n") for n in (1, 2, 3)
    ]


async def test_progress_can_be_seen_while_the_task_runs_and_stays_with_the_attempt(world: World):
    gate = Gate()

    @handler("gated", queue="q")
    async def gated(ctx: HandlerContext) -> None:
        ctx.progress(1, 4, "one")
        ctx.progress(2, 4, "two")
        await gate.wait()

    world.handlers.append(gated)
    await world.start()
    job = await world.submit("{name: n, nodes: {a: {handler: gated}}}")
    await world.until("SELECT progress IS NOT NULL FROM dag_task_queue")
    expected = {"current": 2, "total": 4, "message": "two"}
    assert json.loads(await world.value("SELECT progress FROM dag_task_queue")) == expected
    gate.open()
    await world.finished(job)
    assert json.loads(await world.value("SELECT progress FROM dag_task_attempts")) == expected


async def test_the_checkpoint_of_a_failed_attempt_is_given_to_the_next(world: World):
    @handler("steps", queue="q")
    async def steps(ctx: HandlerContext) -> dict[str, Any]:
        before = (ctx.checkpoint_data or {}).get("steps", [])
        ctx.checkpoint(f"step_{ctx.attempt}", {"steps": [*before, ctx.attempt]}, ["a.tif"])
        if ctx.attempt < 3:
            raise RuntimeError("again")
        return {"steps": before}

    world.handlers.append(steps)
    report = await world.run(f"{{name: n, nodes: {{a: {{handler: steps, retry: {FAST}}}}}}}")
    assert report.nodes["a"]["output"] == {"steps": [1, 2]}


async def test_a_checkpoint_is_stored_at_once_and_waits_for_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dagmaster.worker.telemetry_flush.FLUSH_SECONDS", 3600.0)
    gate = Gate()

    @handler("saves", queue="q")
    async def saves(ctx: HandlerContext) -> None:
        ctx.checkpoint("one", {})
        await gate.wait()

    world.handlers.append(saves)
    await world.start()
    job = await world.submit("{name: n, nodes: {a: {handler: saves}}}")
    await world.until("SELECT phase = 'one' FROM dag_checkpoints")
    gate.open()
    await world.finished(job)


async def test_a_checkpoint_of_another_node_is_not_given(world: World):
    @handler("steps", queue="q")
    async def steps(ctx: HandlerContext) -> dict[str, Any]:
        before = ctx.checkpoint_data
        ctx.checkpoint("step", {"node": ctx.node_id})
        if ctx.attempt == 1:
            raise RuntimeError("again")
        return {"before": before}

    world.handlers.append(steps)
    report = await world.run(
        f"{{name: n, nodes: {{f: {{type: fan_out, source: [1, 2, 3], task: {{handler: steps, retry: {FAST}}}}}}}}}"
    )
    assert [report.nodes[f"f__{n}"]["output"]["before"]["node"] for n in range(3)] == ["f__0", "f__1", "f__2"]


async def test_checkpoints_are_in_the_audit_log_between_start_and_end_of_their_attempt(world: World):
    @handler("stepwise", queue="q")
    async def stepwise(ctx: HandlerContext) -> dict[str, Any]:
        for step in range(12 * ctx.attempt):
            ctx.checkpoint(f"step {step}", {"step": step})
        if ctx.attempt == 1:
            raise RuntimeError("once")
        return {}

    world.handlers.append(stepwise)
    await world.start()
    job = await world.submit(f"{{name: n, nodes: {{a: {{handler: stepwise, retry: {FAST}}}}}}}")
    await world.finished(job)
    events = [
        (row["type"], row["attempt"], json.loads(row["data"] or "{}")) for row in await world.events(job)
    ]
    of_attempt = {attempt: [event for event in events if event[1] == attempt] for attempt in (1, 2)}
    for attempt, count, end in ((1, 12, "AttemptFailed"), (2, 20, "NodeCompleted")):
        types = [event for event, _, _ in of_attempt[attempt]]
        assert types == ["NodeDispatched", "AttemptStarted", *["CheckpointSaved"] * count, end]
    names = [data["checkpoint_name"] for event, _, data in of_attempt[2] if event == "CheckpointSaved"]
    assert names == [f"step {step}" for step in range(4, 24)]
    assert of_attempt[2][2][2]["omitted"] == 4


async def test_the_checkpoints_of_a_worker_that_died_are_in_the_audit_log(world: World):
    gate = Gate()

    @handler("stepwise", queue="q")
    async def stepwise(ctx: HandlerContext) -> dict[str, Any]:
        ctx.checkpoint("one", {})
        if ctx.attempt == 1:
            await gate.wait()
        return {}

    world.handlers.append(stepwise)
    await world.orchestrator()
    first = await world.worker()
    job = await world.submit("{name: n, nodes: {a: {handler: stepwise}}}")
    await world.until("SELECT progress IS NOT NULL FROM dag_task_queue")
    await world.kill(first)
    await world.worker()
    await world.silence(first)
    await world.finished(job)
    types = await world.types(job, "AttemptStarted", "CheckpointSaved", "AttemptLost", "NodeCompleted")
    assert types == [
        "AttemptStarted",
        "CheckpointSaved",
        "AttemptLost",
        "AttemptStarted",
        "CheckpointSaved",
        "NodeCompleted",
    ]

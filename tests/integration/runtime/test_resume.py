"""A job that is resumed with other inputs or another version: what fits is used again, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.engine.model import Job
from dagmaster.engine.resume_plan import ResumeContext, ReuseKind, plan_new_job
from dagmaster.orchestrator.dry_run import dry_run_job
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore
from tests.integration.runtime.runtime_world import Gate, read
from tests.secret_vaults import VAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.testing import JobReport
    from tests.integration.runtime.runtime_world import World

TILES = """
name: tiles
inputs:
  tiles: {type: array, default: [1, 2, 3, 4]}
  year: {type: integer, default: 2024}
nodes:
  list: {handler: count, params: {of: "{{ inputs.year }}"}, next: tiles}
  tiles:
    type: fan_out
    source: "{{ inputs.tiles }}"
    task: {handler: tile, retry: none, params: {tile: "{{ item }}"}}
    next: all
  all: {type: fan_in, aggregation: sum, next: last}
  last: {handler: count, params: {of: "{{ nodes.all.output.total }}"}}
outputs: {total: "{{ nodes.last.output.of }}"}
"""


class Ran:
    """Handlers that count how often they run, and with what."""

    def __init__(self, version: int = 1) -> None:
        self.count: Counter[str] = Counter()
        self.broken: set[Any] = set()
        ran = self

        @handler("count", queue="q", version=version)
        async def count(ctx: HandlerContext, of: Any = None) -> dict[str, Any]:
            ran.count[f"{ctx.node_id.partition('__')[0]} {of}"] += 1
            return {"of": of}

        @handler("tile", queue="q")
        async def tile(tile: Any) -> dict[str, Any]:
            ran.count[f"tile {tile}"] += 1
            if tile in ran.broken:
                raise RuntimeError("no such tile")
            return {"n": tile}

        self.handlers: list[Callable[..., Any]] = [count, tile]

    def took(self) -> dict[str, int]:
        """Return the tasks that ran since the last call."""
        result, self.count = dict(self.count), Counter()
        return result


async def resumed(
    world: World,
    text: str,
    old: str,
    inputs: Mapping[str, Any] | None = None,
    redo: tuple[str, ...] = (),
    **more: Any,
) -> JobReport:
    """Resume a job as a new one, and wait for it."""
    return await world.finished(await world.submit(text, inputs, resumed_from=old, redo=redo, **more))


async def plan(
    world: World, text: str, old: str, inputs: Mapping[str, Any], around: ResumeContext
) -> dict[str, tuple[str, str]]:
    """Return the plan of a dry run."""
    store = PostgresOrchestratorStore(world.address, blobs=world.blobs)
    try:
        stored = await store.load_job(old)
        assert stored is not None
        definition = await store.definition(stored.new.content_hash)
        source, graph = await store.load_source_job(old), world.graph(text)
        now = store.clock.now()
        job = await dry_run_job(
            store, graph, inputs=inputs, env={}, workflows={}, source=source, now=now, vault=VAULT
        )
        before = Job.rebuild(world.graph(json.dumps(definition)), stored.row, stored.nodes)
    finally:
        await store.close()
    return {each.node: (each.kind.value, each.reason) for each in plan_new_job(job, before, around)}


async def ran(world: World, version: int = 1) -> Ran:
    result = Ran(version)
    world.handlers += result.handlers
    await world.start()
    return result


async def test_of_a_hundred_tiles_one_command_redoes_the_one_that_failed_and_what_follows(world: World):
    it = await ran(world)
    it.broken = {47}
    text = TILES.replace("[1, 2, 3, 4]", str(list(range(100))))
    failed = await world.run(text)
    assert failed.status == "FAILED"
    it.took()
    it.broken = set()
    await world.send(failed.job_id, "resume")
    report = await world.finished(failed.job_id, run=2)
    assert (report.status, report.result) == ("COMPLETED", {"total": 4950})
    assert it.took() == {"tile 47": 1, "last 4950": 1}


async def test_a_new_job_runs_only_what_another_input_changes(world: World):
    it = await ran(world)
    before = await world.run(TILES, {"year": 2024})
    it.took()
    report = await resumed(world, TILES, before.job_id, {"year": 2024, "tiles": [1, 9, 2, 3, 4]})
    assert (report.status, report.result) == ("COMPLETED", {"total": 19})
    # A tile in the middle moves those after it: they are found by what they are.
    assert it.took() == {"tile 9": 1, "last 19": 1}
    assert report.nodes["list"] == {**before.nodes["list"], "attempts": 0}
    assert report.nodes["tiles__2"]["output"] == {"n": 2}


async def test_a_reused_result_names_its_source_and_has_no_dispatch_event(world: World):
    it = await ran(world)
    before = await world.run(TILES)
    it.took()
    report = await resumed(world, TILES, before.job_id, {"tiles": [2]})
    events = await world.events(report.job_id, "NodeCompleted")
    data = {row["node_id"]: read(row["data"]) for row in events}
    assert data["list"] == {"reused_from": {"job_id": before.job_id, "node": "list", "attempt": 1}}
    assert data["tiles__0"] == {"reused_from": {"job_id": before.job_id, "node": "tiles__1", "attempt": 1}}
    assert [row["node_id"] for row in await world.events(report.job_id, "NodeDispatched")] == ["last"]
    (first,) = await world.events(report.job_id, "JobSubmitted")
    assert read(first["data"]) == {"resumed_from": before.job_id}


async def test_a_result_that_is_used_after_a_lost_attempt_is_no_attempt_at_all(world: World):
    text = "{name: n, inputs: {n: {type: integer, default: 1}}, nodes: {a: {handler: count, next: b}, b: {handler: count, params: {of: '{{ inputs.n }}'}}}}"
    await ran(world)
    before = await world.run(text)
    await world.stop(world.workers[0])
    gate, older = Gate(), list(world.handlers)

    @handler("count", queue="q", version=2)
    async def newer(of: Any = None) -> dict[str, Any]:
        await gate.wait()
        return {"of": of}

    world.handlers[:] = [newer]
    held_by = await world.worker()
    again = await world.submit(text, {"n": 2}, resumed_from=before.job_id)
    await world.until_claimed()
    # The newer version is rolled back, and dies with its attempt.
    world.handlers[:] = older
    await world.worker()
    await world.kill(held_by)
    await world.silence(held_by)
    assert (await world.finished(again)).status == "COMPLETED"
    (details, _) = await world.events(again, "NodeCompleted")
    assert (details["node_id"], details["attempt"], "reused_from" in read(details["data"])) == (
        "a",
        None,
        True,
    )
    assert await world.attempts(again, "a") == ["LOST"]
    events = await world.types(again, "NodeDispatched", "AttemptLost", "NodeCompleted")
    assert events[:3] == ["NodeDispatched", "AttemptLost", "NodeCompleted"]


async def test_what_follows_a_node_that_changed_is_redone_though_its_params_are_the_same(world: World):
    it = await ran(world)
    before = await world.run(TILES, {"year": 2024})
    it.took()
    report = await resumed(world, TILES, before.job_id, {"year": 2025})
    assert report.status == "COMPLETED"
    assert it.took() == {"list 2025": 1, **{f"tile {n}": 1 for n in range(1, 5)}, "last 10": 1}


async def test_a_job_that_was_resumed_from_a_resumed_one_has_all_results(world: World):
    it = await ran(world)
    first = await world.run(TILES)
    second = await resumed(world, TILES, first.job_id, {"tiles": [1, 2, 5]})
    it.took()
    third = await resumed(world, TILES, second.job_id, {"tiles": [5, 1]})
    assert third.result == {"total": 6}
    assert it.took() == {"last 6": 1}


async def test_what_is_named_is_redone_with_all_that_follows(world: World):
    it = await ran(world)
    before = await world.run(TILES)
    it.took()
    report = await resumed(world, TILES, before.job_id, redo=("tiles",))
    assert report.status == "COMPLETED"
    assert it.took() == {**{f"tile {n}": 1 for n in range(1, 5)}, "last 10": 1}


async def test_another_version_of_a_handler_computes_its_results_again(world: World):
    it = await ran(world)
    before = await world.run(TILES)
    await world.stop(world.workers[0])
    world.handlers.clear()
    newer = Ran(version=2)
    world.handlers += newer.handlers
    await world.worker()
    it.took()
    resume_plan = await plan(
        world, TILES, before.job_id, {"tiles": [1], "year": 2024}, await circumstances(world)
    )
    assert resume_plan["list"] == ("redone", "handler `count` is version 2 now, was 1")
    report = await resumed(world, TILES, before.job_id, {"tiles": [1]})
    assert report.status == "COMPLETED"
    assert newer.took() == {"list 2024": 1, "tile 1": 1, "last 1": 1}


async def circumstances(world: World, **arguments: Any) -> ResumeContext:
    store = PostgresOrchestratorStore(world.address, blobs=world.blobs)
    try:
        handlers = await store.known_handlers()
    finally:
        await store.close()
    return ResumeContext(versions=handlers.versions, served=handlers.served, **arguments)


async def test_an_answer_is_used_again_only_while_what_was_approved_is_the_same(world: World):
    it = await ran(world)
    text = "{name: n, inputs: {year: {type: integer, default: 1}}, nodes: {a: {handler: count, next: ok}, ok: {type: approval, message: 'go?', next: b}, b: {handler: count, params: {of: X}}}}"
    await world.start()
    job = await world.submit(text.replace("X", "1"))
    await world.until_event(job, "ApprovalRequested")
    await world.send(job, "approve", by="ada", node="ok")
    await world.finished(job)
    it.took()
    # Another version that changes only what comes after the question.
    same = await resumed(world, text.replace("X", "2"), job)
    assert same.nodes["ok"]["output"]["approved_by"] == "ada"
    assert it.took() == {"b 2": 1}
    assert await world.types(same.job_id, "ApprovalRequested") == []
    # Other inputs are another question, whatever the message says.
    asked = await world.submit(text.replace("X", "1"), {"year": 2}, resumed_from=job)
    await world.until_event(asked, "ApprovalRequested")
    await world.send(asked, "approve", by="bob", node="ok")
    assert (await world.finished(asked)).nodes["ok"]["output"]["approved_by"] == "bob"
    assert it.took() == {"b 1": 1}


async def test_a_signal_is_for_one_job_and_what_follows_it_is_redone(world: World):
    it = await ran(world)
    text = "{name: n, inputs: {x: {type: integer, default: 1}}, nodes: {a: {handler: count, next: w}, w: {type: wait, signal: go, next: b}, b: {handler: count}}}"
    job = await world.submit(text)
    await world.until_node(job, "w", "WAITING")
    await world.send(job, "signal", name="go")
    await world.finished(job)
    it.took()
    again = await world.submit(text, {"x": 2}, resumed_from=job)
    await world.until_node(again, "w", "WAITING")
    await world.send(again, "signal", name="go")
    await world.finished(again)
    assert it.took() == {"b None": 1}


async def test_a_child_job_is_not_started_again_while_its_workflow_and_inputs_are_the_same(world: World):
    it = await ran(world)
    child = "{name: inner, inputs: {n: {type: integer}}, nodes: {x: {handler: count, params: {of: '{{ inputs.n }}'}}}, outputs: {n: '{{ nodes.x.output.of }}'}}"
    text = "{name: outer, inputs: {n: {type: integer, default: 1}, m: {type: integer, default: 1}}, nodes: {sub: {type: workflow, workflow_id: inner, inputs: {n: '{{ inputs.n }}'}, next: b}, b: {handler: count, params: {of: '{{ inputs.m }}'}}}}"
    await world.publish(child)
    before = await world.run(text)
    it.took()
    same = await resumed(world, text, before.job_id, {"m": 2})
    assert same.nodes["sub"]["output"] == {"n": 1}
    assert it.took() == {"b 2": 1}
    assert await world.types(same.job_id, "ChildJobStarted") == []
    await resumed(world, text, before.job_id, {"n": 5})
    assert it.took() == {"x 5": 1, "b 1": 1}
    await world.publish(
        child.replace("of: '{{", "of: '0{{").replace("name: inner,", "name: inner, version: 2,")
    )
    await resumed(world, text, before.job_id, {"m": 3})
    assert it.took() == {"x 01": 1, "b 3": 1}


async def test_a_large_output_is_used_by_reference(world: World):
    @handler("large", queue="q")
    async def large() -> dict[str, Any]:
        return {"text": "x" * 100_000}

    world.handlers.append(large)
    text = "{name: n, inputs: {n: {type: integer, default: 0}}, nodes: {a: {handler: large, next: b}, b: {handler: echo, params: {n: '{{ nodes.a.output.text | length }}', i: '{{ inputs.n }}'}}}}"
    before = await world.run(text)
    report = await resumed(world, text, before.job_id, {"n": 1})
    assert report.nodes["b"]["output"] == {"echoed_params": {"n": 100_000, "i": 1}}
    refs = await world.rows("SELECT output_ref FROM dag_node_states WHERE node_id = 'a' ORDER BY job_id")
    assert refs[0]["output_ref"] == refs[1]["output_ref"]
    assert before.job_id in refs[1]["output_ref"]


async def test_a_new_owner_continues_to_reuse_results(world: World):
    gate = Gate()

    @handler("gated", queue="q")
    async def gated(of: int) -> dict[str, Any]:
        if of == 2:
            await gate.wait()
        return {}

    it = Ran()
    world.handlers += [gated, *it.handlers]
    text = "{name: n, inputs: {n: {type: integer, default: 1}}, nodes: {a: {handler: gated, params: {of: '{{ inputs.n }}'}}, w: {type: wait, seconds: 0.01, next: b}, b: {handler: count}, c: {type: wait, signal: go, next: d}, d: {handler: count}}}"
    first = await world.orchestrator()
    await world.worker()
    job = await world.submit(text)
    await world.until_node(job, "c", "WAITING")
    await world.send(job, "signal", name="go")
    await world.finished(job)
    it.took()
    again = await world.submit(text, {"n": 2}, resumed_from=job)
    await world.until_node(again, "c", "WAITING")
    await world.until_node(again, "b", "COMPLETED")
    await world.stop(first)
    await world.orchestrator()
    gate.open()
    await world.send(again, "signal", name="go")
    assert (await world.finished(again)).status == "COMPLETED"
    assert it.took() == {"d None": 1}


async def test_a_later_run_of_a_resumed_job_redoes_the_requested_nodes(world: World):
    it = await ran(world)
    before = await world.run(TILES)
    report = await resumed(world, TILES, before.job_id, {"tiles": [1, 2]})
    it.took()
    await world.send(report.job_id, "resume", nodes=["list"])
    assert (await world.finished(report.job_id, run=2)).status == "COMPLETED"
    assert it.took() == {"list 2024": 1, "tile 1": 1, "tile 2": 1, "last 3": 1}


async def test_secrets_are_not_in_fingerprints_and_a_job_id_in_params_is_never_reused(world: World):
    it = await ran(world)
    world.secrets["TOKEN"] = "one"
    text = "{name: n, inputs: {x: {type: integer, default: 1}}, nodes: {a: {handler: count, params: {of: '{{ secrets.TOKEN }}'}}, b: {handler: count, params: {of: '{{ job.id }}'}}}}"
    before = await world.run(text)
    it.took()
    world.secrets["TOKEN"] = "two"
    report = await resumed(world, text, before.job_id, {"x": 2})
    # The name of the secret is the same, and that is all the orchestrator knows.
    assert it.took() == {f"b {report.job_id}": 1}


# ── What is said before ──


async def test_the_dry_run_predicts_the_run(world: World):
    it = await ran(world)
    it.broken = {3}
    before = await world.run(TILES)
    it.broken = set()
    inputs = {"tiles": [1, 7, 2, 3, 4], "year": 2024}
    # One that failed has no version of its own, which is no other version.
    around = ResumeContext(inputs=frozenset({"tiles"}), versions={"tile": frozenset({"1"})})
    resume_plan = await plan(world, TILES, before.job_id, inputs, around)
    assert resume_plan == {
        "list": ("reused", "nothing it depends on has changed"),
        "tiles": ("redone", "3 of 5 children reused, 2 redone: tiles__1 is new, tiles__3 failed"),
        "all": ("redone", "depends on `tiles`, which is redone"),
        "last": ("redone", "depends on `all`, which is redone"),
    }
    it.took()
    await resumed(world, TILES, before.job_id, inputs)
    assert it.took() == {"tile 7": 1, "tile 3": 1, "last 17": 1}


SMALL = "{name: small, version: 2, inputs: {year: {type: integer, default: 1}}, nodes: {a: {handler: count, params: {of: '{{ inputs.year }}'}, next: b}, b: {handler: count, params: {of: 0}, next: c}, c: {handler: count, params: {of: '{{ nodes.b.output.of }}'}}}}"


@pytest.mark.parametrize(
    ("edit", "inputs", "node", "fate", "reason"),
    [
        (("", ""), {"year": 2}, "a", "redone", "inputs.year changed"),
        (("", ""), {"year": 2}, "b", "redone", "depends on `a`, which is redone"),
        (("of: 0}", "of: 3}"), {"year": 1}, "b", "redone", "its params are written differently"),
        (("of: 0}", "of: 3}"), {"year": 1}, "a", "reused", "nothing it depends on has changed"),
        (
            ("c: {handler: count, params: {of", "c: {handler: tile, params: {tile"),
            {"year": 1},
            "c",
            "redone",
            "runs handler `tile`, ran `count`",
        ),
        (("next: c}, c:", "next: d}, d:"), {"year": 1}, "c", "impossible", "version 2 has no node `c`"),
        (("next: c}, c:", "next: d}, d:"), {"year": 1}, "d", "redone", "is new in version 2"),
        (
            ("output.of", "output.on"),
            {"year": 1},
            "c",
            "impossible",
            "`nodes.b.output.on` is missing: there is of",
        ),
    ],
)
async def test_the_dry_run_explains_each_decision(  # noqa: PLR0917 - a table
    world: World, edit: tuple[str, str], inputs: dict[str, int], node: str, fate: str, reason: str
):
    await ran(world)
    before = await world.run(SMALL)
    changed = ResumeContext(inputs=frozenset({"year"} if inputs["year"] != 1 else ()))
    resume_plan = await plan(world, SMALL.replace(*edit), before.job_id, inputs, changed)
    assert resume_plan[node][0] == fate
    assert resume_plan[node][1].startswith(reason[:30])


async def test_the_dry_run_lists_handlers_without_a_live_worker(world: World):
    await ran(world)
    before = await world.run(SMALL)
    around = ResumeContext(served=frozenset({"echo"}), inputs=frozenset({"year"}))
    resume_plan = await plan(world, SMALL, before.job_id, {"year": 2}, around)
    assert resume_plan["a"] == (ReuseKind.IMPOSSIBLE.value, "no live worker has the handler `count`")

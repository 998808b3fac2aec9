"""A job in one process: the real engine, turns and handlers; time passes at once."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import HandlerContext, PermanentError, Registry, compile_text, handler
from dagmaster.engine.model import Job
from dagmaster.errors import InputsInvalid
from dagmaster.local.memory_services import memory_services
from dagmaster.local.runner import LocalRunner
from dagmaster.store.memory.database import MemoryDatabase
from dagmaster.testing.clock import FakeClock
from dagmaster.testing.job_report import load_report
from dagmaster.testing.run import run_workflow
from dagmaster.testing.services import local_services

if TYPE_CHECKING:
    from collections.abc import Callable


@handler("give", queue="q")
async def give(ctx: HandlerContext) -> dict[str, Any]:
    return dict(ctx.params)


@handler("flaky", queue="q", retry=5)
async def flaky(ctx: HandlerContext, times: int) -> dict[str, Any]:
    if ctx.attempt <= times:
        raise RuntimeError(f"attempt {ctx.attempt}")
    return {"attempt": ctx.attempt}


@handler("broken", queue="q")
async def broken(message: str = "no") -> dict[str, Any]:
    raise PermanentError(message)


HANDLERS: list[Callable[..., Any]] = [give, flaky, broken]


class ReportRunner(LocalRunner):
    """Returns the report of a job instead of its id."""

    def __init__(self, registry: Registry, database: MemoryDatabase | None = None, **wiring) -> None:
        self.database = database or MemoryDatabase(wiring.get("clock"))
        super().__init__(memory_services(registry, database=self.database, **wiring))

    async def run(self, graph, inputs, **more):
        job_id = await super().run(graph, inputs, **more)
        return await load_report(self.database, job_id, node_order=graph.specs, note=self.note)


def run(text: str, inputs: dict[str, Any] | None = None, **more):
    return run_workflow(text, inputs, handlers=HANDLERS, **more)


def test_values_go_from_inputs_through_nodes_to_the_result():
    report = run(
        """
        name: values
        inputs: {x: {type: integer, required: true}}
        nodes:
          a: {handler: give, params: {v: "{{ inputs.x + 1 }}"}}
          b: {handler: give, depends_on: a, params: {text: "v is {{ nodes.a.output.v }}", up: "{{ upstream.output.v }}"}}
        outputs: {said: "{{ nodes.b.output.text }}", up: "{{ nodes.b.output.up }}", id: "{{ job.id }}"}
        """,
        {"x": 41},
    )
    assert report.status == "COMPLETED"
    assert report.result == {"said": "v is 42", "up": 42, "id": report.job_id}


def test_without_outputs_the_result_is_what_came_before_the_end():
    one = run("{name: one, nodes: {a: {handler: give, params: {v: 1}, next: END}}}")
    two = run("{name: two, nodes: {a: {handler: give, params: {v: 1}}, b: {handler: give}}}")
    assert one.result == {"v": 1}
    assert two.result == {"a": {"v": 1}, "b": {}}


def test_inputs_that_do_not_fit_run_nothing():
    with pytest.raises(InputsInvalid) as caught:
        run(
            "{name: n, inputs: {count: {type: integer, required: true}}, nodes: {a: {handler: give}}}",
            {"cuont": 1},
        )
    problems = [problem.message for problem in caught.value.problems]
    assert problems == ["unknown input 'cuont'", "missing input 'count'"]


def test_a_retry_succeeds_and_its_delay_passes_at_once():
    clock = FakeClock()
    before = clock.now()
    report = run("{name: n, nodes: {a: {handler: flaky, params: {times: 2}}}}", clock=clock)
    assert report.nodes["a"] == {
        "status": "COMPLETED",
        "attempts": 3,
        "output": {"attempt": 3},
        "error": None,
    }
    assert clock.now() - before >= 5 * 0.5 + 10 * 0.5


def test_a_permanent_error_is_not_tried_again_and_fails_the_job():
    report = run(
        "{name: n, nodes: {a: {handler: broken, params: {message: bad tile}}, b: {handler: give, depends_on: a}}}"
    )
    assert report.status == "FAILED"
    assert report.nodes["a"]["attempts"] == 1
    assert report.nodes["b"]["status"] == "SKIPPED"
    assert report.error["message"] == "node a failed: bad tile"


def test_an_expression_that_fails_at_run_time_fails_its_node_with_the_path_and_wastes_no_retry():
    report = run(
        "{name: n, nodes: {a: {handler: give, params: {k: 1}}, b: {handler: give, depends_on: a, params: {x: '{{ nodes.a.output.z }}'}}}}"
    )
    assert report.nodes["b"]["status"] == "FAILED"
    assert report.nodes["b"]["attempts"] == 1
    assert report.nodes["b"]["error"]["kind"] == "expression"
    assert "nodes.a.output.z" in report.nodes["b"]["error"]["path"]
    assert "k" in report.nodes["b"]["error"]["message"]


def test_tile_47_fails_and_the_other_99_run_to_their_end():
    @handler("tile", queue="q")
    async def tile(n: int) -> dict[str, Any]:
        if n == 47:
            raise PermanentError("tile 47 is broken")
        return {"n": n}

    text = """
    name: tiles
    inputs: {tiles: {type: array, required: true}}
    nodes:
      work: {type: fan_out, source: "{{ inputs.tiles }}", max_parallel: 7, task: {handler: tile, params: {n: "{{ item }}"}}, next: all}
      all: {type: fan_in}
    """
    report = run_workflow(text, {"tiles": list(range(100))}, handlers=[tile])
    states = [report.nodes[f"work__{n}"]["status"] for n in range(100)]
    assert states.count("COMPLETED") == 99
    assert states[47] == "FAILED"
    assert report.nodes["work"]["error"]["message"] == "1 of 100 children failed: work__47"
    assert report.nodes["all"]["status"] == "SKIPPED"


def test_nested_fan_outs_know_their_item_and_the_one_around_it_and_give_lists_of_lists():
    report = run(
        """
        name: nested
        nodes:
          grid:
            type: fan_out
            source: [[1, 2], [], [3]]
            task:
              type: fan_out
              source: "{{ item }}"
              task: {handler: give, params: {i: "{{ item }}", at: "{{ outer.index }}/{{ index }}", row: "{{ outer.item | length }}"}}
        outputs: {all: "{{ nodes.grid.outputs }}"}
        """
    )
    assert report.result["all"] == [
        [{"i": 1, "at": "0/0", "row": 2}, {"i": 2, "at": "0/1", "row": 2}],
        [],
        [{"i": 3, "at": "2/0", "row": 1}],
    ]


def test_a_tolerated_failure_is_null_among_the_outputs_and_told_in_failed():
    @handler("odd", queue="q")
    async def odd(n: int) -> dict[str, Any]:
        if n % 2:
            raise PermanentError("odd")
        return {"n": n}

    report = run_workflow(
        """
        name: tolerate
        nodes:
          work: {type: fan_out, source: [0, 1, 2], on_item_error: tolerate, task: {handler: odd, params: {n: "{{ item }}"}}, next: all}
          all: {type: fan_in}
        outputs: {outputs: "{{ nodes.work.outputs }}", failed: "{{ nodes.work.failed }}", all: "{{ nodes.all.output }}"}
        """,
        handlers=[odd],
    )
    assert report.result["outputs"] == [{"n": 0}, None, {"n": 2}]
    assert [(item["index"], item["error"]["message"]) for item in report.result["failed"]] == [(1, "odd")]
    assert report.result["all"]["results"] == [{"n": 0}, {"n": 2}]
    assert report.result["all"]["count"] == 2


def test_a_failure_that_is_allowed_can_be_asked_for():
    report = run(
        """
        name: catch
        nodes:
          risky: {handler: broken, allow_failure: true}
          route:
            type: conditional
            depends_on: risky
            condition_field: "{{ nodes.risky.status }}"
            branches: [{name: bad, condition: "== 'FAILED'", next: repair}, {default: true, next: go}]
          repair: {handler: give, params: {why: "{{ nodes.risky.error.message }}"}}
          go: {handler: give}
        """
    )
    assert report.status == "COMPLETED"
    assert report.nodes["repair"]["output"] == {"why": "no"}
    assert report.nodes["go"]["status"] == "SKIPPED"


def test_a_wait_of_a_day_passes_at_once_under_a_fake_clock():
    report = run("{name: n, nodes: {w: {type: wait, seconds: 86400, next: a}, a: {handler: give}}}")
    assert report.status == "COMPLETED"
    assert report.duration_seconds >= 86400


def test_a_deadline_ends_the_job():
    report = run(
        "{name: n, deadline_seconds: 60, nodes: {w: {type: wait, seconds: 3600, next: a}, a: {handler: give}}}"
    )
    assert report.status == "FAILED"
    assert report.error["kind"] == "deadline"


class Says:
    def __init__(self, *, yes: bool) -> None:
        self.yes = yes
        self.asked: list[str] = []

    async def approval(self, request):
        self.asked.append(request.message)
        return self.yes, "ada", "because"


@pytest.mark.parametrize("yes", [True, False])
def test_an_approval_is_answered_by_the_caller(yes):
    answers = Says(yes=yes)
    text = "{name: n, inputs: {d: {default: dem}}, nodes: {ok: {type: approval, message: 'Publish {{ inputs.d }}?', next: a}, a: {handler: give}}}"
    report = run(text, answers=answers)
    assert answers.asked == ["Publish dem?"]
    assert report.status == ("COMPLETED" if yes else "FAILED")
    if yes:
        assert report.nodes["ok"]["output"]["approved_by"] == "ada"
    else:
        assert report.nodes["ok"]["error"]["message"] == "rejected by ada: because"


@pytest.mark.parametrize(("approvers", "person"), [("", "tester"), (", approvers: [ada, bob]", "ada")])
def test_a_mapping_answers_approvals_by_their_nodes(approvers, person):
    text = f"{{name: n, nodes: {{ok: {{type: approval{approvers}}}, other: {{type: approval}}}}}}"
    report = run(text, answers={"ok": True, "other": False})
    assert report.nodes["ok"]["output"]["approved_by"] == person
    assert report.nodes["other"]["error"]["message"] == "rejected by tester"
    assert "other waits for an approval" in run(text, answers={"ok": True}).note
    with pytest.raises(
        ValueError, match="answers= has 'othr', and the workflow has no approval of that name: did you"
    ):
        run(text, answers={"ok": True, "othr": False})
    with pytest.raises(ValueError, match="has no approval of that name: it has none"):
        run("{name: n, nodes: {a: {type: wait, seconds: 1}}}", answers={"a": True})


@pytest.mark.parametrize("answers", [{"ok": "yes"}, [True], True])
def test_answers_that_cannot_answer_are_a_type_error(answers):
    with pytest.raises(TypeError, match=r'as \{"ok": True\}, or an object with `async def approval'):
        run("{name: n, nodes: {ok: {type: approval}}}", answers=answers)


CHILD = "{workflow_id: child, inputs: {x: {type: integer, required: true}}, nodes: {a: {handler: give, params: {y: '{{ inputs.x * 2 }}'}}}}"


def with_children(text: str, **children: str):
    registry = Registry(HANDLERS)
    graphs = {name: compile_text(child, handlers=registry).graph for name, child in children.items()}
    runner = ReportRunner(registry, clock=FakeClock())
    graph = compile_text(text, handlers=registry).graph
    return asyncio.run(runner.run(graph, {}, children=list(graphs.values())))


def test_a_child_job_gives_its_result():
    report = with_children(
        "{name: p, nodes: {c: {type: workflow, workflow_id: child, inputs: {x: 21}}}}", child=CHILD
    )
    assert report.nodes["c"]["output"] == {"y": 42}


def test_one_child_job_runs_for_each_item():
    text = """
    name: p
    nodes:
      each: {type: fan_out, source: [1, 2], task: {type: workflow, workflow_id: child, inputs: {x: "{{ item }}"}}}
    outputs: {ys: "{{ nodes.each.outputs }}"}
    """
    assert with_children(text, child=CHILD).result == {"ys": [{"y": 2}, {"y": 4}]}


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("{type: workflow, workflow_id: nobody}", "no workflow 'nobody' was found"),
        ("{type: workflow, workflow_id: child, inputs: {x: many}}", "is not a whole number"),
        ("{type: workflow, workflow_id: itself}", "child jobs nest at most 8 deep"),
    ],
)
def test_a_child_job_that_cannot_start_fails_its_node_with_the_reason(node, message):
    itself = "{workflow_id: itself, nodes: {again: {type: workflow, workflow_id: itself}}}"
    report = with_children(f"{{name: p, nodes: {{c: {node}}}}}", child=CHILD, itself=itself)
    assert report.status == "FAILED"
    assert message in str(report.nodes["c"]["error"])


def test_secrets_reach_the_handler_and_only_there():
    seen = []

    @handler("use", queue="q")
    async def use(ctx: HandlerContext) -> dict[str, Any]:
        seen.append(ctx.params)
        return {}

    registry = Registry([use])
    graph = compile_text(
        "{name: n, nodes: {a: {handler: use, params: {h: 'Bearer {{ secrets.TOKEN }}'}}}}", handlers=registry
    ).graph
    database = MemoryDatabase()
    runner = ReportRunner(registry, database=database, secrets={"TOKEN": "canary-s3"}.get, clock=FakeClock())
    report = asyncio.run(runner.run(graph, {}))
    assert seen == [{"h": "Bearer canary-s3"}]
    assert "canary-s3" not in str(dataclasses.asdict(report))
    assert "canary-s3" not in str(vars(database))


def test_a_secret_that_is_not_there_fails_the_node_at_once():
    report = run("{name: n, nodes: {a: {handler: give, params: {h: '{{ secrets.TOKEN }}'}}}}")
    assert report.nodes["a"]["attempts"] == 1
    assert "there is no secret 'TOKEN'" in report.nodes["a"]["error"]["message"]


def test_a_cancel_stops_what_runs_and_explains_every_node():
    started = asyncio.Event()

    @handler("long", queue="q")
    async def long() -> dict[str, Any]:
        started.set()
        await asyncio.Event().wait()
        return {}

    async def scenario():
        registry = Registry([long, give])
        graph = compile_text(
            "{name: n, nodes: {a: {handler: long}, b: {handler: give, depends_on: a}}}", handlers=registry
        ).graph
        runner = ReportRunner(registry)
        job = asyncio.ensure_future(runner.run(graph, {}))
        await started.wait()
        runner.cancel()
        return await job

    report = asyncio.run(scenario())
    assert report.status == "CANCELLED"
    assert {node: details["status"] for node, details in report.nodes.items()} == {
        "a": "CANCELLED",
        "b": "CANCELLED",
    }


def test_a_signal_that_comes_early_is_not_lost():
    async def scenario():
        registry = Registry(HANDLERS)
        text = "{name: n, nodes: {a: {handler: give, next: w}, w: {type: wait, signal: go, next: b}, b: {handler: give, params: {p: '{{ nodes.w.output.p }}'}}}}"
        runner = ReportRunner(registry)
        job = asyncio.ensure_future(runner.run(compile_text(text, handlers=registry).graph, {}))
        await asyncio.sleep(0)
        runner.signal("go", {"p": 7})
        return await job

    assert asyncio.run(scenario()).nodes["b"]["output"] == {"p": 7}


def test_no_more_than_max_parallel_children_run_at_a_time():
    now, most = 0, 0

    @handler("count", queue="q")
    async def count() -> dict[str, Any]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        # Everybody else who may run gets to run.
        for _ in range(100):
            await asyncio.sleep(0)
        now -= 1
        return {}

    text = "{name: n, nodes: {f: {type: fan_out, source: [1,2,3,4,5,6,7,8,9], max_parallel: 3, task: {handler: count}}}}"
    report = run_workflow(text, handlers=[count])
    assert report.status == "COMPLETED"
    assert most == 3


def test_a_child_job_that_is_started_and_stopped_in_one_turn_never_runs():
    ran = []

    @handler("note", queue="q")
    async def note() -> dict[str, Any]:
        ran.append(1)
        return {}

    @handler("gone", queue="q")
    async def gone() -> dict[str, Any]:
        raise PermanentError("gone")

    registry = Registry([note, gone, give])
    child = compile_text("{workflow_id: child, nodes: {x: {handler: note}}}", handlers=registry).graph
    parent = compile_text(
        "{name: p, on_failure: cancel_running, nodes: {b: {handler: give, next: c}, c: {type: workflow, workflow_id: child}, a: {handler: gone}}}",
        handlers=registry,
    ).graph
    report = asyncio.run(ReportRunner(registry, clock=FakeClock()).run(parent, {}, children=[child]))
    assert report.nodes["c"]["status"] == "CANCELLED"
    assert ran == []


def test_an_error_outside_the_job_is_not_lost():
    class Broken:
        async def approval(self, request):
            raise LookupError("no such user")

    with pytest.raises(LookupError, match="no such user"):
        run("{name: n, nodes: {ok: {type: approval}}}", answers=Broken())


def test_one_runner_runs_one_job_after_another():
    registry = Registry(HANDLERS)
    graph = compile_text("{name: n, nodes: {a: {handler: give}}}", handlers=registry).graph

    async def twice():
        runner = ReportRunner(registry, clock=FakeClock())
        return await runner.run(graph, {}), await runner.run(graph, {})

    first, second = asyncio.run(twice())
    assert first.status == second.status == "COMPLETED"
    assert second.nodes["a"]["attempts"] == 1


def test_a_failed_nested_fan_out_is_null_among_the_outputs():
    @handler("odd", queue="q")
    async def odd(n: int) -> dict[str, Any]:
        if n == 3:
            raise PermanentError("three")
        return {"n": n}

    report = run_workflow(
        """
        name: n
        nodes:
          f:
            type: fan_out
            source: [[1], [2, 3]]
            on_item_error: tolerate
            task: {type: fan_out, source: "{{ item }}", task: {handler: odd, params: {n: "{{ item }}"}}}
        outputs: {all: "{{ nodes.f.outputs }}"}
        """,
        handlers=[odd],
    )
    assert report.result == {"all": [[{"n": 1}], None]}


def test_a_wait_for_a_signal_that_nobody_sends_ends_with_the_reason():
    report = run("{name: n, nodes: {w: {type: wait, signal: go}}}")
    assert report.status == "CANCELLED"
    assert report.note == (
        "the job cannot continue: w waits for an approval or a signal that this run cannot receive;"
        " `dagmaster run --signal go` sends it"
    )


def test_an_approval_that_nobody_gives_ends_with_the_ways_to_give_it():
    note = run(
        "{name: n, nodes: {a: {type: approval}, b: {type: approval}, w: {type: wait, signal: go}}}"
    ).note
    assert note == (
        "the job cannot continue: a, b, w wait for an approval or a signal that this run cannot receive;"
        " `dagmaster run --approve a --approve b --signal go` sends them,"
        " run_workflow(…, answers={'a': True, 'b': True}) of dagmaster.testing approves"
    )


def test_a_checkpoint_is_given_to_the_next_attempt():
    @handler("phases", queue="q")
    async def phases(ctx: HandlerContext) -> dict[str, Any]:
        done = (ctx.checkpoint_data or {}).get("done", 0)
        for phase in range(done, 20):
            if phase == 13 and ctx.attempt == 1:
                raise RuntimeError("killed at 13")
            ctx.checkpoint(f"phase {phase}", {"done": phase + 1})
        return {"resumed_at": done}

    report = run_workflow("{name: n, nodes: {a: {handler: phases}}}", handlers=[phases])
    assert report.nodes["a"]["output"] == {"resumed_at": 13}


@pytest.mark.slow
def test_more_children_than_one_step_makes_are_made_in_batches_and_all_complete():
    report = run(
        "{name: n, inputs: {n: {type: array, required: true}}, nodes: {f: {type: fan_out, source: '{{ inputs.n }}', task: {handler: give}}}}",
        {"n": list(range(12_000))},
    )
    assert report.status == "COMPLETED"
    assert report.nodes["f"]["output"] == {"fan_out_count": 12_000}
    assert len(report.nodes) == 12_001


def test_the_stored_rows_give_the_same_job_again():
    registry = Registry(HANDLERS)
    graph = compile_text(
        "{name: n, nodes: {f: {type: fan_out, source: [1, 2], task: {handler: give}}}}", handlers=registry
    ).graph
    database = MemoryDatabase()
    report = asyncio.run(ReportRunner(registry, database=database, clock=FakeClock()).run(graph, {}))
    stored = database.jobs[report.job_id]
    rebuilt = Job.rebuild(graph, stored.row, [node.row for node in stored.nodes.values()])
    assert {node.id: node.status for node in rebuilt.nodes.values()} == {
        "f": "COMPLETED",
        "f__0": "COMPLETED",
        "f__1": "COMPLETED",
    }
    assert rebuilt.open == 0


def test_a_test_knows_its_own_handlers_and_the_shipped_ones(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dagmaster import handler\n\n\n@handler('of_a_file', queue='q')\nasync def one() -> dict:\n    return {'a': 2}\n"
    )
    text = """
        name: mixed
        nodes:
          hello: {handler: hello_world, params: {name: Ada}}
          list: {handler: raster.list_files, depends_on: hello, params: {container_name: bronze}}
          mine: {handler: give, depends_on: list, params: {files: "{{ nodes.list.output.count }}"}}
          file: {handler: of_a_file, depends_on: mine}
        outputs: {files: "{{ nodes.mine.output.files }}", a: "{{ nodes.file.output.a }}"}
        """
    services = local_services(tmp_path)
    (tmp_path / "bronze" / "a.tif").write_bytes(b"pixels")
    for file in (tmp_path / "mine.py", str(tmp_path / "mine.py")):
        assert run_workflow(text, handlers=[give, file], services=services).result == {"files": 1, "a": 2}


@pytest.mark.parametrize("name", ["raster.validate", "raster_validate", "hello_world"])
def test_a_double_of_a_test_is_meant_where_a_handler_that_ships_has_its_name(name):
    @handler(name, queue="q")
    async def double() -> dict[str, Any]:
        return {"double": True}

    for handlers in ([double], Registry([double])):
        report = run_workflow(f"{{name: n, nodes: {{a: {{handler: {name}}}}}}}", handlers=handlers)
        assert report.result == {"double": True}


def test_a_file_or_module_may_be_named_alone(tmp_path):
    file = tmp_path / "alone.py"
    file.write_text("from dagmaster import handler\n\n\n@handler('x.y', queue='q')\ndef one() -> None: ...\n")
    for named in (file, str(file), "dagmaster.handlers.examples"):
        name = "echo" if named == "dagmaster.handlers.examples" else "x.y"
        assert (
            run_workflow(f"{{name: n, nodes: {{a: {{handler: {name}}}}}}}", handlers=named).status
            == "COMPLETED"
        )


# ── Timeouts ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Calls:
    """Counts the calls of a handler that run at the same time."""

    def __init__(self) -> None:
        self.running = self.most = self.total = 0
        self.interrupted = 0

    def __enter__(self) -> None:
        self.running += 1
        self.total += 1
        self.most = max(self.most, self.running)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.running -= 1
        self.interrupted += kind is not None


@pytest.mark.slow
def test_a_plain_function_that_timed_out_is_interrupted():
    calls = Calls()

    @handler("loops", queue="q", timeout_seconds=1, retry=2)
    def loops(ctx: HandlerContext) -> dict[str, Any]:
        with calls:
            while ctx.attempt == 1:
                time.sleep(0.001)
        return {"attempt": ctx.attempt}

    report = run_workflow("{name: n, nodes: {a: {handler: loops}}}", handlers=[loops])
    assert report.nodes["a"]["output"] == {"attempt": 2}
    assert (calls.total, calls.most, calls.interrupted) == (2, 1, 1)


@pytest.mark.slow
def test_an_attempt_starts_only_when_the_one_before_it_has_really_ended():
    calls = Calls()

    @handler("sleeps", queue="q", timeout_seconds=1, retry=2)
    def sleeps(ctx: HandlerContext) -> dict[str, Any]:
        with calls:
            # One call into the system, which no exception interrupts.
            time.sleep(1.5 if ctx.attempt < 2 else 0.0)
        return {"attempt": ctx.attempt}

    report = run_workflow("{name: n, nodes: {a: {handler: sleeps}}}", handlers=[sleeps])
    assert report.nodes["a"]["output"] == {"attempt": 2}
    assert (calls.total, calls.most) == (2, 1)


@pytest.mark.slow
def test_a_function_that_catches_everything_is_waited_for_and_has_timed_out_all_the_same():
    @handler("stubborn", queue="q", timeout_seconds=1, retry=1)
    def stubborn() -> dict[str, Any]:
        try:
            while True:
                time.sleep(0.001)
        except BaseException:  # noqa: BLE001 - as some handlers do
            return {"ok": True}

    report = run_workflow("{name: n, nodes: {a: {handler: stubborn}}}", handlers=[stubborn])
    assert report.nodes["a"]["error"]["kind"] == "timeout"


# ── Secrets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


# ── What cannot continue ────────────────────────────────────────────────────────────────────────────────────────────


def test_an_approval_that_is_left_open_ends_the_job_with_the_reason():
    class Silent:
        async def approval(self, request):
            await asyncio.sleep(0.01)

    report = run("{name: n, nodes: {ok: {type: approval}}}", answers=Silent())
    assert report.status == "CANCELLED"
    assert report.note.startswith("the job cannot continue: ok waits")


def test_an_approval_with_a_timeout_is_decided_by_the_clock():
    report = run("{name: n, nodes: {ok: {type: approval, timeout_seconds: 3600, on_timeout: approve}}}")
    assert (report.status, report.note) == ("COMPLETED", "")


def test_a_job_that_cannot_be_advanced_raises_and_does_not_wait(monkeypatch, caplog):
    async def broken(*_args: object, **_named: object) -> None:
        raise LookupError("a mistake of ours")

    monkeypatch.setattr("dagmaster.orchestrator.job_advancer.run_turn", broken)
    with pytest.raises(RuntimeError, match=r"could not be advanced \(LookupError\)"):
        run("{name: n, nodes: {a: {handler: give}}}")
    assert "a mistake of ours" in caplog.text

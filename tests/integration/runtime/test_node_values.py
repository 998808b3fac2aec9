"""Outputs of tasks: large ones, invalid ones, and secrets, which are never shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.submission import JobRequest
from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.authoring.source_document import read_document
from dagmaster.errors import SubmissionRejected, WorkflowInvalid
from dagmaster.ports.handler_reports import HandlerResult
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from tests.integration.runtime.runtime_world import Gate

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

CANARY = "canary-3f7a-'quoted\"-ü"


# ── Large outputs ──


async def test_an_output_that_is_large_is_a_blob_and_can_be_used_as_any_other(world: World):
    text = "{name: n, nodes: {a: {handler: make_chunks, params: {count: 20000}, next: b}, b: {handler: echo, params: {n: '{{ nodes.a.output.chunks[19999][0] }}'}}}, outputs: {n: '{{ nodes.b.output.echoed_params.n }}'}}"
    report = await world.run(text)
    assert report.result == {"n": 19999}
    output, ref = (await world.rows("SELECT output, output_ref FROM dag_node_states WHERE node_id = 'a'"))[0]
    assert output is None
    assert json.loads(await world.blobs.read(ref))["count"] == 20000
    assert report.nodes["a"]["output"]["count"] == 20000


async def test_a_fan_out_over_a_large_list_of_large_outputs_has_a_large_result(world: World):
    text = "{name: n, nodes: {f: {type: fan_out, source: [1, 2, 3], task: {handler: make_chunks, params: {count: 10000}}, next: all}, all: {type: fan_in, aggregation: concat}}, outputs: {all: '{{ nodes.all.output.results }}'}}"
    report = await world.run(text)
    assert len(report.result["all"]) == 30_000
    assert await world.value("SELECT result_ref FROM dag_jobs") is not None
    refs = await world.rows("SELECT output_ref FROM dag_node_states WHERE output_ref IS NOT NULL")
    assert len(refs) == 4


async def test_a_blob_that_cannot_be_written_fails_the_attempt_with_the_reason(world: World):
    world.blobs.root.write_text("a file where a folder should be")
    report = await world.run(
        "{name: n, nodes: {a: {handler: make_chunks, params: {count: 20000}, retry: none}}}"
    )
    assert report.nodes["a"]["error"]["kind"] == "blobs_unavailable"


# ── What is no output ──


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        ("set", "`bad`"),
        ("nan", "`bad`"),
        ("list", "type list"),
        ("text", "type str"),
        ("deep", "deep"),
        ("huge", "256 MiB"),
    ],
)
async def test_an_invalid_output_fails_the_node_with_the_reason(world: World, gives: str, message: str):
    @handler("gives", queue="q")
    async def give() -> Any:
        match gives:
            case "set":
                return {"bad": {1}}
            case "nan":
                return {"bad": float("nan")}
            case "list":
                return [1]
            case "text":
                return "text"
            case "huge":
                # The same text many times: it is counted as often as it is there.
                return {"bad": ["x" * 1024 * 1024] * 257}
        nested: Any = {}
        for _ in range(2000):
            nested = {"n": nested}
        return nested

    world.handlers.append(give)
    report = await world.run("{name: n, nodes: {a: {handler: gives}}}")
    assert report.status == "FAILED"
    assert report.nodes["a"]["error"]["kind"] == "invalid_output"
    assert message in report.nodes["a"]["error"]["message"]
    assert await world.attempts(report.job_id, "a") == ["FAILED"]


async def test_metrics_stand_with_the_attempt(world: World):
    @handler("measured", queue="q")
    async def measured() -> Any:
        return HandlerResult(success=True, output={"n": 1}, metrics={"pixels": 5})

    world.handlers.append(measured)
    report = await world.run("{name: n, nodes: {a: {handler: measured}}}")
    assert report.nodes["a"]["output"] == {"n": 1}
    assert json.loads(await world.value("SELECT metrics FROM dag_task_attempts")) == {"pixels": 5}


STRANGE = "\x00\x1b[31m\ud800 \U0001f600 \\u0000 '\""


@pytest.mark.parametrize("how", ["return", "raise", "print", "progress", "checkpoint"])
async def test_text_that_no_database_likes_goes_through_or_fails_the_attempt(world: World, how: str):
    @handler("strange", queue="q")
    async def strange(ctx: HandlerContext) -> Any:
        match how:
            case "raise":
                raise RuntimeError(STRANGE)
            case "print":
                print(STRANGE)  # noqa: T201 - that is what is tested
            case "progress":
                ctx.progress(1, 2, STRANGE)
            case "checkpoint":
                ctx.checkpoint(STRANGE, {STRANGE: STRANGE}, [STRANGE])
        return {STRANGE: STRANGE} if how == "return" else {}

    world.handlers.append(strange)
    report = await world.run("{name: n, nodes: {a: {handler: strange, retry: none}, b: {handler: echo}}}")
    assert report.nodes["a"]["status"] in ("COMPLETED", "FAILED")
    # The worker and the orchestrator are well.
    assert (await world.run("{name: n, nodes: {a: {handler: echo}}}")).status == "COMPLETED"


@pytest.mark.parametrize("where", ["signal", "payload", "comment"])
async def test_unstorable_text_in_a_command_stops_no_orchestrator(world: World, where: str):
    await world.start()
    job = await world.submit("{name: n, nodes: {ok: {type: approval}, w: {type: wait, signal: go}}}")
    await world.until_event(job, "ApprovalRequested")
    if where == "signal":
        await world.send(job, "signal", name=f"go{STRANGE}", payload={})
    payload = STRANGE if where == "payload" else "x"
    await world.send(job, "signal", name="go", payload={payload: payload})
    await world.send(job, "approve", node="ok", comment=STRANGE if where == "comment" else "")
    assert (await world.finished(job)).status == "COMPLETED"


# ── Secrets ──

HOWS = ["return", "raise", "print", "progress"]
KNOWN = "the checkpoint is stored as the handler gave it (worker/telemetry_buffer.py, Notes.checkpoint)"


@pytest.mark.parametrize("name", ["tell", "tell_in_process"])
@pytest.mark.parametrize("how", [*HOWS, "checkpoint"])
async def test_a_secret_reaches_the_handler_and_no_row(world: World, name: str, how: str):
    world.secrets["KEY"] = CANARY
    text = f"{{name: n, nodes: {{a: {{handler: {name}, params: {{secret: '{{{{ secrets.KEY }}}}', how: {how}}}, retry: none}}}}}}"
    report = await world.run(text)
    if how == "raise":
        assert "cannot log in with ***" in report.nodes["a"]["error"]["message"]
    else:
        assert report.nodes["a"]["output"]["length"] == len(CANARY)
    if how == "print":
        assert (await world.log(report.job_id, "a")).count("***") == 2
    everything = await world.everything()
    assert not [spelled for spelled in spellings() if spelled in everything]


async def test_a_job_of_a_tenant_uses_the_secrets_with_its_name_and_no_other_ones(world: World):
    world.secrets |= {"KEY": CANARY, "GLOBEX__KEY": CANARY, "ACME__KEY": "own"}
    await world.rows("INSERT INTO dag_tenants (name) VALUES ('acme')")
    flow = "{{name: n, nodes: {{a: {{handler: tell, params: {{secret: '{{{{ secrets.{} }}}}', how: return}}, retry: none}}}}}}"
    for name in ("KEY", "GLOBEX__KEY"):
        report = await world.run(flow.format(name), tenant="acme")
        assert report.status == "FAILED"
        message = report.nodes["a"]["error"]["message"]
        assert message.startswith(f"secrets.{name} is not of the tenant acme"), message
    report = await world.run(flow.format("ACME__KEY"), tenant="acme")
    assert report.nodes["a"]["output"]["length"] == len("own")
    # The installation uses all.
    report = await world.run(flow.format("ACME__KEY"))
    assert report.status == "COMPLETED"


@pytest.mark.parametrize("name", ["tell", "tell_in_process"])
@pytest.mark.parametrize("how", [*HOWS, "checkpoint"])
async def test_the_value_of_a_secret_input_is_stored_nowhere(world: World, name: str, how: str):
    text = f"{{name: n, inputs: {{key: {{type: string, secret: true, required: true}}}}, nodes: {{a: {{handler: {name}, params: {{secret: '{{{{ inputs.key }}}}', how: {how}}}, retry: none}}}}}}"
    await world.run(text, {"key": CANARY})
    everything = await world.everything()
    assert not [spelled for spelled in spellings() if spelled in everything]


EVENTS = "keep_secrets (orchestrator/turn_commit.py) cleans what failed, and not the other events"


@pytest.mark.parametrize(
    "node",
    [
        "{handler: echo, queue: q, params: {n: '{{ inputs.key | int }}'}}",
        "{type: wait, seconds: '{{ inputs.key }}'}",
        "{type: wait, until: '{{ inputs.key }}'}",
        "{type: fan_out, source: '{{ inputs.key | default([]) }}', task: {handler: echo, queue: q}}",
        "{type: conditional, condition_field: '{{ inputs.key }}', branches: [{name: x, condition: '== 5', next: END}]}",
        pytest.param(
            "{type: workflow, workflow_id: child, inputs: {n: '{{ inputs.key }}'}}",
        ),
        pytest.param(
            "{type: approval, timeout_seconds: 0.1, message: 'release with {{ inputs.key }}?'}",
        ),
    ],
    ids=["params", "seconds", "until", "source", "conditional", "child", "approval"],
)
async def test_a_stored_definition_that_computes_from_a_secret_input_fails_its_node_and_shows_nothing(
    world: World, node: str
):
    child = "{workflow_id: child, inputs: {n: {type: string, enum: [x], required: true}}, nodes: {a: {handler: echo}}}"
    text = (
        f"{{name: n, inputs: {{key: {{type: string, secret: true, required: true}}}}, nodes: {{a: {node}}}}}"
    )
    if "type: workflow" not in node:
        with pytest.raises(WorkflowInvalid, match="secret input 'key'"):
            world.graph(text)
    # As an earlier version stored it.
    graph = compile_definition(read_document(text, "stored").data)
    await world.start()
    request = JobRequest(inputs={"key": CANARY}, child_graphs=[await world.publish(child)])
    (accepted,) = await world.intake.submit(graph, request)
    report = await world.finished(accepted.job_id)
    assert report.status == "FAILED"
    assert "secret" in report.nodes["a"]["error"]["message"]
    everything = await world.everything()
    assert not [line for line in everything.splitlines() if any(spelled in line for spelled in spellings())]


async def test_a_secret_that_is_not_there_fails_the_node_and_names_it(world: World):
    report = await world.run(
        "{name: n, nodes: {a: {handler: tell, params: {secret: '{{ secrets.KEY }}', how: x}}}}"
    )
    assert report.nodes["a"]["error"]["kind"] == "secret_missing"
    assert "DAGMASTER_SECRET_KEY" in report.nodes["a"]["error"]["message"]


async def test_a_secret_printed_in_two_parts_is_hidden(world: World):
    """Logs are cleaned as they are stored, some at a time: a secret may be cut in two there."""
    first, go = Gate(), Gate()

    @handler("in_parts", queue="q")
    async def in_parts(secret: str) -> None:
        print("long before " * 9, secret[:9], end="")  # noqa: T201 - that is what is tested
        first.open()
        await go.wait()
        print(secret[9:])  # noqa: T201 - likewise

    world.handlers.append(in_parts)
    world.secrets["KEY"] = CANARY
    await world.start()
    job = await world.submit(
        "{name: n, nodes: {a: {handler: in_parts, params: {secret: '{{ secrets.KEY }}'}}}}"
    )
    await first.wait()
    await world.until("SELECT count(*) > 0 FROM dag_task_logs")
    go.open()
    await world.finished(job)
    assert CANARY not in (await world.log(job, "a"))


def spellings() -> list[str]:
    """Return the secret as it is, and as JSON writes it."""
    return [CANARY, json.dumps(CANARY)[1:-1], json.dumps(CANARY, ensure_ascii=False)[1:-1], CANARY[:12]]


# ── The same key ──


async def test_the_same_key_is_the_same_job_however_often_it_comes(world: World):
    text = "{name: n, inputs: {n: {type: integer, default: 1}}, nodes: {a: {handler: echo}}}"
    accepted = [await world.accept(text, {"n": 1}, idempotency_key="k", submitted_by="ada") for _ in range(3)]
    assert len({each.job_id for each in accepted}) == 1
    assert [each.is_new for each in accepted] == [True, False, False]
    # The same inputs, said in another way.
    assert not (await world.accept(text, {}, idempotency_key="k", submitted_by="ada")).is_new
    await world.start()
    await world.finished(accepted[0].job_id)
    # And when it is over.
    assert not (await world.accept(text, {"n": 1}, idempotency_key="k", submitted_by="ada")).is_new
    assert await world.value("SELECT count(*) FROM dag_jobs") == 1


async def test_the_same_key_for_something_else_is_refused_and_changes_nothing(world: World):
    text = "{name: n, inputs: {n: {type: integer, default: 1}}, nodes: {a: {handler: echo}}}"
    await world.accept(text, {"n": 1}, idempotency_key="k")
    for other, inputs in ((text, {"n": 2}), (text.replace("name: n", "name: m"), {"n": 1})):
        with pytest.raises(SubmissionRejected, match="this idempotency key was used for another job"):
            await world.accept(other, inputs, idempotency_key="k")
    assert (await world.accept(text, {"n": 2}, idempotency_key="k", submitted_by="bob")).is_new
    assert await world.value("SELECT count(*) FROM dag_jobs") == 2

"""Functions that nothing decorates, run by their names on workers that allow their package."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from dagmaster.sdk.code_fingerprints import code_fingerprint
from dagmaster.store.postgres.worker_store import PostgresWorkerStore
from tests.integration.runtime.runtime_world import Gate, read

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.runtime.runtime_world import World

ETL = "tests.integration.runtime.etl"


def node(name: str, function: str, more: str = "") -> str:
    return f"{name}: {{handler: {ETL}.{function}, queue: q{more and ', '}{more}}}"


def flow(*nodes: str) -> str:
    return f"{{name: n, nodes: {{{', '.join(nodes)}}}}}"


@pytest.fixture
def fresh() -> None:
    """Forget the submodules: a worker imports them on demand."""
    for name in [name for name in sys.modules if name.startswith(f"{ETL}.")]:
        del sys.modules[name]


@pytest.mark.usefixtures("fresh")
async def test_async_plain_and_generator_functions_run_as_tasks_with_any_result(world: World):
    world.modules.append(ETL)
    await world.orchestrator()
    worker = await world.worker()
    text = flow(
        node("load", "load", "params: {day: '2026-01-05'}"),
        node("clean", "steps.clean", "params: {rows: '{{ nodes.load.output }}'}, depends_on: load"),
        node("nothing", "steps.nothing"),
        node("count", "steps.count", "params: {limit: 3}"),
        node("stream", "steps.stream", "params: {limit: 3}"),
    )
    # Nothing but the worker imports them.
    world.allows_missing = True
    world.modules.clear()
    report = await world.run(text)
    assert report.status == "COMPLETED", report.error
    outputs = {name: one["output"] for name, one in report.nodes.items() if name not in {"start", "end"}}
    # A plain function runs in a child process.
    assert outputs.pop("clean") not in {None, os.getpid()}
    assert outputs == {"load": ["2026-01/0", "2026-01/1"], "nothing": None, "count": 3, "stream": "done"}
    assert await world.log(report.job_id, "clean") == "cleaning 2\n"
    # Functions of the submodule became known when they were needed: the next claim counts them.
    assert {f"{ETL}.steps.clean", f"{ETL}.steps.nothing"} <= worker.held.process_bound
    assert (worker.held.in_processes, len(worker.held)) == (0, 0)


async def test_params_that_do_not_fit_the_annotations_fail_the_attempt_for_good(world: World):
    world.modules.append(ETL)
    day = "params: {day: '{{ nodes.bad.output.echoed_params.text }}'}, depends_on: bad"
    report = await world.run(flow(node("load", "load", day), "bad: {handler: echo, params: {text: no day}}"))
    error = report.nodes["load"]["error"]
    assert error["kind"] == "invalid_params"
    assert "day" in error["message"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("steps.clena", "has no function 'clena': did you mean 'clean'?"),
        ("broken.run", "No module named 'not_installed_here'"),
        ("getcwd", "is not a function"),
        ("os.getpid", "No module named 'tests.integration.runtime.etl.os'"),
    ],
)
async def test_a_name_that_is_no_entrypoint_fails_the_node_with_the_reason_although_others_have_the_package(
    world: World, function: str, reason: str
):
    world.modules.append(ETL)
    await world.orchestrator()
    await world.worker()
    await world.worker()
    world.modules.clear()
    world.allows_missing = True
    report = await world.run(flow(node("a", function)))
    error = report.nodes["a"]["error"]
    assert error["kind"] == "unknown_handler"
    assert f"'{ETL}.{function}'" in error["message"]
    assert reason in error["message"]
    assert await world.attempts(report.job_id, "a") == ["FAILED"]


async def test_a_worker_without_the_module_says_so_in_why(world: World):
    world.modules.append("tests.integration.runtime.etl.steps")
    await world.orchestrator()
    await world.worker()
    world.modules[:] = [ETL]
    report = await world.run(flow(node("load", "load", "params: {day: '2026-01-05'}")))
    message = report.nodes["load"]["error"]["message"]
    assert f"has the handler '{ETL}.load'" in message
    assert f"start one with `--handlers {ETL}`, or correct the name. `dagmaster handlers list`" in message
    assert len(message) < 200
    reason = (await world.why(report.job_id)).reason_for("load").sentence
    assert f"'{ETL}.load'" in reason
    assert f"the module '{ETL}' is not allowed here (--handlers allows functions of {ETL}.steps)" in reason
    assert f"start one with `--handlers {ETL}`, or with the module or file that defines it" in reason


async def test_a_task_is_left_to_the_worker_that_has_its_package(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    asked, has_joined = Gate(), Gate()
    has_handler = PostgresWorkerStore.other_worker_has_handler

    async def after_the_other_joined(
        store: PostgresWorkerStore, task_id: str, *, by_package: bool = True
    ) -> bool:
        asked.open()
        await has_joined.wait()
        return await has_handler(store, task_id, by_package=by_package)

    monkeypatch.setattr(PostgresWorkerStore, "other_worker_has_handler", after_the_other_joined)
    await world.orchestrator()
    without = await world.worker()
    world.modules.append(ETL)
    job_id = await world.submit(flow(node("a", "steps.count", "params: {limit: 2}")))
    await asked.wait()
    await world.worker()
    has_joined.open()
    report = await world.finished(job_id)
    assert report.nodes["a"]["output"] == 2
    *released, last = await world.attempts(job_id, "a")
    # A worker without the package may claim it again before the one that has it.
    assert (set(released), last) == ({"RELEASED"}, "COMPLETED")
    assert world.is_alive(without)


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_worker_with_other_code_than_the_submitter_runs_the_task_and_reports_it(
    world: World, is_same: bool, tmp_path: Path
):
    from tests.integration.runtime.etl import load

    own = code_fingerprint(load)
    fingerprint = own if is_same else "0123456789abcdef"
    world.modules.append(ETL)
    await world.orchestrator()
    await world.worker(log_dir=tmp_path / "not" / "there")
    text = flow(
        node("good", "load", f"params: {{day: '2026-01-05'}}, code_fingerprint: '{fingerprint}'"),
        node("none", "load", "params: {day: '2026-01-05'}"),
    )
    report = await world.run(text)
    assert report.status == "COMPLETED"
    log = await world.log(report.job_id, "good")
    rows = await world.rows("SELECT node_id, task_id, metrics FROM dag_task_attempts ORDER BY node_id")
    metrics = {row["node_id"]: row["metrics"] and read(row["metrics"]) for row in rows}
    assert metrics["none"] is None
    if is_same:
        assert (log, metrics["good"]) == ("", None)
        return
    assert metrics["good"] == {"code_fingerprint": {"submitter": fingerprint, "worker": own}}
    assert f"other code of {ETL}.load" in log
    folder = tmp_path / "not" / "there" / report.job_id
    assert {one.name: one.read_text().partition("\n")[2] for one in folder.iterdir()} == {
        "good.log": log,
        "none.log": "",
    }

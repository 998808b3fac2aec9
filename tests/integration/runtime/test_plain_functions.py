"""Plain functions that go wrong as badly as they can: each fails one attempt, and the others do not notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

BESIDE = "f: {type: fan_out, source: [1, 2, 3, 4], task: {handler: pid}}, e: {handler: echo}"


@pytest.mark.parametrize(
    ("name", "params", "kind", "message"),
    [
        ("segfault", "{}", "crashed", "SIGSEGV"),
        ("exit", "{code: 7}", "crashed", "exit code 7"),
        ("endless", "{}", "timeout", "within 1 second"),
        ("greedy", "{megabytes: 100000}", "out_of_memory", "out of memory"),
    ],
)
async def test_a_function_that_ruins_its_process_fails_one_attempt_and_nothing_else(
    world: World, name: str, params: str, kind: str, message: str
):
    await world.orchestrator()
    worker = await world.worker(memory_mb=600)
    text = f"{{name: n, on_failure: continue, nodes: {{bad: {{handler: {name}, params: {params}, timeout_seconds: 1, retry: none}}, {BESIDE}}}}}"
    report = await world.run(text)
    assert report.status == "FAILED"
    assert report.nodes["bad"]["error"]["kind"] == kind
    assert message in report.nodes["bad"]["error"]["message"]
    assert await world.attempts(report.job_id, "bad") == ["FAILED"]
    assert {report.nodes[f"f__{n}"]["status"] for n in range(4)} == {"COMPLETED"}
    assert report.nodes["e"]["status"] == "COMPLETED"
    assert world.is_alive(worker)
    # And the next one is served.
    assert (await world.run("{name: m, nodes: {a: {handler: pid}}}")).status == "COMPLETED"


async def test_a_function_that_ruins_its_process_is_tried_again(world: World):
    report = await world.run(
        "{name: n, nodes: {bad: {handler: exit, retry: {max_attempts: 3, initial_delay_seconds: 0.01}}}}"
    )
    assert report.status == "FAILED"
    assert await world.attempts(report.job_id, "bad") == ["FAILED"] * 3


async def test_where_a_process_fell_is_in_the_log_and_the_terminal_gets_one_line(
    world: World, caplog: pytest.LogCaptureFixture
):
    await world.orchestrator()
    worker = await world.worker()
    shown: list[str] = []
    worker.telemetry.on_log = lambda _task, text: shown.append(text)
    report = await world.run("{name: n, nodes: {bad: {handler: segfault, retry: none}}}")
    log = await world.log(report.job_id, "bad")
    assert "Fatal Python error: Segmentation fault" in log
    assert "in segfault" in log
    assert shown == []
    assert ["killed its process" in line for line in caplog.messages if "segfault" in line] == [True]

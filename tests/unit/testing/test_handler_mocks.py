"""Handlers that a test replaces by name, in every kind of run of this process."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from typing import TYPE_CHECKING, Any

import pytest

import dagmaster
from dagmaster import (
    HandlerContext,
    OrchContext,
    PermanentError,
    blocking,
    create_task,
    handler,
    task,
    workflow,
)
from dagmaster.errors import HandlerInvalid
from dagmaster.testing import mock_handler, run_workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.testing import JobReport


@handler("test.load", queue="light", aliases=["test.old_load"], retry=3)
def load(ctx: HandlerContext, day: int) -> dict[str, Any]:
    return {"day": day, "is_real": True}


@task
async def fetch(day: int) -> list[int]:
    raise PermanentError("no network in a test")


@task
def count(rows: list[int]) -> int:
    return len(rows)


@workflow
def nightly(day: int):
    return count(fetch(day))


def pages() -> Iterator[int]:
    yield 1
    raise AssertionError("it is replaced")


def run_load(name: str = "test.load", **params: Any) -> JobReport:
    arguments = ", ".join(f"{key}: {value}" for key, value in ({"day": 1} | params).items())
    text = f"{{name: one, nodes: {{load: {{handler: {name}, params: {{{arguments}}}}}}}}}"
    return run_workflow(text, handlers=[load])


def output_of(report: JobReport) -> Any:
    return report.nodes["load"]["output"]


def test_a_handler_of_a_workflow_file_is_replaced_and_its_calls_are_recorded():
    with mock_handler("test.load", returns={"day": 7}) as mock:
        assert output_of(run_load()) == {"day": 7}
    assert mock.calls == [{"day": 1}]
    assert output_of(run_load()) == {"day": 1, "is_real": True}
    assert mock.calls == [{"day": 1}]


def test_a_function_gets_the_params_and_returns_the_result():
    with mock_handler(load, returns=lambda day: {"day": day + 1}):
        assert output_of(run_load()) == {"day": 2}


def test_an_exception_fails_every_attempt_and_the_retries_of_the_handler_apply():
    with mock_handler("test.load", raises=ConnectionError("down")) as mock:
        report = run_load()
    assert report.status == "FAILED"
    assert report.nodes["load"]["error"]["message"].endswith("down")
    assert len(mock.calls) == report.nodes["load"]["attempts"] == 3


def test_a_permanent_error_is_not_retried():
    calls: list[dict[str, Any]] = []
    with mock_handler("test.load", raises=PermanentError("gone"), calls=calls):
        assert run_load().status == "FAILED"
    assert calls == [{"day": 1}]


@pytest.mark.parametrize(("mocked", "used"), [("test.load", "test.old_load"), ("test.old_load", "test.load")])
def test_all_names_of_a_handler_are_replaced(mocked: str, used: str):
    with mock_handler(mocked, returns={"day": 7}):
        assert output_of(run_load(used)) == {"day": 7}


def test_params_that_the_handler_would_reject_are_rejected():
    with (
        mock_handler("test.load", returns={}) as mock,
        pytest.raises(dagmaster.WorkflowInvalid, match="days"),
    ):
        run_load(days=2)
    assert mock.calls == []


def test_a_handler_that_does_not_exist_here_can_be_replaced():
    text = "{name: one, nodes: {load: {handler: other.project.load, params: {x: 1}}}}"
    with mock_handler("other.project.load", returns=[1]) as mock:
        assert output_of(run_workflow(text)) == [1]
    assert mock.calls == [{"x": 1}]
    with pytest.raises(dagmaster.WorkflowInvalid, match="other"):
        run_workflow(text)


def test_a_misspelt_name_is_a_warning_that_names_the_handler_of_the_run():
    with (
        pytest.warns(UserWarning, match=r"'test\.laod'\): no run used it.*did you mean 'test\.load'\?"),
        mock_handler("test.laod", returns={}),
    ):
        assert output_of(run_load())["is_real"]
    with (
        pytest.warns(UserWarning, match=rf"no run used it.*did you mean '{__name__}\.fetch'\?"),
        mock_handler(f"{__name__}.fecth", returns=[]),
        pytest.raises(dagmaster.JobFailed),
    ):
        nightly.run(day=1)


def test_a_mock_that_no_run_used_is_no_warning_if_it_exists_or_nothing_ran(recwarn):
    with mock_handler("raster.create_cog", returns={}), mock_handler(f"{__name__}.count", returns=1):
        run_load()
    with mock_handler("other.project.load", returns=1):
        pass
    assert list(recwarn) == []


def test_the_last_mock_is_in_effect_and_mocks_may_end_in_any_order():
    outer, inner = mock_handler("test.load", returns={"by": 1}), mock_handler("test.load", returns={"by": 2})
    outer.__enter__()
    inner.__enter__()
    assert output_of(run_load()) == {"by": 2}
    outer.__exit__()
    assert output_of(run_load()) == {"by": 2}
    inner.__exit__()
    assert output_of(run_load())["is_real"]


def test_a_mock_ends_with_an_exception():
    with pytest.raises(KeyError), mock_handler("test.load", returns={}):
        raise KeyError
    assert output_of(run_load())["is_real"]


def test_a_decorated_function_keeps_its_arguments_and_forgets_earlier_calls():
    mock = mock_handler("test.load", returns={"day": 7})

    @mock
    def check(tmp_path: str) -> Any:
        return output_of(run_load())

    @mock
    async def check_async() -> Any:
        return await asyncio.to_thread(lambda: output_of(run_load()))

    assert list(inspect.signature(check).parameters) == ["tmp_path"]
    assert check("x") == asyncio.run(check_async()) == {"day": 7}
    assert mock.calls == [{"day": 1}]
    assert output_of(run_load())["is_real"]


def test_a_task_of_a_python_workflow_is_replaced_in_every_run():
    with mock_handler(fetch, returns=[1, 2, 3]) as mock:
        assert nightly.run(day=1) == 3
        assert dagmaster.run(nightly, day=2) == 3
        assert run_workflow(nightly, {"day": 3}).result == {"result": 3}
    assert mock.calls == [{"day": 1}, {"day": 2}, {"day": 3}]
    with pytest.raises(dagmaster.JobFailed, match="no network"):
        nightly.run(day=1)


def test_a_task_of_a_job_is_replaced_in_a_context_that_was_open_before():
    with blocking.OrchContext(in_memory=True) as context:
        first = create_task(pages)
        job = context.create_job("mocked", create_task(count, {"rows": first}, name="last"))
        with mock_handler(pages, returns=[1, 2]):
            assert blocking.run_job_test(job).status == "COMPLETED"
        assert blocking.get_task(first.id).result == [1, 2]


def test_an_entrypoint_that_cannot_be_imported_is_replaced_in_a_job():
    async def run() -> None:
        async with OrchContext(in_memory=True) as context:
            job = await context.create_job("mocked", "no_such_module.load")
            with mock_handler("no_such_module.load", returns=1):
                assert (await dagmaster.run_job_test_async(job)).status == "COMPLETED"
            other = await context.create_job("not mocked", "no_such_module.load")
            assert "No module named 'no_such_module'" in str(
                (await dagmaster.run_job_test_async(other)).error
            )

    asyncio.run(run())


def test_mocks_of_many_threads_all_end():
    started = threading.Barrier(8)

    def replace() -> None:
        started.wait()
        for _ in range(500):
            with mock_handler("test.load", returns={}), mock_handler("test.other", returns={}):
                pass

    threads = [threading.Thread(target=replace) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert output_of(run_load())["is_real"]


def test_a_built_in_handler_is_replaced_with_its_types():
    with mock_handler("raster.create_cog", returns=1):
        report = run_workflow(
            "{name: cog, nodes: {cog: {handler: raster.create_cog, params: {href: a.tif}}}}"
        )
    assert report.nodes["cog"]["error"]["kind"] == "invalid_output"


def test_what_cannot_be_a_mock_is_rejected():
    async def answer() -> None: ...

    class Answer:
        """An object that answers."""

        async def __call__(self) -> None: ...

    with pytest.raises(TypeError, match="returns= and raises="):
        mock_handler("a.b", returns=1, raises=KeyError)
    for coroutine in (answer, functools.partial(answer), Answer(), task(answer)):
        with pytest.raises(
            TypeError, match=r"mock_handler\('a\.b'\): returns= .*, not the coroutine function .*[aA]nswer"
        ):
            mock_handler("a.b", returns=coroutine)
    with pytest.raises(HandlerInvalid, match="not an entrypoint"):
        mock_handler("not a name")

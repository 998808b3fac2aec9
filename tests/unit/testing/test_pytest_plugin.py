"""The fixtures that pytest loads for users of the package, as a test suite of theirs sees them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

MODULE = "dagmaster.testing.pytest_plugin"
FIXTURES = {"dagmaster_store", "frozen_clock", "run_workflow"}


def run_tests(pytester: pytest.Pytester, code: str, *arguments: str) -> pytest.RunResult:
    """Run the tests of a user in this process."""
    pytester.makepyfile(code)
    # An editable installation has the entry points of the day it was made.
    is_installed = any(point.value == MODULE for point in metadata.entry_points(group="pytest11"))
    plugin = () if is_installed else ("-p", MODULE)
    return pytester.runpytest_inprocess(*plugin, "-p", "no:cacheprovider", *arguments)


def test_the_package_announces_the_plugin():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"dagmaster": MODULE}


def test_a_workflow_of_each_kind_runs(pytester: pytest.Pytester):
    pytester.makefile(".yaml", flow="{name: flow, nodes: {nap: {type: wait, seconds: 3600}}}")
    pytester.mkdir("work")
    pytester.path.joinpath("code.py").write_text(
        "from dagmaster import task, workflow\n\n@task\ndef one() -> int:\n    return 1\n\n@workflow\ndef flow():\n    return one()\n"
    )
    run_tests(
        pytester,
        """
        from pathlib import Path
        from dagmaster import task, workflow
        from dagmaster.testing import mock_handler

        @task
        def double(x: int) -> int:
            return 2 * x

        @workflow
        def decorated(x: int):
            return double(x)

        def test_text(run_workflow):
            assert run_workflow("{name: a, inputs: {x: {}}, nodes: {s: {type: start}}, outputs: {x: '{{ inputs.x }}'}}", {"x": "y"}).result == {"x": "y"}

        def test_decorated(run_workflow):
            assert run_workflow(decorated, {"x": 4}).result == {"result": 8}

        @mock_handler(double, returns=5)
        def test_mocked(run_workflow):
            assert run_workflow(decorated, {"x": 4}).result == {"result": 5}

        def test_files_next_to_the_test(run_workflow, monkeypatch, frozen_clock):
            monkeypatch.chdir("work")
            started = frozen_clock.now()
            assert run_workflow("flow.yaml").status == run_workflow(Path("flow.yaml")).status == "COMPLETED"
            assert frozen_clock.now() == started + 7200
            assert run_workflow("code.py").result == run_workflow("code.py:flow").result == {"result": 1}

        def test_options_are_passed(run_workflow, frozen_clock):
            from dagmaster.testing import FakeClock
            own = FakeClock(5.0)
            run_workflow(Path(__file__).with_name("flow.yaml"), clock=own)
            assert (own.now(), frozen_clock.now()) == (3605.0, FakeClock().now())
        """,
    ).assert_outcomes(passed=5)


def test_jobs_of_the_store_run_and_a_retry_takes_no_time(pytester: pytest.Pytester):
    run_tests(
        pytester,
        """
        import asyncio
        import dagmaster
        from dagmaster import JobStatus, Task, blocking, run_job_test

        FAILURES = [ConnectionError("not yet")] * 2

        def fails_twice() -> int:
            if FAILURES:
                raise FAILURES.pop()
            return 3

        def test_a_job(dagmaster_store, frozen_clock):
            started = frozen_clock.now()
            load = Task(fails_twice, retry={"max_attempts": 3, "jitter": False, "initial_delay_seconds": 300})
            job = blocking.create_job("nightly", load)
            assert run_job_test(job).status is JobStatus.COMPLETED
            assert blocking.get_task(load.id).result == 3
            assert frozen_clock.now() - started >= 600
            assert [one.id for one in blocking.list_jobs()] == [job.id]

        def test_async_calls_also_use_it(dagmaster_store):
            async def count():
                await dagmaster.create_job("other", Task(fails_twice))
                return len(await dagmaster.list_jobs())
            assert asyncio.run(count()) == 1

        def test_each_test_has_a_separate_store(dagmaster_store):
            assert blocking.list_jobs() == []
        """,
    ).assert_outcomes(passed=3)


def test_a_fixture_of_a_suite_replaces_one_of_the_plugin(pytester: pytest.Pytester):
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef run_workflow():\n    return 'mine'\n")
    run_tests(pytester, "def test_mine(run_workflow):\n    assert run_workflow == 'mine'\n").assert_outcomes(
        passed=1
    )


def test_the_fixtures_are_documented(pytester: pytest.Pytester):
    lines = run_tests(pytester, "", "--fixtures", "-q").outlines
    names = {line.split(" ")[0] for line in lines}
    assert names >= FIXTURES
    assert not [line for line in lines if line.split(" ")[0] in FIXTURES and "no docstring" in line]


def test_no_fixture_of_the_own_tests_has_the_name_of_one_of_the_plugin():
    sources = Path(__file__).parents[2].rglob("*.py")
    definitions = [f"def {name}(" for name in FIXTURES]
    own = [path for path in sources if path != Path(__file__)]
    assert [
        path for path in own if any(line in path.read_text(encoding="utf-8") for line in definitions)
    ] == []


@pytest.mark.process
def test_loading_the_plugin_imports_nothing_of_the_package():
    code = f"import sys, {MODULE}; print(*[name for name in sys.modules if name.startswith(('dagmaster', 'pydantic'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["dagmaster", "dagmaster.testing", MODULE]

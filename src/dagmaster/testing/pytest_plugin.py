"""Fixtures for the tests of code that uses dagmaster: pytest loads them by itself.

This module is imported in every run of pytest where dagmaster is installed: it imports nothing else until a
test asks for a fixture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagmaster import blocking
    from dagmaster.testing.clock import FakeClock
    from dagmaster.testing.job_report import JobReport


@pytest.fixture
def frozen_clock() -> FakeClock:
    """Return a stopped clock: `move(seconds)` moves it, and it jumps when a job can only wait for it."""
    from dagmaster.testing import FakeClock

    return FakeClock()


@pytest.fixture
def dagmaster_store(frozen_clock: FakeClock) -> Iterator[blocking.OrchContext]:
    """Provide an `OrchContext` over a database in memory, with the clock of the test.

    `run_job_test` runs its jobs.

    It is the context around the test: `create_job`, `get_job`, `get_task`, … use it.
    """
    from dagmaster import blocking

    with blocking.OrchContext(in_memory=True, clock=frozen_clock) as context:
        yield context


@pytest.fixture
def run_workflow(request: pytest.FixtureRequest, frozen_clock: FakeClock) -> Callable[..., JobReport]:
    """Run a workflow in memory and return its report: `dagmaster.testing.run_workflow` on the test's clock.

    Takes YAML text, a `@workflow`, a graph, or a file: a `Path`, or a name that ends in .yaml, .yml, .py or
    .py:workflow, relative to the working directory or to the file of the test.
    """
    from dagmaster import testing

    def run(workflow: Any, inputs: Any = None, **options: Any) -> JobReport:
        source = _load(workflow, request.path.parent)
        return testing.run_workflow(source, inputs, **{"clock": frozen_clock, **options})

    return run


def _load(workflow: Any, folder: Path) -> Any:
    """Return what `run_workflow` takes: the path of a YAML file, or the workflow of a Python file."""
    from dagmaster.authoring.python.workflow_files import is_python_file, load_workflow

    is_name = isinstance(workflow, str) and "\n" not in workflow and "{" not in workflow
    if not isinstance(workflow, Path) and not (
        is_name and (workflow.endswith((".yaml", ".yml")) or ".py" in workflow)
    ):
        return workflow
    file, _, name = str(workflow).partition(".py:")
    suffix = ".py" if name else ""
    path = Path(file + suffix)
    if not path.exists() and (folder / path).exists():
        path = folder / path
    if not is_python_file(path):
        return path
    return load_workflow(f"{path}:{name}" if name else path)

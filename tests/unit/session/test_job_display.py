"""Jobs as tables: in a notebook, updated where they stand, and as lines elsewhere."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import Group, OrchContext, PermanentError, Task, blocking, create_job, create_task
from dagmaster.session import job_display
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from dagmaster import Job

RELEASED = threading.Event()
STARTED = threading.Event()


def step(value: int = 0) -> int:
    return value


def fail() -> None:
    raise PermanentError("<b>no</b> & no")


def blocks() -> None:
    STARTED.set()
    assert RELEASED.wait(PATIENCE_SECONDS)


class FakeNotebook:
    """What IPython shows: the tables of one cell, oldest first."""

    def __init__(self) -> None:
        self.tables: list[Any] = []
        self.completed = threading.Event()

    def display(self, table: Any, *, display_id: bool) -> FakeNotebook:
        assert display_id
        assert threading.current_thread() is threading.main_thread()
        self.tables.append(table)
        return self

    def update(self, table: Any) -> None:
        self.tables.append(table)
        if table.counts.get("RUNNING"):
            self.completed.set()


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> FakeNotebook:
    fake, module, display = FakeNotebook(), ModuleType("IPython"), ModuleType("IPython.display")
    vars(module)["get_ipython"] = SimpleNamespace
    vars(display)["display"] = fake.display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return fake


def a_job(context: blocking.OrchContext) -> Job:
    first = create_task(step, name="first")
    first >> Group("clean", [create_task(step), create_task(step)])
    return context.create_job("nightly", first)


def test_a_job_shows_its_nodes_as_they_are_now():
    with blocking.OrchContext(in_memory=True) as context:
        job = a_job(context)
        assert "4 PENDING" in job._repr_html_()
        blocking.run_job_test(job)
        html = job._repr_html_()
    assert "4 COMPLETED" in html
    assert [
        name
        for name in ("first", "clean", "step", "step_2")
        if f"<td style='text-align:left'>{name}</td>" in html
    ] == [
        "first",
        "clean",
        "step",
        "step_2",
    ]
    # Nodes that no author wrote.
    assert "hold" not in html
    assert "clean_held" not in html
    # Its database is gone: it is shown as it was read last.
    assert job._repr_html_() == html


def test_a_job_whose_nodes_were_never_read_shows_its_status():
    with blocking.OrchContext(in_memory=True) as context:
        job = blocking.run_job_test(a_job(context))
    assert "COMPLETED" in job._repr_html_()
    assert "<table>" not in job._repr_html_()


def test_a_job_of_an_asynchronous_context_shows_itself_where_its_loop_runs():
    async def cell() -> str:
        async with OrchContext(in_memory=True):
            return (await create_job("nightly", Task(step)))._repr_html_()

    assert "1 PENDING" in asyncio.run(cell())


def test_errors_are_escaped():
    with blocking.OrchContext(in_memory=True) as context:
        job = context.create_job("<i>bad</i>", Task(fail))
        blocking.run_job_test(job)
        html = job._repr_html_()
    assert "&lt;b&gt;no&lt;/b&gt; &amp; no" in html
    assert "&lt;i&gt;bad" in html
    assert "<b>no" not in html


def test_of_many_nodes_those_that_failed_have_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_display, "MAX_ROWS", 2)
    with blocking.OrchContext(in_memory=True) as context:
        job = context.create_job("many", [*(Task(step) for _ in range(3)), Task(fail, allow_failure=True)])
        blocking.run_job_test(job)
        table = job_display.read_table(job)
    assert [row[0] for row in table.rows] == ["fail", "step"]
    assert table.hidden == 2
    assert "and 2 more nodes" in table._repr_html_()


def test_a_table_in_a_notebook_is_updated_while_the_job_runs(notebook: FakeNotebook):
    STARTED.clear()
    RELEASED.clear()
    with blocking.OrchContext(in_memory=True) as context:
        job = context.create_job("nightly", Task(blocks))
        runner = threading.Thread(target=blocking.run_job_test, args=(job,))
        with job.watch(seconds=0.01) as watch:
            assert watch._ipython_display_() is None  # type: ignore[func-returns-value]
            runner.start()
            assert STARTED.wait(PATIENCE_SECONDS)
            assert notebook.completed.wait(PATIENCE_SECONDS), "the table never showed the running task"
            RELEASED.set()
            assert watch.wait(PATIENCE_SECONDS).status == "COMPLETED"
        runner.join()
    assert [notebook.tables[0].status, notebook.tables[-1].status] == ["PENDING", "COMPLETED"]


def test_a_table_is_updated_when_its_block_ends(notebook: FakeNotebook):
    with blocking.OrchContext(in_memory=True) as context:
        job = a_job(context)
        with job.watch(seconds=3600):
            blocking.run_job_test(job)
    assert notebook.tables[-1].counts == {"COMPLETED": 4}


def test_outside_of_a_notebook_changes_are_lines(capsys: pytest.CaptureFixture[str]):
    with blocking.OrchContext(in_memory=True) as context:
        job = a_job(context)
        with job.watch(seconds=3600):
            blocking.run_job_test(job)
        assert job.watch().wait(60).is_finished
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"job {job.id} nightly: PENDING (4 PENDING)",
        *[f"job {job.id} nightly: COMPLETED (4 COMPLETED)"] * 2,
    ]


def test_a_watch_needs_a_positive_interval():
    with blocking.OrchContext(in_memory=True) as context:
        job = a_job(context)
        with pytest.raises(ValueError, match="more than 0"):
            job.watch(seconds=0)

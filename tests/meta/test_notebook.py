"""The notebook of the tutorial runs, as in Jupyter: cell by cell, in `__main__`, while an event loop is running."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "docs" / "tutorial" / "python.ipynb"


class Notebook:
    """Executes cells, and keeps the value of the last line of each by the id of the cell."""

    def __init__(self, main: ModuleType) -> None:
        self.names = vars(main)
        self.values: dict[str, Any] = {}

    async def run(self, cell_id: str, source: str) -> None:
        body = ast.parse(source, cell_id).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        await self._execute(ast.Module(body, []), cell_id, "exec")
        if isinstance(last, ast.Expr):
            self.values[cell_id] = await self._execute(ast.Expression(last.value), cell_id, "eval")

    async def _execute(self, tree: ast.Module | ast.Expression, cell_id: str, mode: str) -> Any:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        value = eval(compile(tree, cell_id, mode, flags), self.names)
        return await value if inspect.iscoroutine(value) else value


def cells() -> list[dict[str, Any]]:
    return [
        cell for cell in json.loads(FILE.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"
    ]


@pytest.fixture(scope="module")
def notebook() -> Notebook:
    main = ModuleType("__main__")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", main)
        notebook = Notebook(main)

        async def run_all() -> None:
            for cell in cells():
                await notebook.run(cell["id"], "".join(cell["source"]))

        asyncio.run(run_all())
    return notebook


def test_graphs_show_themselves(notebook: Notebook):
    assert notebook.values["define"]._repr_svg_().startswith("<svg")
    assert 'data-node="parts"' in notebook.values["build"]._repr_svg_()


def test_jobs_run_and_show_themselves(notebook: Notebook):
    assert notebook.values["run"] == 18.0
    assert notebook.values["run-job"] == [100, 20, 30]
    assert "6 COMPLETED" in notebook.values["show-job"]._repr_html_()


def test_a_running_task_adds_tasks(notebook: Notebook):
    assert notebook.values["map"] == 285
    assert "sum_of_squares" in notebook.names["growing"]._repr_html_()


def test_a_task_is_replaced(notebook: Notebook):
    rained, calls = notebook.values["replace"]
    assert (rained, len(calls)) == (3.0, 2)


def test_the_notebook_is_stored_without_outputs():
    assert [cell["id"] for cell in cells() if cell["outputs"] or cell["execution_count"] is not None] == []

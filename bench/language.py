"""The workflow language: expressions, loading 1,000 files, a file of 10,000 nodes, a merge bomb."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from typing import TYPE_CHECKING

from bench.rows import Row, median_seconds
from dagmaster.authoring.compiler.compile import compile_file, compile_text
from dagmaster.engine.expressions.expression import compile_expression
from dagmaster.errors import WorkflowInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

SCOPE = {
    "inputs": {"a": 5, "name": "scene.tif"},
    "nodes": {
        "x": {"output": {"n": 7, "items": list(range(20)), "path": "/data/a/b.tif"}, "status": "COMPLETED"}
    },
}
EXPRESSIONS = {
    "a path": "nodes.x.output.n",
    "arithmetic and if": "inputs.a + 1 if nodes.x.output.n > 3 else 0",
    "filters": "nodes.x.output.path | basename | replace('.tif', '_cog.tif')",
    "a comparison chain": "0 <= nodes.x.output.n < 100 and inputs.name in ['a', 'scene.tif']",
    "a default": "nodes.x.output.missing.deep | default('none')",
}
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(f"a{n + 1}: &a{n + 1} {{<<: [*a{n}, *a{n}]}}\n" for n in range(16))


def measure() -> Iterator[Row]:
    """Measure expressions and the compiler."""
    for name, text in EXPRESSIONS.items():
        expression = compile_expression(text, roots={"inputs", "nodes"})

        def evaluate(expression=expression) -> None:  # type: ignore[no-untyped-def]
            for _ in range(1_000):
                expression.evaluate(SCOPE)

        yield Row(f"expression, {name}", median_seconds(evaluate) * 1_000, "µs", at_most=15)
    with tempfile.TemporaryDirectory() as folder:
        files = _write_files(pathlib.Path(folder), 1_000)
        yield Row(
            "load 1,000 files",
            median_seconds(lambda: [compile_file(file) for file in files], repeat=3),
            "s",
            at_most=3,
        )
    large = _large_file(10_000)
    yield Row(
        "validate a file of 10,000 nodes",
        median_seconds(lambda: compile_text(large), repeat=3),
        "s",
        at_most=2,
    )
    yield Row("reject a YAML merge bomb", median_seconds(_refuse_merge_bomb) * 1_000, "ms", at_most=10)


def _refuse_merge_bomb() -> None:
    with contextlib.suppress(WorkflowInvalid):
        compile_text(MERGE_BOMB)


def _write_files(folder: pathlib.Path, count: int) -> list[pathlib.Path]:
    demo = pathlib.Path("workflows/demo.yaml").read_text(encoding="utf-8")
    files = []
    for number in range(count):
        file = folder / f"flow_{number}.yaml"
        # Every file differs, so that no cache helps more than it would in production.
        text = demo.replace("workflow_id: demo", f"workflow_id: demo_{number}").replace(
            "inspect", f"inspect_{number}"
        )
        file.write_text(text, encoding="utf-8")
        files.append(file)
    return files


def _large_file(nodes: int) -> str:
    lines = ["workflow_id: large", "inputs: {a: {type: string, required: true}}", "nodes:"]
    for n in range(nodes):
        lines += [f"  n{n}:", "    handler: echo", "    queue: q"]
        if n:
            lines.append(f"    depends_on: [n{n - 1}, n{n // 2}]")
        lines += ["    params:", '      x: "{{ inputs.a }}"']
        if n:
            lines.append(f'      y: "{{{{ nodes.n{n - 1}.output.v }}}}"')
    return "\n".join(lines) + "\n"

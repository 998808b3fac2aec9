"""Nothing is printed but through `sdk/terminal.py`, which makes control characters visible."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.meta.syntax_trees import syntax_tree

SOURCE = Path(__file__).parents[2] / "src" / "dagmaster"
PRINTS = {
    "print", "click.echo", "click.secho", "click.style", "click.prompt", "click.confirm", "click.echo_via_pager",
    "Console", "rich.print", "sys.stdout.write", "sys.stderr.write", "sys.stdout.writelines", "sys.stderr.writelines",
    "sys.stdout.buffer.write", "traceback.print_exc", "traceback.print_exception", "rich.console.Console", "pprint",
}  # fmt: skip
ALLOWED = {
    "sdk/terminal.py": "the one place",
    "session/job_display.py": "a notebook without a display; makes its text visible itself",
}


def prints(tree: ast.AST) -> list[str]:
    names = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [name for name in names if name in PRINTS]


def test_only_the_terminal_module_prints():
    found = {
        str(path): calls
        for file in SOURCE.rglob("*.py")
        if str(path := file.relative_to(SOURCE)) not in ALLOWED and (calls := prints(syntax_tree(file)))
    }
    assert found == {}


@pytest.mark.parametrize(
    "call", ["print(x)", "click.echo(x)", "sys.stdout.write(x)", "Console(file=f).print(x)"]
)
def test_the_rule_sees_a_call(call: str):
    assert prints(ast.parse(f"def f():\n    {call}\n"))

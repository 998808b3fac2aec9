"""Kinds of flaky tests that can be found by reading: a test waits for a signal, never for time."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS: Final = Path(__file__).parents[1]
CLOCKS: Final = frozenset({"perf_counter", "perf_counter_ns", "process_time", "thread_time", "timeit"})
"""Clocks that measure how long something took. `monotonic` ends a wait."""
WAITS: Final = frozenset({"timeout", "wait", "wait_for"})
"""Functions whose last argument is how long to wait."""
SLEEPERS: Final = {
    "browser/test_tour.py": "handlers whose jobs are drawn",
    "integration/runtime/test_rare_interleavings.py": "pauses that are drawn from a seed",
    "unit/application/commands/doubles.py": "a double that answers after its timeout",
    "unit/local/test_runner.py": "calls that a timeout does not interrupt",
}
"""Files in which something other than a wait sleeps."""
PATIENCE_SECONDS: Final = 60


@cache
def modules() -> dict[str, ast.Module]:
    """Return the modules of tests by path; a soak is measured."""
    paths = {path.relative_to(TESTS).as_posix(): path for path in sorted(TESTS.rglob("*.py"))}
    return {
        name: ast.parse(path.read_text(encoding="utf-8")) for name, path in paths.items() if name != "soak.py"
    }


def name_of(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def number(node: ast.expr | None) -> float | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def single_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Return calls that are not repeated by a loop, and whose answer is not expected to be false."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.While) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            continue
        if isinstance(node, ast.Call):
            yield node
        yield from single_calls(node)


def sleeps(tree: ast.AST) -> Iterator[ast.Call]:
    """Return sleeps that are not the pause between two looks at something."""
    return (
        call
        for call in single_calls(tree)
        if name_of(call) == "sleep" and call.args and number(call.args[0]) != 0
    )


def short_waits(tree: ast.AST) -> Iterator[ast.Call]:
    """Return waits that give up before the patience of all tests ends."""
    for call in single_calls(tree):
        positional = call.args[-1] if call.args and name_of(call) in WAITS else None
        keyword = next((one.value for one in call.keywords if one.arg == "timeout"), None)
        seconds = number(keyword if positional is None else positional)
        if seconds is not None and 0 < seconds < PATIENCE_SECONDS:
            yield call


def fixed_ports(tree: ast.AST) -> Iterator[ast.Call]:
    """Return servers on a port of the test's choice."""
    for call in calls(tree):
        address = call.args[0] if call.args else None
        port = number(address.elts[1]) if isinstance(address, ast.Tuple) and len(address.elts) == 2 else None
        if port and name_of(call) in {"create_server", "bind", "HTTPServer", "ThreadingHTTPServer"}:
            yield call


def places(find: object, exceptions: object = ()) -> list[str]:
    assert callable(find)
    assert isinstance(exceptions, dict | tuple)
    return [
        f"{name}:{call.lineno}: {ast.unparse(call)[:100]}"
        for name, tree in modules().items()
        if name not in exceptions
        for call in find(tree)
    ]


def test_no_test_sleeps_but_between_two_looks():
    assert places(sleeps, SLEEPERS) == []


def test_no_test_measures_time():
    assert places(lambda tree: (call for call in calls(tree) if name_of(call) in CLOCKS)) == []


def test_a_wait_gives_up_after_the_patience_of_all_tests_and_no_other_number():
    assert places(short_waits) == []


def test_a_server_chooses_its_port():
    assert places(fixed_ports) == []


def test_the_exceptions_are_files_that_sleep():
    assert [name for name in SLEEPERS if not [*sleeps(modules()[name])]] == []


def test_each_kind_is_found():
    flaky = ast.parse(
        "time.sleep(0.1)\nasyncio.sleep(seconds)\nwhile not done:\n    time.sleep(0.1)\nasyncio.sleep(0)\n"
        "asyncio.timeout(5)\nqueue.get(timeout=2)\nevent.wait(1.5)\nnot event.wait(1.5)\nevent.wait(PATIENCE)\n"
        "socket.create_server(('127.0.0.1', 8420))\nsocket.create_server(('127.0.0.1', 0))\n"
    )
    assert [call.lineno for call in sleeps(flaky)] == [1, 2]
    assert [call.lineno for call in short_waits(flaky)] == [6, 7, 8]
    assert [call.lineno for call in fixed_ports(flaky)] == [11]

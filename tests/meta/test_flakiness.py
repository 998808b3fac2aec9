"""Kinds of flaky tests that can be found by reading: a test waits for a signal, never for time."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.meta.syntax_trees import syntax_tree

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
SHORT_LEASES: Final = {"integration/runtime/test_ownership.py": "a lease that ends, of an owner that is dead"}
"""Files with real clocks in which a lease is short."""
PATIENCE_SECONDS: Final = 60


@cache
def modules() -> dict[str, ast.Module]:
    """Return the modules of tests by path; a soak is measured."""
    paths = {path.relative_to(TESTS).as_posix(): path for path in sorted(TESTS.rglob("*.py"))}
    return {name: syntax_tree(path) for name, path in paths.items() if name != "soak.py"}


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


def short_leases(tree: ast.AST) -> Iterator[ast.expr]:
    """Return leases that end while a slow machine is between two steps of a test."""
    for node in ast.walk(tree):
        named: list[tuple[str | None, ast.expr]] = []
        if isinstance(node, ast.Call):
            named = [(keyword.arg, keyword.value) for keyword in node.keywords]
        elif isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            named = [(str(key), value) for key, value in zip(keys, node.values, strict=True)]
        for name, value in named:
            seconds = number(value)
            if (
                (name or "").endswith("lease_seconds")
                and seconds is not None
                and 0 < seconds < PATIENCE_SECONDS
            ):
                yield value


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


def test_a_lease_of_real_seconds_is_longer_than_the_patience_of_all_tests():
    """A service that went away is made to look so: its last heartbeat is set back (`world.silence`)."""
    others = [name for name in modules() if not name.startswith("integration/")]
    assert places(short_leases, {**SHORT_LEASES, **dict.fromkeys(others)}) == []


def test_the_exceptions_are_files_that_sleep_or_have_short_leases():
    assert [name for name in SLEEPERS if not [*sleeps(modules()[name])]] == []
    assert [name for name in SHORT_LEASES if not [*short_leases(modules()[name])]] == []


def test_each_kind_is_found():
    flaky = ast.parse(
        "time.sleep(0.1)\nasyncio.sleep(seconds)\nwhile not done:\n    time.sleep(0.1)\nasyncio.sleep(0)\n"
        "asyncio.timeout(5)\nqueue.get(timeout=2)\nevent.wait(1.5)\nnot event.wait(1.5)\nevent.wait(PATIENCE)\n"
        "socket.create_server(('127.0.0.1', 8420))\nsocket.create_server(('127.0.0.1', 0))\n"
    )
    leases = ast.parse(
        "serve(lease_seconds=1.0)\nupdate({'worker_lease_seconds': 3})\nserve(lease_seconds=A_LEASE)"
    )
    assert [value.lineno for value in short_leases(leases)] == [1, 2]
    assert [call.lineno for call in sleeps(flaky)] == [1, 2]
    assert [call.lineno for call in short_waits(flaky)] == [6, 7, 8]
    assert [call.lineno for call in fixed_ports(flaky)] == [11]

"""Mistakes in workflow functions are errors at their line, with the right way to write it."""

from __future__ import annotations

import math
import operator
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, StringConstraints

from dagmaster import (
    Future,
    HandlerContext,
    any_of,
    approval,
    conditional,
    expression,
    fan_in,
    fan_out,
    handler_task,
    join,
    task,
    wait,
    workflow,
)
from dagmaster.errors import HandlerInvalid, InputsInvalid, WorkflowInvalid
from tests.unit.authoring.python.graphs import double, echo, extract, problem_of, total

NOT_TYPED: Any = 3
MISUSES: dict[str, Any] = {
    "conditional(": [
        lambda future: 1 if future else 2,
        lambda future: future > 1,
        lambda future: future == 1,
        lambda future: not future,
        lambda future: 1 in future,
    ],
    ".map(": [list, len, sorted, lambda future: max(*future), next, set, ",".join],
    "future['key']": [
        lambda future: echo(**future),
        dict,
        lambda future: {**future},
        lambda future: [key for key, _ in future.items()],
        lambda future: future.get("a", 1),
        lambda future: future["a"].get("b"),
    ],
    "call it in a @task": [lambda future: future.append(1), lambda future: future.text.strip().lower()],
    "expression(": [
        lambda future: divmod(future, 2),
        math.floor,
        complex,
        open,
        os.path.exists,
        lambda future: operator.setitem(future, "a", 1),
        lambda future: operator.delitem(future, "a"),
        int,
        float,
        lambda future: [1, 2][future],
        lambda future: future + 1,
        lambda future: 2 * future,
        lambda future: -future,
        str,
        lambda future: f"{future}",
        "{}".format,
        lambda future: f"{future:>3}",
    ],
}


@pytest.mark.parametrize(
    ("use", "remedy"), [(use, remedy) for remedy, uses in MISUSES.items() for use in uses]
)
def test_what_needs_the_value_of_a_future_is_an_error_at_that_line(use, remedy):
    @workflow
    def flow():
        use(echo(1))

    problem = problem_of(flow)
    assert re.search(
        r"the result of 'echo' \(line \d+\), which is not known while the graph is built", problem.message
    )
    assert remedy in problem.hint
    assert problem.file == __file__


def test_the_error_names_the_input_or_the_item_or_the_key():
    @workflow
    def by_input(day: Future[str]) -> Future[Any]:
        return echo.submit(day + "T00")  # type: ignore[operator]

    @workflow
    def by_item() -> Future[Any]:
        return fan_out([1], lambda item: echo.submit(item + 1))  # type: ignore[operator]

    @workflow
    def by_key() -> Future[Any]:
        return echo.submit(echo.submit({}).sizes["a"] * 2)  # type: ignore[operator]

    assert "the value of the input 'day', which" in problem_of(by_input).message
    assert "the value of the item of a fan-out, which" in problem_of(by_item).message
    assert "the value of ['sizes']['a'] of the result of 'echo'" in problem_of(by_key).message


def test_a_future_is_not_a_function():
    @workflow
    def flow():
        echo(1)()

    assert "the result of 'echo'" in problem_of(flow).message
    assert "is not a function" in problem_of(flow).message


def test_the_error_has_line_column_and_text():
    @workflow
    def flow():
        size = echo(1)
        if size > 3:
            echo(2)

    problem = problem_of(flow)
    assert problem.text == "if size > 3:"
    assert problem.column == 12
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert lines[problem.line - 1].strip() == problem.text


def test_a_problem_of_the_compiler_is_at_the_call_of_its_node():
    @workflow
    def flow():
        sized = total("not a list")
        echo(sized.length)

    with pytest.raises(WorkflowInvalid) as caught:
        flow.compile()
    assert [problem.text for problem in caught.value.problems] == ['sized = total("not a list")']


def test_a_value_that_may_be_missing_needs_a_default():
    @workflow
    def flow():
        tried = echo.with_options(allow_failure=True)(1)
        echo(tried)

    problem = problem_of(flow)
    assert problem.hint == "write .default(…) behind the future"
    assert problem.text == "echo(tried)"


@dataclass
class Opaque:
    thing: object


CALLS: dict[str, tuple[Any, str, str]] = {
    "missing": (total, "total(): missing a required argument: 'values'", "it is total(values"),
    "unknown": (lambda: total([], note_="x"), "total has no parameter 'note_'", "did you mean 'note'?"),
    "misspelt": (lambda: total(value=[]), "total has no parameter 'value'", "did you mean 'values'?"),
    "no items": (
        lambda: double.map(NOT_TYPED),
        "the items of double are a list or the result of a task",
        "run it once",
    ),
    "text items": (
        lambda: double.map("abc"),
        "the items of double are a list or the result of a task, not of type str",
        "",
    ),
    "set of items": (lambda: double.map({1, 2}), "not of type set", "double.map(sorted(items))"),
    "dict of items": (lambda: double.map({"a": 2}), "not of type dict", "double.map(items.items())"),
    "chunk": (lambda: double.map([1], chunk=0), "double has no parameter 'chunk'", ""),
    "no parallelism": (
        lambda: double.with_options(max_parallel=0).map([1]),
        "max_parallel is at least 1",
        "",
    ),
    "not JSON": (lambda: echo(object()), "is of type object, which JSON does not have", ""),
    "inside": (
        lambda: echo({"a": [Opaque(object())]}),
        "params of 'echo'.value.a[0].thing is of type object",
        "",
    ),
    "bytes": (lambda: echo(b"x"), "is of type bytes", ""),
    "key": (lambda: echo({1: 2}), "has a key of type int, and keys are text", ""),
    "fan-out key": (
        lambda: double.with_options(max_parallel=3)(1),
        "max_parallel goes with a fan-out",
        "double.map",
    ),
    "retry": (lambda: double.with_options(retry=-1)(1), "retry has a wrong 'max_attempts'", ""),
    "fixed": (lambda: echo.with_options(queue=echo(1))(2), "queue of 'echo' cannot be a future", ""),
    "expand": (lambda: total.expand(values=[], note=[]), "the items of one argument, not of 2", ""),
    "constant": (lambda: conditional(3, {"a": "< 1"}), "decides by a future, not by 3", "write `if`"),
    "branch": (
        lambda: conditional(echo(1), {"small": "< 1"})["smal"],
        "no branch 'smal'",
        "did you mean 'small'?",
    ),
    "both": (
        lambda: conditional(echo(1), {"a": "< 1"}, default="a"),
        "has a condition and is the default",
        "",
    ),
    "no future": (
        lambda: fan_out([1], lambda _: NOT_TYPED),
        "returns no future",
        "return the call of one task",
    ),
    "two nodes": (
        lambda: fan_out([1], lambda item: [echo(item), echo(item)][0]),
        "one node for an item, not 2",
        "",
    ),
    "wait inside": (lambda: fan_out([1], lambda _: wait(seconds=1)), "not a wait", ""),
    "unused": (lambda: expression("{{ 1 }}", x=echo(1)), "x is not used in the text", ""),
    "syntax": (lambda: expression("{{ 1 + }}"), "cannot be parsed", ""),
    "dependency": (lambda: echo.with_options(depends_on=NOT_TYPED)(1), "a dependency is a future", ""),
    "member": (lambda: echo(any_of(conditional(echo(1), {"a": "< 1"})["a"])), "this any_of has no value", ""),
    "nested join": (
        lambda: echo(any_of(join(echo.submit(1)), echo.submit(2))),
        "a join inside of another gate",
        "",
    ),
    "join and any": (
        lambda: echo.with_options(depends_on=[join(echo.submit(1)), any_of(echo.submit(2))])(3),
        "waits for a join and for an any_of",
        "join that",
    ),
    "default": (lambda: echo(echo(1).default(2).key), "the default comes last", ""),
    "state": (lambda: echo(echo(1).node.failed), "only a fan-out has failed items", ""),
    "condition": (lambda: conditional(echo(1), {"a": "<<"}), "cannot be parsed", ""),
    "one approver": (
        lambda: approval("ok?", approvers="ada"),
        "approvers is a list, not the text 'ada'",
        "['ada']",
    ),
    "approvers": (lambda: approval("ok?", timeout_seconds=-1), "timeout_seconds is more than 0", ""),
}


@pytest.mark.parametrize(("call", "message", "hint"), CALLS.values(), ids=CALLS.keys())
def test_a_wrong_call_is_an_error_at_its_line(call, message, hint):
    @workflow
    def flow():
        call()

    problem = problem_of(flow)
    assert message in problem.message
    assert hint in problem.hint
    assert problem.file == __file__
    assert problem.line


def test_an_input_that_is_no_list_has_no_items():
    @workflow
    def flow(n: int, numbers: list[int]):
        double.map(numbers)
        items: Any = n
        double.map(items)

    problem = problem_of(flow)
    assert problem.message == "a fan-out runs over a list, and the input 'n' is of type integer"
    assert problem.text == "double.map(items)"


def test_a_future_of_another_workflow_is_refused():
    kept: list[Any] = []

    @workflow
    def one():
        kept.append(echo(1))

    @workflow
    def other():
        echo(kept[0])

    one.compile()
    assert "outside of the workflow that it belongs to" in problem_of(other).message
    assert "got a future outside of a workflow" in problem_of(lambda: echo(kept[0])).message


def test_graph_parts_outside_of_a_workflow_are_refused():
    @workflow
    def flow():
        echo(1)

    for call in (lambda: double.map([1]), lambda: approval("?"), flow.__call__):
        assert "decorated with @workflow" in problem_of(call).message


def test_a_workflow_does_not_call_itself_and_ids_are_unique():
    @workflow
    def loop():
        again()

    @workflow
    def again():
        loop()

    problem = problem_of(loop)
    assert "the workflow loop calls itself" in problem.message
    assert (problem.file, problem.text.split("\n")[0].strip()) == (__file__, "loop()")

    @workflow(workflow_id="same")
    def one():
        echo(1)

    @workflow(workflow_id="same")
    def two():
        echo(2)

    @workflow
    def both():
        one()
        one.with_options(name="again")()
        two()

    @workflow
    def inner():
        two()

    @workflow
    def outer():
        one()
        inner()

    assert "two workflows have the id 'same'" in problem_of(both).message
    assert "two workflows have the id 'same'" in problem_of(outer.handlers).message


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda child: child("x"), 'n: "x" is not a whole number'),
        (lambda child: child(n=50, sizes=[1]), "n: 50 is more than 9"),
        (lambda child: child(1, sizes=[1, "two"]), 'sizes[1]: "two" is not a whole number'),
        (lambda child: child(), "missing input 'n'"),
        (lambda child: fan_out([1], lambda item: child("x", sizes=[item])), 'n: "x" is not a whole number'),
        (lambda child: child.with_options(version=1)("x"), 'n: "x" is not a whole number'),
    ],
)
def test_a_literal_for_an_input_of_a_child_workflow_is_checked_when_the_graph_is_built(call, expected):
    @workflow
    def child(n: Annotated[int, Field(le=9)], sizes: list[int] | None = None):
        echo([n, sizes])

    @workflow
    def parent():
        call(child)

    problem = problem_of(parent)
    assert (problem.message, problem.file) == (expected, __file__)
    assert "child(" in problem.text or "child.with" in problem.text


def test_what_is_not_known_of_the_inputs_of_a_child_workflow_is_not_checked():
    @workflow
    def child(n: int, text: str = "a"):
        echo([n, text])

    @workflow
    def parent(n: str):
        child(n, text="{{ braces }}")
        child(echo(1))
        child.with_options(version=2)("x")

    parent.compile()


@pytest.mark.parametrize(
    ("wrap", "call", "expected"),
    [
        (
            any_of,
            lambda value: echo.with_options(depends_on=value)(1),
            "what 'echo' waits for is nested too deep",
        ),
        (lambda value: expression("{{ x }}", x=value), echo, "params of 'echo' is nested too deep"),
        (lambda value: expression("{{ x }}", x=value), lambda value: value, "the result is nested too deep"),
        (lambda value: [value], echo, "is nested more than 100 deep, or contains itself"),
    ],
)
def test_values_and_dependencies_that_are_nested_too_deep_are_errors_at_the_line(wrap, call, expected):
    @workflow
    def flow():
        value: Any = echo(1)
        for _ in range(5_000):
            value = wrap(value)
        return call(value)

    problem = problem_of(flow)
    assert expected in problem.message
    assert problem.file == __file__


def test_an_input_that_is_nested_too_deep_is_an_error_of_the_inputs():
    @workflow
    def flow(values: list[Any]):
        echo(values)

    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(InputsInvalid, match="nested too deep"):
        flow.run(values=deep)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            lambda child: fan_out([1], lambda x: echo(x).default(3)),
            "a default cannot stand for a whole result here",
        ),
        (
            lambda child: fan_out([1], lambda x: echo(x)["a"].default(3)),
            "a default cannot stand for a whole result",
        ),
        (
            lambda child: fan_out([[1]], lambda row: fan_out(row, child)),
            "a fan-out in a fan-out gives whole results",
        ),
        (lambda child: fan_in(child(1), child(2)), "a fan-in aggregates whole results"),
        (lambda child: fan_in(echo(1)["a"]), "a fan-in aggregates whole results"),
        (lambda child: fan_in(fan_out([1], child)), "a fan-in aggregates whole results"),
    ],
)
def test_a_part_or_a_default_of_a_result_that_would_be_lost_is_an_error_at_the_line(call, expected):
    @workflow
    def child(x: int):
        return echo(x)

    @workflow
    def flow():
        call(child)

    problem = problem_of(flow)
    assert expected in problem.message
    assert problem.hint
    assert problem.file == __file__


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            lambda: {"{{ x }}": echo(1)},
            "a key cannot be an expression",
            "names of arguments and results have no {{",
        ),
        (
            lambda: echo({"{{ x }}": "x" * 5_000}),
            "longer than 4096 characters",
            "make the mapping in a @task",
        ),
    ],
)
def test_where_a_key_cannot_have_braces_the_error_says_so(call, message, hint):
    @workflow
    def flow():
        return call()

    problem = problem_of(flow)
    assert message in problem.message
    assert hint in problem.hint


def test_an_error_of_a_workflow_that_makes_its_calls_in_a_thread_says_so():
    errors: list[WorkflowInvalid] = []

    def call(one: Any) -> None:
        try:
            echo(one)
        except WorkflowInvalid as error:
            errors.append(error)

    @workflow
    def threaded(n: int):
        for one in (1, n):
            thread = threading.Thread(target=call, args=[one])
            thread.start()
            thread.join()

    problem = problem_of(threaded)
    assert "has no nodes" in problem.message
    assert "a call in another thread is not part of the graph" in problem.hint
    assert [error.problems[0].hint for error in errors] == [problem.hint]


def test_a_workflow_has_nodes_and_is_no_coroutine():
    @workflow
    def empty():
        pass

    problem = problem_of(empty)
    assert "has no nodes" in problem.message
    assert problem.hint == ""
    with pytest.raises(WorkflowInvalid, match="plain function"):

        @workflow
        async def later():
            echo(1)


def test_a_mapping_of_result_alone_is_refused_as_its_yaml_would_return_the_value():
    @workflow
    def wrapped():
        return {"result": echo(1)}

    problem = problem_of(wrapped)
    assert "returns a mapping of 'result' alone" in problem.message
    assert "return the value itself" in problem.hint


def test_a_task_is_a_function_whose_parameters_have_names():
    with pytest.raises(HandlerInvalid, match="a task is a function"):
        task(int)
    with pytest.raises(HandlerInvalid, match="cannot be given by name"):
        _ = task(lambda *args: args).spec


def test_the_context_of_a_task_is_no_argument():
    @task
    def tell(ctx: HandlerContext, x: int) -> str:
        return f"{ctx.node_id} {x}"

    @workflow
    def flow():
        return tell(3)

    assert flow.run() == "tell 3"
    assert re.fullmatch(r"tests\.unit\..*\.test_the_context_of_a_task_is_no_argument\.tell", tell.handler)


def test_a_param_that_does_not_fit_is_found_before_anything_runs():
    @workflow
    def flow():
        extract("yesterday")

    assert "day" in problem_of(flow).message


@task
def no_queue(x: int) -> int:
    return x


def test_a_task_without_a_queue_says_what_its_author_does():
    @workflow
    def flow():
        no_queue(1)
        no_queue.map([1])

    with pytest.raises(WorkflowInvalid) as caught:
        flow.compile(flow.handlers())
    line = no_queue.function.__code__.co_firstlineno
    for problem, text in zip(caught.value.problems, ["no_queue(1)", "no_queue.map([1])"], strict=True):
        assert (problem.file, problem.text) == (__file__, text)
        assert problem.message == f"task no_queue ({no_queue.handler}) has no queue"
        assert f"write @task(queue=…) at {__file__}:{line}, " in problem.hint
        assert problem.hint.endswith("call no_queue.with_options(queue=…), or set DAGMASTER_PYTHON_QUEUE")


def test_a_handler_whose_name_is_too_long_is_refused_where_it_is_named():
    with pytest.raises(WorkflowInvalid, match="at most 64 characters, this one 65"):
        handler_task("h" * 65)


def test_a_handler_without_a_queue_says_the_same():
    @workflow
    def flow():
        handler_task("h.f")()

    with pytest.raises(WorkflowInvalid) as caught:
        flow.compile(flow.handlers(), allow_missing_handlers=True)
    hints = [problem.hint for problem in caught.value.problems if "has no queue" in problem.message]
    assert hints == ["call f.with_options(queue=…), or set DAGMASTER_PYTHON_QUEUE"]


def test_a_result_that_may_be_missing_is_at_its_return():
    @workflow
    def one():
        may_fail = double.with_options(allow_failure=True)(1)

        def inner():
            return 3

        inner()
        return may_fail

    @workflow
    def several():
        may_fail = double.with_options(allow_failure=True)(1)
        return {
            "certain": double(2),
            "missing": may_fail,
        }

    @workflow
    def two(x: int = 1):
        may_fail = double.with_options(allow_failure=True)(x)
        if NOT_TYPED:
            return may_fail
        return None if x else may_fail

    for flow, text, column in (
        (one, "return may_fail", 9),
        (several, '"missing": may_fail,', 24),
        (two, "@workflow", 1),
    ):
        problem = problem_of(flow)
        assert "may be missing" in problem.message
        assert (problem.file, problem.text, problem.column) == (__file__, text, column)


def test_a_result_that_may_be_missing_is_at_the_function_without_a_source():
    names: dict[str, Any] = {"workflow": workflow, "double": double}
    exec("@workflow\ndef flow():\n    return double.with_options(allow_failure=True)(1)\n", names)
    problem = problem_of(names["flow"])
    assert "may be missing" in problem.message
    assert (problem.file, problem.line) == ("<string>", 1)


class Site(BaseModel):
    name: Annotated[str, Field(pattern=r"^\p{L}++$")]


def test_a_pattern_that_is_refused_is_an_error_at_its_parameter():
    @workflow
    def flow(
        code: Annotated[str, Field(pattern=r"^[[:alpha:]]$")],
        other: Annotated[str, StringConstraints(pattern=re.compile("^a(?!b)"))] = "ac",
        site: Site | None = None,
    ):
        echo(code)

    with pytest.raises(WorkflowInvalid) as caught:
        flow.compile()
    found = [
        (problem.path, problem.text.partition(":")[0], problem.message) for problem in caught.value.problems
    ]
    assert [(path, text) for path, text, _ in found] == [
        ("inputs.code.pattern", "code"),
        ("inputs.other.pattern", "other"),
        ("inputs.site.properties.name.pattern", "site"),
    ]
    names = ("a POSIX class [:…:]", "negative look-ahead (?!…)", "a possessive repetition ++")
    assert all(message.startswith(name) for (*_, message), name in zip(found, names, strict=True))


def test_a_pattern_that_pydantic_refuses_is_an_error_at_its_parameter():
    @workflow
    def flow(
        code: Annotated[str, Field(pattern="(?=a)b")],
    ):
        echo(code)

    problem = problem_of(flow)
    assert problem.message == (
        "parameter 'code' of flow() has a type that is no input: look-around, including look-ahead and look-behind,"
        " is not supported"
    )
    assert problem.text.startswith("code: Annotated")

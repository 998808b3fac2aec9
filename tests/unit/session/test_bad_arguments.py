"""Arguments that cannot be meant: a clear error at once, and nothing is stored."""

from __future__ import annotations

import functools
import pickle
import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import AfterValidator, FilePath

from dagmaster import (
    Group,
    OrchContext,
    RetryPolicy,
    Task,
    blocking,
    create_result_collector,
    create_task,
    handler,
    handler_task,
    map_values,
    mock_handler,
    task,
)
from dagmaster.errors import (
    DagmasterError,
    HandlerInvalid,
    JobNotFound,
    NodeNotFound,
    NodesRejected,
    QueryInvalid,
)
from dagmaster.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WRONG: Any = 5
UNKNOWN: Any = {"x": 3}


def one(x: int = 0) -> int:
    return x


def needs_x(x: int) -> int:
    return x


def a_part() -> Any:
    return Task(one)["a"]


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "name": (
        lambda: Task(one, name=WRONG),
        NodesRejected,
        "the name of a task is text, not 5: a task of one",
    ),
    "entrypoint": (lambda: Task(entrypoint=WRONG), HandlerInvalid, "5 is not an entrypoint: give a function"),
    "no callback": (lambda: create_task(None), HandlerInvalid, "None is not an entrypoint"),  # type: ignore[arg-type]
    "a list": (lambda: create_task([one]), HandlerInvalid, "is not an entrypoint"),  # type: ignore[arg-type]
    "partial": (lambda: create_task(functools.partial(one)), HandlerInvalid, "is not an entrypoint"),
    "no words": (lambda: create_task(Odd()), HandlerInvalid, "<Odd instance"),  # type: ignore[arg-type]
    "kwargs": (lambda: Task(one, WRONG), NodesRejected, "task one: kwargs is 5, not a mapping"),
    "list of kwargs": (lambda: Task(one, [], name="a"), NodesRejected, "task a: kwargs is []"),  # type: ignore[arg-type]
    "allow_failure": (
        lambda: Task(one, allow_failure="no"),  # type: ignore[arg-type]
        NodesRejected,
        "task one: allow_failure is True or False",
    ),
    "dispatch_timeout_seconds": (
        lambda: Task(one, dispatch_timeout_seconds=0),
        HandlerInvalid,
        "task one: dispatch_timeout_seconds is more than 0",
    ),
    "code_fingerprint": (
        lambda: Task(one, code_fingerprint=WRONG),
        HandlerInvalid,
        "task one: code_fingerprint is text, not the number 5",
    ),
    "unknown": (lambda: Task(one, {"y": 1}, **UNKNOWN), TypeError, "Task(one, kwargs={'y': 1, 'x': 3})"),
    "unknown of a name": (lambda: Task("m.f", **UNKNOWN), TypeError, "Task('m.f', kwargs={'x': 3})"),
    "unknown option": (lambda: create_task(one, **UNKNOWN), TypeError, "create_task(one, {'x': 3})"),
    "group": (lambda: Group(WRONG), NodesRejected, "the name of a group is text, not 5"),
    "members": (lambda: Group("g", WRONG), TypeError, "group g: 5 is not a Task, a Group or a list of them"),
    "member": (lambda: Group("g", [[one]]), TypeError, "group g: <function one"),
    "dependency": (lambda: Task(one).depends_on(WRONG), TypeError, "task one: 5 is not a Task"),
    "operator": (lambda: Task(one) >> [WRONG], TypeError, "task one: 5 is not a Task"),
    "condition": (lambda: bool(Task(one)), TypeError, "task one (made at "),
    "condition on a group": (
        lambda: not Group("g"),
        TypeError,
        "group g has no outcome while the graph is built",
    ),
    "condition on a part": (
        lambda: bool(Task(one)["a"]),
        TypeError,
        "has no result while the graph is built",
    ),
    "loop": (lambda: list(Task(one)), TypeError, "loop in a task that takes its result"),
    "loop over a part": (lambda: list(Task(one)["a"]), TypeError, "loop in a task that takes its result"),
    "loop over a group": (lambda: list(Group("g")), TypeError, "its members are group.members"),
    "comparison": (lambda: a_part() == 3, TypeError, "a comparison needs the result of task one (made at "),
    "order": (lambda: a_part() > 3, TypeError, "a comparison needs the result of task one"),
    "sum": (lambda: 1 + a_part(), TypeError, "a computation needs the result of task one"),
    "len": (lambda: len(a_part()), TypeError, "len() needs the result of task one"),
    "text of a part": (lambda: f"{Task(one)['a']}.tif", TypeError, "text needs the result of task one"),
    "str of a part": (lambda: str(Task(one)["a"][0]), TypeError, "text needs the result of task one"),
    "path of a part": (lambda: Path("a", a_part()), TypeError, "text needs the result of task one"),
    "text of a task": (lambda: f"{Task(one)}.tif", TypeError, "To show the task, write {task!r}"),
    "format of a task": (lambda: format(Task(one)), TypeError, "text needs the result of task one"),
    "text of a collector": (lambda: f"{create_result_collector([])}", TypeError, "text needs the result of"),
    "part as kwargs": (lambda: Task(one, Task(one)["a"]), NodesRejected, "kwargs is <part ['a']"),  # type: ignore[arg-type]
    "key": (lambda: Task(one)[1.5], TypeError, "is text or a whole number, not 1.5"),
    "part of a group": (lambda: Group("g")["a"], TypeError, "group g has no result: name a task in it"),
    "part as a task": (
        lambda: Group("g", Task(one)["a"]),
        TypeError,
        "group g: <part ['a'] of the result of",
    ),
    "collector of a task": (
        lambda: create_result_collector(Task(one)),
        TypeError,
        "takes a list of tasks, not <Task",
    ),
    "collector": (
        lambda: create_result_collector(WRONG),
        TypeError,
        "a collector takes tasks, or the id of the job",
    ),
    "source": (lambda: create_result_collector([WRONG]), TypeError, "takes the results of tasks, not 5"),
    "collector's name": (
        lambda: create_result_collector([], name=WRONG),
        NodesRejected,
        "collector is text, not 5",
    ),
    "values": (lambda: map_values(one, WRONG), TypeError, "map(one): the values are a list"),
    "text": (lambda: map_values(one, "abc"), TypeError, "map(one): the values are a list"),
    "other kwargs": (lambda: map_values(one, [], kwargs=WRONG), NodesRejected, "task one: kwargs is 5"),
    "mapped": (lambda: map_values(WRONG, []), HandlerInvalid, "5 is not an entrypoint"),
    "run": (lambda: blocking.run_job_test(WRONG), TypeError, "run_job_test takes a job, as create_job"),
    "context": (lambda: OrchContext(job_id="abc"), JobNotFound, "there is no job 'abc'"),
    "hold": (lambda: OrchContext(hold_seconds="1"), ValueError, "hold_seconds is a number of seconds"),  # type: ignore[arg-type]
    "a server in memory": (
        lambda: OrchContext(url="http://a", in_memory=True),
        ValueError,
        "url and in_memory=True",
    ),
    "a local server": (lambda: OrchContext(url="http://a", local=True), ValueError, "url and local=True"),
    "a database": (
        lambda: OrchContext(url="postgresql://a/b"),
        ValueError,
        "DAGMASTER_DATABASE_URL names a database",
    ),
    "a clock": (
        lambda: OrchContext(clock=FakeClock()),
        ValueError,
        "clock has no effect without in_memory=True",
    ),
    "a move of a clock": (
        lambda: FakeClock().move(float("nan")),
        ValueError,
        "a clock moves by a number of seconds, not by nan",
    ),
    "no hold": (lambda: OrchContext(hold_seconds=float("nan")), ValueError, "more than 0, not nan"),
}


@pytest.mark.parametrize(("make", "kind", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_wrong_argument_is_an_error_with_its_value(make, kind, message):
    with pytest.raises(kind) as caught:
        make()
    assert message in str(caught.value)


def test_tasks_and_parts_can_be_shown_and_are_equal_to_themselves():
    task, group = Task(one), Group("g")
    part = task["a"]
    assert part in [part, task]
    assert {part: 1, task: 2}[part] == 1
    assert task in [group, task]
    assert str(task) == repr(task) == f"{task!r}"
    assert f"{group}" == repr(group)
    assert f"{part!r}".startswith("<part ['a'] of the result of task one")


@pytest.mark.parametrize(
    ("chunk", "kind"), [("a", TypeError), (True, TypeError), (None, TypeError), (1.5, TypeError)]
)
def test_a_chunk_is_a_whole_number(chunk, kind):
    with pytest.raises(kind, match=r"map\(one\): chunk is a whole number of values, not "):
        map_values(one, [1, 2], chunk=chunk)


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_chunk_has_a_value(chunk):
    with pytest.raises(ValueError, match=rf"map\(one\): a chunk has at least 1 value, not {chunk}"):
        map_values(one, [1, 2], chunk=chunk)


@pytest.fixture
def context() -> Iterator[Any]:
    with blocking.OrchContext(in_memory=True) as opened:
        yield opened


NO_IDS: list[Any] = ["abc", "", None, -1, "-1", 1.5, 10**40, "9" * 5000, b"1", "١", True, [1], "1\0", " 1"]  # noqa: RUF001
CALLS: dict[str, Callable[[Any], Any]] = {
    "get_job": blocking.get_job,
    "cancel_job": blocking.cancel_job,
    "retry_failed_tasks": blocking.retry_failed_tasks,
    "add_task_to_job": lambda job_id: blocking.add_task_to_job(job_id, one),
}


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_what_is_no_id_names_no_job(call):
    for job_id in NO_IDS:
        with pytest.raises(JobNotFound, match=r"there is no job .*: the id of a job is a whole number"):
            call(job_id)
    with pytest.raises(JobNotFound, match="there is no job '5'"):
        call(5)


@pytest.mark.usefixtures("context")
def test_what_is_no_id_names_no_task():
    for task_id in NO_IDS:
        with pytest.raises(NodeNotFound, match=r"there is no task .*: the id of a task is a whole number"):
            blocking.get_task(task_id)


def test_an_object_is_not_its_id(context: Any):
    job: Any = blocking.create_job("j", Task(one))
    task: Any = Task(one)
    with pytest.raises(JobNotFound, match=r"give its id: job\.id"):
        blocking.get_job(job)
    with pytest.raises(JobNotFound, match=r"give its id: job\.id"):
        context.apply(task, job)
    with pytest.raises(NodeNotFound, match=r"give its id: task\.id"):
        blocking.get_task(task)
    assert blocking.get_job(str(job.id)).id == job.id


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: blocking.list_jobs(limit="a"), QueryInvalid, "a page has 1 to 1,000 items, not 'a'"),  # type: ignore[arg-type]
        (lambda: blocking.list_jobs(WRONG), QueryInvalid, "'5' is not a status of a job"),
        (
            lambda: blocking.create_job("j", Task(one), idempotency_key=WRONG),
            NodesRejected,
            "job j: an idempotency key",
        ),
        (lambda: blocking.create_job(WRONG, Task(one)), NodesRejected, "the name of a job is text"),
        (lambda: blocking.create_job("j", WRONG), TypeError, "5 is not a Task, a Group or a list of them"),
    ],
)
def test_a_wrong_call_stores_nothing(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
    assert blocking.list_jobs() == []


def add_to_another() -> str:
    try:
        blocking.add_task_to_job("abc", one)
    except DagmasterError as error:
        return error.code
    return ""


@pytest.mark.usefixtures("context")
def test_a_running_task_gets_the_same_error():
    job = blocking.run_job_test(blocking.create_job("j", Task(add_to_another)))
    assert job.result == JobNotFound.code


def line_of(text: str) -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return (
        f"{__file__}:{next(number for number, line in enumerate(lines, 1) if line.strip().startswith(text))}"
    )


@pytest.mark.usefixtures("context")
def test_an_error_about_a_task_names_the_line_that_made_it():
    bad = create_task(one, {"x": {1}})
    with pytest.raises(NodesRejected) as caught:
        blocking.create_job("j", [Task(one), bad])
    assert f"(made at {line_of('bad = create_task(')})" in str(caught.value)
    unknown = Task(one, {"z": 1})
    with pytest.raises(NodesRejected, match=re.escape(f"(made at {line_of('unknown = Task(')})")):
        blocking.create_job("j", unknown)
    assert blocking.list_jobs() == []


def typed(
    n: int = 0, sizes: list[int] | None = None, path: FilePath | None = None, day: date | None = None
) -> int:
    return n


def odd(n: Annotated[int, AfterValidator(lambda n: n or 1 // n)]) -> int:
    return n


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n": "three"}, "kwargs['n'] is 'three': input should be a valid integer"),
        ({"n": 1.5}, "kwargs['n'] is 1.5: input should be a valid integer"),
        ({"n": 1, "sizes": (1, "big")}, "kwargs['sizes'][1] is 'big': input should be a valid integer"),
        ({"n": Task(one), "day": "soon"}, "kwargs['day'] is 'soon': input should be a valid date"),
    ],
)
@pytest.mark.parametrize("entrypoint", [typed, f"{__name__}.typed"], ids=["function", "name"])
def test_a_value_of_the_wrong_type_is_an_error_before_the_job_runs(entrypoint, kwargs, message):
    wrong = create_task(entrypoint, kwargs)
    with pytest.raises(
        NodesRejected, match=rf"task typed \({__name__}\.typed\): {re.escape(message)}"
    ) as caught:
        blocking.create_job("j", wrong)
    assert f"(made at {line_of('wrong = create_task(')})" in str(caught.value)
    assert blocking.list_jobs() == []


@pytest.mark.usefixtures("context")
def test_what_only_a_worker_can_decide_about_a_value_is_left_to_it():
    right: list[dict[str, Any]] = [
        {"n": "3", "day": date(2026, 1, 1)},
        {"path": "/of/the/worker"},
        {"n": Task(one), "sizes": [Task(one)]},
    ]
    blocking.create_job("j", [*(Task(typed, kwargs) for kwargs in right), Task(odd, {"n": 0})])
    with mock_handler(f"{__name__}.typed", returns=1):
        blocking.create_job("mocked", Task(typed, {"n": "three"}))
    assert len(blocking.list_jobs()) == 2


@pytest.mark.usefixtures("context")
def test_an_error_about_several_tasks_names_the_lines_that_made_them():
    first = Task(one, name="same")
    second = create_task(one, name="same")
    with pytest.raises(NodesRejected, match="two nodes are named 'same'") as caught:
        blocking.create_job("j", [first, second])
    assert line_of("first = Task(") in str(caught.value)
    assert line_of("second = create_task(") in str(caught.value)
    before = Task(one)
    after = create_task(one)
    before >> after >> before
    with pytest.raises(NodesRejected, match="cycle: one → one_2 → one") as caught:
        blocking.create_job("j", before)
    assert f"one is made at {line_of('before = Task(')}" in str(caught.value)
    assert line_of("after = create_task(") in str(caught.value)


@pytest.mark.usefixtures("context")
def test_a_task_that_dagmaster_made_has_no_line():
    with pytest.raises(NodesRejected) as caught:
        blocking.create_job("j", needs_x)
    assert "the argument 'x' is missing" in str(caught.value)
    assert "made at" not in str(caught.value)


@pytest.mark.usefixtures("context")
def test_a_mapped_function_without_a_chunk_and_a_wrong_option_name_the_line_and_the_value():
    mapped = map_values(one, [1])
    with pytest.raises(NodesRejected) as caught:
        blocking.create_job("j", mapped)
    assert "the function has no parameter 'chunk'" in str(caught.value)
    assert f"(made at {line_of('mapped = map_values(')})" in str(caught.value)
    with pytest.raises(
        HandlerInvalid, match=r"task one: retry has a wrong 'max_attempts'.*, not -1"
    ) as wrong:
        create_task(one, retry=-1)
    assert f"(made at {line_of('create_task(one, retry=-1)')})" in str(wrong.value)


@pytest.mark.parametrize("policy", [{"initial_delay_seconds": 3600}, RetryPolicy(initial_delay_seconds=3600)])
def test_a_first_delay_above_the_longest_is_rejected_everywhere(policy: Any):
    def function() -> Any:
        return lambda: 1

    limited = {"initial_delay_seconds": 3600, "max_delay_seconds": 3600}
    attempts: list[Callable[[Any], Any]] = [
        lambda retry: task(retry=retry)(function()),
        lambda retry: handler("one", retry=retry)(function()),
        lambda retry: create_task(one, retry=retry),
        lambda retry: Task("m.f", retry=retry),
        lambda retry: task(function()).with_options(retry=retry),
    ]
    for attempt in attempts:
        with pytest.raises(
            DagmasterError, match=r"no effect above max_delay_seconds \(300\).*max_delay_seconds: 3600"
        ):
            attempt(policy)
        attempt(limited)


@pytest.mark.usefixtures("context")
def test_a_name_without_a_module_that_is_no_handler_is_explained():
    with pytest.raises(ValueError, match=r"'okk' is not an entrypoint: write 'module\.function'"):
        blocking.create_job("j", "okk")
    job = blocking.run_job_test(blocking.create_job("j", create_task(handler_task("okk"))))
    assert "'okk': start a worker with the module or file that defines it (`--handlers`)" in str(job.error)


def test_a_task_can_be_pickled():
    task = pickle.loads(pickle.dumps(Task("m.f", {"x": 1}, name="a")))
    assert (task.entrypoint, task.kwargs, task.label, task.made_at) == ("m.f", {"x": 1}, "a", "")

"""One rule for what JSON lacks: kwargs of tasks in code, arguments in workflow functions, and results."""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from dagmaster import Future, JobStatus, blocking, create_task, workflow
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.errors import NodesRejected, PermanentError, WorkflowInvalid
from dagmaster.ports.task_messages import Succeeded
from dagmaster.sdk.handler_decorator import entrypoint_spec
from dagmaster.sdk.json_forms import short_repr
from dagmaster.worker.task_outcomes import outcome_of
from tests.unit.authoring.python.graphs import echo

if TYPE_CHECKING:
    from collections.abc import Callable


class Colour(Enum):
    RED = ("r", 1)


class Level(IntEnum):
    HIGH = 3


class Name(StrEnum):
    A = "a"


class Pair(NamedTuple):
    x: int
    y: int


@dataclass
class Point:
    at: date
    tags: tuple[str, ...] = ()


@pydantic_dataclass
class Checked:
    at: date


class Area(BaseModel):
    size: float = Field(alias="areaKm2")
    kinds: set[int] = set()


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


class Holder(BaseModel):
    thing: Any


DAY, ID = date(2026, 1, 2), UUID(int=7)
FORMS: list[tuple[Any, Any]] = [
    (DAY, "2026-01-02"),
    (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00Z"),
    (time(3, 4), "03:04:00"),
    (timedelta(minutes=1), "PT1M"),
    (ID, str(ID)),
    (PurePosixPath("/a/b"), "/a/b"),
    (Path("c"), "c"),
    (Decimal("1.50"), "1.50"),
    (Colour.RED, ["r", 1]),
    (Level.HIGH, 3),
    (Name.A, "a"),
    (Pair(1, 2), [1, 2]),
    (Point(DAY, ("x",)), {"at": "2026-01-02", "tags": ["x"]}),
    (Checked(DAY), {"at": "2026-01-02"}),
    (Area(areaKm2=2, kinds={1}), {"areaKm2": 2.0, "kinds": [1]}),
    (OrderedDict(a=(1,)), {"a": [1]}),
    (MappingProxyType({"a": DAY}), {"a": "2026-01-02"}),
]
REFUSED: list[tuple[Any, str]] = [
    ({1, 2}, "set"),
    (frozenset(), "frozenset"),
    (b"x", "bytes"),
    (bytearray(b"x"), "bytearray"),
    (range(3), "range"),
    (deque([1]), "deque"),
    (SimpleNamespace(a=1), "SimpleNamespace"),
    (object(), "object"),
    (1j, "complex"),
    (Broken(), "Broken"),
    (Area, "ModelMetaclass"),
    (Point, "type"),
    (Holder(thing=object()), "Holder"),
    ({1: 2}, "key"),
    ({None: 2}, "key"),
    ({DAY: 2}, "key"),
    (float("nan"), "nan"),
    (float("-inf"), "-inf"),
    ("a\0b", "NUL"),
]


def stored_kwargs(value: Any) -> Any:
    (task,) = collect(create_task("m.f", {"it": [value]}, name="load"), default_queue="q").part.tasks
    params: Any = task.with_params()["params"]
    return params["it"][0]


def written_argument(value: Any) -> Any:
    @workflow
    def flow() -> Future[Any]:
        return echo.submit([value])

    flow.compile()
    return flow.document.data["nodes"]["echo"]["params"]["value"][0]


def load() -> None: ...


def result(value: Any) -> Any:
    outcome = outcome_of([value], entrypoint_spec(load, "m.load"))
    assert isinstance(outcome, Succeeded)
    output: Any = outcome.output
    return output[0]


PLACES: dict[Callable[[Any], Any], tuple[type[Exception], str, str]] = {
    stored_kwargs: (NodesRejected, "task load", "kwargs['it'][0]"),
    written_argument: (WorkflowInvalid, "echo", "value[0]"),
    result: (PermanentError, "the output of m.load", "[0]"),
}


@pytest.mark.parametrize("write", PLACES)
@pytest.mark.parametrize(("value", "form"), FORMS, ids=lambda one: type(one).__name__)
def test_a_value_with_one_obvious_form_is_written_so_everywhere(write, value, form):
    assert json.dumps(write(value)) == json.dumps(form)


@pytest.mark.parametrize("write", PLACES)
@pytest.mark.parametrize(("value", "words"), REFUSED, ids=lambda one: type(one).__name__)
def test_any_other_value_is_refused_everywhere_with_the_task_and_the_place(write, value, words):
    kind, task, place = PLACES[write]
    with pytest.raises(kind) as caught:
        write(value)
    assert words in str(caught.value)
    assert task in str(caught.value)
    assert place in str(caught.value)


def test_a_refused_result_is_an_invalid_output():
    with pytest.raises(PermanentError) as caught:
        result({"rows": {1, 2}})
    assert caught.value.kind == "invalid_output"
    assert caught.value.details == {"path": "[0].rows"}


def nest(inner: Any, levels: int) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


def around_itself() -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize("write", PLACES)
@pytest.mark.parametrize(
    "value", [nest(1, 3000), {"a": nest({}, 3000)}, around_itself()], ids=["list", "dict", "loop"]
)
def test_a_value_that_is_too_deep_is_refused_everywhere(write, value):
    kind, task, _ = PLACES[write]
    with pytest.raises(kind, match=r"nested .*deep.*, or contains itself") as caught:
        write(value)
    assert task in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_a_default_that_is_too_deep_is_refused():
    @workflow
    def flow() -> Future[Any]:
        return echo.submit(echo.submit(1).default(nest(1, 3000)))

    with pytest.raises(WorkflowInvalid, match="a default is nested"):
        flow.compile()


def test_a_function_can_be_called_with_a_deep_value():
    value = nest(1, 3000)
    assert echo(value) is value


def test_a_future_in_a_dataclass_is_a_dependency():
    @workflow
    def flow() -> Future[Any]:
        untyped: Any = echo.submit("2026-01-01")
        return echo.submit(Point(untyped))

    assert flow.run() == {"at": "2026-01-01", "tags": []}


def make_day() -> Any:
    return {"days": [DAY], "names": {"a"}}


def read_day(day: date) -> Any:
    return day.year


def test_a_job_fails_at_a_result_that_json_lacks():
    with blocking.OrchContext(in_memory=True):
        job = blocking.run_job_test(blocking.create_job("sets", create_task(make_day)))
        assert job.status is JobStatus.FAILED
        assert "make_day: `names` is of type set" in (job.error or "")
        assert (
            blocking.run_job_test(blocking.create_job("days", create_task(read_day, {"day": DAY}))).result
            == 2026
        )


def test_the_text_of_any_value_is_short():
    assert short_repr(Broken()).startswith("<Broken")
    assert len(short_repr(["x" * 1000] * 1000)) <= 100
    assert short_repr(nest(1, 3000)).startswith("[[")

"""Parameters of a workflow function are the inputs of its jobs, with the schema of their annotations."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional
from uuid import UUID

import pytest
from pydantic import AfterValidator, AnyUrl, BaseModel, ConfigDict, Field, SecretStr

from dagmaster import InputsInvalid, workflow
from dagmaster.authoring.inputs import accept_inputs
from tests.unit.authoring.python.graphs import echo, problem_of

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    x: float
    y: float = Field(default=0, ge=0)


class Box(BaseModel):
    corner: Point
    tags: list[str] = []


class Tree(BaseModel):
    children: list[Tree] = []


@workflow
def everything(  # noqa: PLR0917 - one of each
    text: str,
    number: int,
    ratio: Annotated[float, Field(ge=0, le=1, description="A share.")],
    flag: bool,
    day: date,
    moment: datetime,
    link: AnyUrl,
    secret: SecretStr,
    colour: Colour,
    level: Level,
    mode: Literal["fast", "slow"],
    names: list[str],
    table: dict[str, Any],
    box: Box,
    code: Annotated[str, Field(pattern="^[a-z]+$")],
    maybe: Optional[int],  # noqa: UP045 - as users write it
    other: str | None = None,
    count: int = 3,
    start: date = date(2026, 1, 1),
    shade: Colour = Colour.RED,
):
    return echo([text, maybe, other, count, start, shade, box.corner.x])


def test_annotations_are_the_schema_of_inputs():
    point = {
        "type": "object",
        "properties": {"x": {"type": "number"}, "y": {"type": "number", "minimum": 0, "default": 0}},
        "required": ["x"],
    }
    assert everything.document.data["inputs"] == {
        "text": {"required": True},
        "number": {"type": "integer", "required": True},
        "ratio": {"type": "number", "minimum": 0, "maximum": 1, "description": "A share.", "required": True},
        "flag": {"type": "boolean", "required": True},
        "day": {"type": "date", "required": True},
        "moment": {"type": "date-time", "required": True},
        "link": {"type": "uri", "constraints": {"minLength": 1}, "required": True},
        "secret": {"secret": True, "required": True},
        "colour": {"enum": ["red", "blue"], "required": True},
        "level": {"type": "integer", "enum": [1, 2], "required": True},
        "mode": {"enum": ["fast", "slow"], "required": True},
        "names": {"type": "array", "items": {"type": "string"}, "required": True},
        "table": {"type": "object", "required": True},
        "box": {
            "type": "object",
            "properties": {
                "corner": point,
                "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            },
            "constraints": {"required": ["corner"]},
            "required": True,
        },
        "code": {"pattern": "^[a-z]+$", "required": True},
        "maybe": {"type": "integer"},
        "other": {},
        "count": {"type": "integer", "default": 3},
        "start": {"type": "date", "default": "2026-01-01"},
        "shade": {"enum": ["red", "blue"], "default": "red"},
    }
    assert not everything.compile().warnings


def test_values_of_inputs_are_python_values_or_json():
    inputs = {
        "text": "t",
        "number": 1,
        "ratio": 0.5,
        "flag": True,
        "day": date(2026, 2, 3),
        "moment": "2026-01-01T00:00:00Z",
        "link": "file:///x",
        "secret": "hush-hush",
        "colour": Colour.BLUE,
        "level": Level.HIGH,
        "mode": "fast",
        "names": ["a"],
        "table": {},
        "box": Box(corner=Point(x=1.5)),
        "code": "abc",
    }
    assert everything.run(**inputs) == ["t", None, None, 3, "2026-01-01", "red", 1.5]
    assert everything.run(**inputs, maybe=4, other="o")[1:3] == [4, "o"]


class Area(BaseModel):
    name: str
    level: Level = Level.LOW
    day: date = date(2026, 1, 31)
    corner: Point = Point(x=1)
    tags: list[str] = Field(default_factory=list)
    table: dict[str, int] = Field(default_factory=dict)
    inner: Optional[Point] = None  # noqa: UP045 - as users write it


def test_json_of_a_model_has_the_defaults_that_an_instance_has():
    @workflow
    def flow(area: Area, areas: list[Area]):
        return echo(
            {"area": area, "areas": areas, "corner": area.corner.y, "tags": area.tags, "inner": area.inner}
        )

    instance = Area(name="a", inner=Point(x=2))
    values: JsonValue = {"name": "a", "inner": {"x": 2}}
    of_instance = flow.run(area=instance, areas=[instance])
    assert flow.run(area=values, areas=[values]) == of_instance
    accepted = accept_inputs(flow.compile().graph, {"area": values, "areas": [values]})
    assert accepted["area"] == instance.model_dump(mode="json")


def test_inputs_that_do_not_fit_are_all_reported_before_anything_runs():
    @workflow
    def flow(day: date, mode: Literal["a", "b"] = "a"):
        echo([day, mode])

    with pytest.raises(InputsInvalid) as caught:
        flow.run(day="tomorrow", mode="c", dya=1)
    assert sorted(problem.path for problem in caught.value.problems) == ["day", "dya", "mode"]
    with pytest.raises(InputsInvalid, match='"2026-13-45" is not a date'):
        flow.run(day="2026-13-45")
    with pytest.raises(InputsInvalid, match="type object is not JSON"):
        flow.run(day=object())


def _flow_of(annotation: Any) -> Any:
    def flow(x):
        echo(x)

    flow.__annotations__ = {"x": annotation}
    return workflow(flow)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (int | str, "has the type `int | str`, which is no input"),
        (Any, "which is no input"),
        (object, "which is no input"),
        (Tree, "which contains itself"),
        (type(lambda: 0), "has a type that is no input"),
        ("Missing", "has the annotation `Missing`, which cannot be read"),
    ],
)
def test_a_type_that_no_input_has_is_an_error_at_the_function(annotation, message):
    problem = problem_of(_flow_of(annotation))
    assert message in problem.message
    assert problem.text == "def flow(x):"


class Even(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: Annotated[int, Field(multiple_of=2)]


@pytest.mark.parametrize(
    ("annotation", "fits", "does_not_fit"),
    [
        (Annotated[int, Field(gt=0)], 1, 0),
        (Annotated[float, Field(lt=1)], 0.5, 1),
        (Annotated[int, Field(multiple_of=5)], -10, 7),
        (Annotated[float, Field(multiple_of=0.1)], 0.3, 0.35),
        (Annotated[float, Field(multiple_of=0.1)], 7, 10**400),
        (Annotated[str, Field(min_length=2)], "ab", "a"),
        (Annotated[str, Field(max_length=2)], "ab", "abc"),
        (Annotated[list[int], Field(min_length=1)], [1], []),
        (Annotated[list[int], Field(max_length=1)], [1], [1, 2]),
        (Annotated[int, Field(gt=0)] | None, 1, 0),
        (dict[str, int], {"a": 1}, {"a": "x"}),
        (tuple[int, str], [1, "a"], ["a", 1]),
        (tuple[int, str], [1, "a"], [1]),
        (set[int], [1, 2], [1, 1]),
        (Point, {"x": 1}, {}),
        (Even, {"number": 2}, {"number": 3}),
        (Even, {"number": 2}, {"number": 2, "other": 1}),
        (UUID, "6f1f5a2e-7a53-4d0c-9b43-0c6f4bb6d6b5", "6f1f"),
        (timedelta, "PT1H", "an hour"),
    ],
)
def test_a_limit_of_an_annotation_is_checked(annotation, fits, does_not_fit):
    flow = _flow_of(annotation)
    loaded = flow.compile().graph
    accept_inputs(loaded, {"x": fits})
    with pytest.raises(InputsInvalid):
        accept_inputs(loaded, {"x": does_not_fit})
    with pytest.raises(InputsInvalid):
        flow.run(x=does_not_fit)


@pytest.mark.parametrize(
    ("annotation", "limit"),
    [
        (Annotated[date, Field(gt=date(2026, 1, 1))], "Gt(gt=datetime.date(2026, 1, 1))"),
        (Annotated[int, AfterValidator(abs)], "AfterValidator"),
        (Annotated[dict[str, int], Field(json_schema_extra={"not": {"required": ["a"]}})], "not"),
        (Annotated[str, Field(json_schema_extra={"format": "email"})], "format='email'"),
    ],
)
def test_a_limit_that_no_input_has_is_an_error_that_names_it(annotation, limit):
    message = problem_of(_flow_of(annotation)).message
    assert f"has the limit {limit}" in message
    assert "is not checked of an input" in message


def test_limits_that_json_has_by_itself_are_accepted():
    assert _flow_of(Annotated[int, Field(strict=True)]).document.data["inputs"]["x"]["type"] == "integer"


def test_parameters_have_names_and_annotations():
    @workflow
    def bare(x):
        echo(x)

    @workflow
    def many(*values: int):
        echo(values)

    assert "has no annotation" in problem_of(bare).message
    assert "cannot be an input" in problem_of(many).message

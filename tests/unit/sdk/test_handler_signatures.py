"""What a handler's function is given, and what its annotations promise."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Generator, Mapping
from typing import Annotated, Any, TypedDict

import pytest
from pydantic import AliasChoices, BaseModel, Field, RootModel, computed_field

from dagmaster.errors import HandlerInvalid, PermanentError
from dagmaster.ports.handler_reports import Checkpoint, HandlerResult, Progress
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import (
    handler,
    spec_of,
)


class Box(BaseModel):
    west: float
    east: float = 0.0


class Area(BaseModel):
    area: float


class Sized(TypedDict):
    size: int


def arguments(function: Any, **params: Any) -> dict[str, Any]:
    return spec_of(function).signature.arguments(HandlerContext(params=params))


def misfit(function: Any, **params: Any) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        arguments(function, **params)
    assert caught.value.kind == "invalid_params"
    return caught.value


# ── what a function is given ──────────────────────────────────────────────────────────────────────────────────────────


def test_params_are_given_by_name_and_converted_to_their_types():
    @handler("x")
    def function(count: int, name: str = "Ada", *, ratio: float | None = None) -> None: ...

    assert arguments(function, count="3") == {"count": 3, "name": "Ada", "ratio": None}


def test_a_context_is_known_by_its_annotation_or_by_its_name():
    def annotated(it: HandlerContext, optional: HandlerContext | None = None) -> None: ...
    def named(ctx, context): ...
    def another(context: int) -> None: ...

    assert set(arguments(handler("x")(annotated))) == {"it", "optional"}
    assert all(isinstance(one, HandlerContext) for one in arguments(handler("x")(named)).values())
    assert arguments(handler("x")(another), context=1) == {"context": 1}


def test_a_function_with_only_a_context_takes_any_params():
    @handler("x")
    def function(ctx: HandlerContext) -> None: ...

    spec = spec_of(function)
    assert set(arguments(function, anything={"at": "all"})) == {"ctx"}
    assert (spec.known_params(), spec.required_params(), spec.params_schema()) == (None, frozenset(), None)


def test_a_function_without_parameters_takes_no_params():
    @handler("x")
    def function() -> None: ...

    assert spec_of(function).known_params() == frozenset()
    assert "name is not a param of this handler" in str(misfit(function, name=1))


def test_a_model_gets_all_params():
    @handler("x")
    def function(box: Box, ctx: HandlerContext) -> None: ...

    box = arguments(function, west="1.5")["box"]
    assert isinstance(box, Box)
    assert (box.west, box.east) == (1.5, 0.0)
    assert spec_of(function).known_params() == frozenset({"west", "east"})


def test_a_model_refuses_unknown_params_unless_its_author_said_otherwise():
    class Lenient(BaseModel, extra="ignore"):
        west: float

    @handler("strict")
    def strict(box: Box) -> None: ...
    @handler("lenient")
    def lenient(box: Lenient) -> None: ...

    assert "eats is not a param of this handler (did you mean 'east'?)" in str(misfit(strict, west=1, eats=2))
    assert type(arguments(lenient, west=1, eats=2)["box"]) is Lenient
    assert spec_of(lenient).known_params() is None


def test_a_model_next_to_other_parameters_is_refused():
    @handler("x")
    def function(box: Box, name: str) -> None: ...

    with pytest.raises(
        HandlerInvalid, match=r"handler 'x' .*'box' is a model.*'name': put it into the model"
    ):
        spec_of(function)


def test_a_root_model_takes_any_params():
    class Anything(RootModel[dict[str, int]]): ...

    @handler("x")
    def function(params: Anything) -> None: ...

    assert arguments(function, a="1")["params"].root == {"a": 1}
    assert spec_of(function).known_params() is None
    assert spec_of(function).required_params() == frozenset()


def test_double_starred_params_take_the_rest():
    @handler("x")
    def function(name: str, **rest: Any) -> None: ...

    assert arguments(function, name="a", more=[1], ctx=2) == {"name": "a", "more": [1], "ctx": 2}
    assert spec_of(function).known_params() is None
    assert spec_of(function).required_params() == {"name"}


def test_names_that_models_use_themselves_are_good_names_of_params():
    @handler("x")
    def function(json: int, schema: str, copy: bool, model_config: int, _hidden: int = 1) -> None: ...

    values: Mapping[str, Any] = {"json": 1, "schema": "s", "copy": True, "model_config": 2}
    assert arguments(function, **values) == {**values, "_hidden": 1}
    assert spec_of(function).known_params() == frozenset(
        {"json", "schema", "copy", "model_config", "_hidden"}
    )
    assert "copy is required" in str(misfit(function, json=1, schema="s", model_config=2))


def test_aliases_of_fields_are_the_names_of_params():
    class Named(BaseModel):
        source: int = Field(validation_alias=AliasChoices("src", "from"))
        plain: int = 0

    @handler("x")
    def function(named: Named) -> None: ...

    assert spec_of(function).known_params() == frozenset({"src", "from", "plain"})
    assert spec_of(function).required_params() == {"src"}
    assert arguments(function, **{"from": 1})["named"].source == 1


def test_every_wrong_param_is_named_and_no_value_is_repeated():
    @handler("x")
    def function(count: Annotated[int, Field(ge=1)], names: list[str], box: Box | None = None) -> None: ...

    error = misfit(function, count=0, names=["a", 7], box={"west": "s3cret"}, nmes=[])
    assert [field["path"] for field in error.details["fields"]] == ["count", "names[1]", "box.west", "nmes"]
    assert "count input should be greater than or equal to 1" in str(error)
    assert "did you mean 'names'?" in str(error)
    assert "s3cret" not in str(error) + str(error.details)


def test_many_wrong_params_are_cut_short():
    @handler("x")
    def function(numbers: list[int]) -> None: ...

    error = misfit(function, numbers=["x"] * 1000)
    assert len(error.details["fields"]) == 20
    assert str(error).endswith("and 980 more")


def test_the_schema_of_the_params_has_names_types_and_defaults():
    @handler("x")
    def function(count: int, schema: str = "public") -> None: ...

    schema = spec_of(function).params_schema()
    assert schema is not None
    assert schema["required"] == ["count"]
    assert {name: one["type"] for name, one in schema["properties"].items()} == {
        "count": "integer",
        "schema": "string",
    }
    assert schema["properties"]["schema"]["default"] == "public"
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("written", ["def function(a, /): ...", "def function(*args): ..."])
def test_a_parameter_without_a_name_is_refused(written):
    names: dict[str, Any] = {}
    exec(written, names)
    with pytest.raises(HandlerInvalid, match="params have only names"):
        spec_of(handler("x")(names["function"]))


def test_a_type_that_cannot_be_checked_is_refused():
    class Opaque: ...

    @handler("x")
    def function(thing: Opaque) -> None: ...

    with pytest.raises(HandlerInvalid, match=r"'x'.*its parameters cannot be checked.*Opaque"):
        spec_of(function)


# ── annotations ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_postponed_annotations_find_local_names():
    class Local(BaseModel):
        number: int

    @handler("x")
    def function(local: Local, ctx: HandlerContext) -> Local:
        raise NotImplementedError

    assert isinstance(arguments(function, number=1)["local"], Local)
    assert spec_of(function).output_model is Local


def test_a_context_imported_for_the_type_checker_only_is_still_the_context():
    def function(it, count): ...

    function.__annotations__ = {"it": "ports.HandlerContext", "count": int, "return": "NeverImported"}
    assert set(arguments(handler("x")(function), count=1)) == {"it", "count"}
    assert spec_of(function).output_model is None


def test_an_annotation_that_cannot_be_read_is_explained():
    def function(box): ...

    function.__annotations__ = {"box": "NeverImported"}
    with pytest.raises(
        HandlerInvalid, match=r"`NeverImported` of parameter 'box' cannot be read.*TYPE_CHECKING"
    ):
        spec_of(handler("x")(function))


def test_a_decorator_in_between_hides_nothing():
    def noisy(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @noisy
    @handler("inner")
    def function(count: int) -> Sized:
        return {"size": count}

    spec = spec_of(function)
    assert spec.call(HandlerContext(params={"count": "2"})) == {"size": 2}
    assert spec.output_keys() == frozenset({"size"})


def test_a_decorator_from_another_module_does_not_lend_its_names():
    names: dict[str, Any] = {"functools": functools}
    exec(
        "def noisy(function):\n"
        "    @functools.wraps(function)\n"
        "    def wrapper(*args, **kwargs):\n"
        "        return function(*args, **kwargs)\n"
        "    return wrapper\n",
        names,
    )

    def function(box: Box) -> None: ...

    function.__annotations__ = {"box": "Box"}
    assert isinstance(arguments(handler("x")(names["noisy"](function)), west=1)["box"], Box)


def test_a_partial_is_a_handler_when_it_has_a_name():
    def add(left: int, right: int) -> dict[str, int]:
        return {"sum": left + right}

    increment = functools.partial(add, right=1)
    assert spec_of(handler("increment")(increment)).call(HandlerContext(params={"left": 2})) == {"sum": 3}


class Renamed(BaseModel):
    inner: int = Field(serialization_alias="outer")
    hidden: int = Field(default=0, exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.inner


class Open(BaseModel, extra="allow"):
    known: int


@pytest.mark.parametrize(
    ("annotation", "model", "keys"),
    [
        (Area, Area, {"area"}),
        (Annotated[Area, "said"], Area, {"area"}),
        (Area | HandlerResult, Area, {"area"}),
        (Sized, None, {"size"}),
        (Renamed, Renamed, {"outer", "twice"}),
        (Open, Open, None),
        (AsyncIterator[Progress | Checkpoint | Area], Area, {"area"}),
        (Generator[Progress, None, Sized], None, {"size"}),
        (Generator[Progress | Sized, None, None], None, {"size"}),
        (Area | Sized, None, None),
        (Area | None, None, None),
        (dict[str, int], None, None),
        (HandlerResult, None, None),
        (None, None, None),
    ],
)
def test_the_return_annotation_promises_an_output(annotation, model, keys):
    def function(): ...

    function.__annotations__["return"] = annotation
    spec = spec_of(handler("x")(function))
    assert (spec.output_model, spec.output_keys()) == (model, keys)

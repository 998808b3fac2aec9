"""A model made from a JSON Schema finds the mistakes of the handler's own model, and no others."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.bootstrap import find_handlers
from dagmaster.errors import WorkflowInvalid
from dagmaster.sdk.handler_definitions import PublishedHandlers, describe_handler
from dagmaster.sdk.handler_registry import Registry, handler, spec_of
from dagmaster.sdk.schema_models import model_from_schema


class Box(BaseModel):
    model_config = ConfigDict(extra="forbid")
    west: float = Field(ge=-180, le=180)
    label: str = Field(default="", max_length=5)
    code: str = Field(default="a1", pattern=r"^[a-z]\d+$")


class Measure(BaseModel):
    size: Annotated[int, Field(ge=1, lt=10)]
    box: Box
    mode: Literal["fast", "exact"] = "fast"
    names: Annotated[list[str], Field(max_length=2)] = []
    weights: dict[str, float] | None = None
    at: datetime | None = None
    path: Path | None = None
    json_: Any = Field(default=None, alias="json")
    ratio: float | str = 1.0


@handler("measure", queue="q")
async def measure(params: Measure) -> dict[str, Any]:
    return {"size": params.size}


def problems(params: str, handlers: Any) -> list[Any]:
    text = f"workflow_id: w\nversion: 1\nnodes:\n  a: {{handler: measure, params: {params}}}\n"
    try:
        return list(compile_text(text, handlers=handlers).warnings)
    except WorkflowInvalid as error:
        return list(error.problems)


@pytest.mark.parametrize(
    "params",
    [
        "{size: 3, box: {west: 1}}",
        '{size: "3", box: {west: "1.5", label: ab}, weights: {a: 1}, json: {x: [1]}, at: "2026-01-01T00:00:00Z"}',
        '{size: 3, box: {west: 1}, at: "1700000000", path: a/b.tif, ratio: abc, names: [a, b]}',
        "{size: 0, box: {west: 181}}",
        "{size: 10, box: {west: 1, label: toolong}}",
        "{size: 3, box: {west: 1, code: a22}}",
        "{size: 3, box: {west: 1, code: 22a}}",
        "{size: 3, box: {west: 1, code: a٣}}",
        "{size: many, box: {west: east}}",
        "{size: 3, box: {weast: 1}}",
        "{size: 3, box: {west: 1, south: 2}}",
        "{size: 3, box: 7, mode: slow}",
        "{size: 3, box: {west: 1}, names: [a, 1, c], weights: {a: b}}",
        "{size: 3.5, box: {west: 1}, names: a}",
        "{sise: 3, box: {west: 1}}",
        "{box: {west: 1}, mode: fast, extra: 1}",
        '{size: "{{ inputs.x }}", box: {west: 200}}',
    ],
)
def test_the_problems_come_from_the_handlers_model(params):
    published = PublishedHandlers([describe_handler(spec_of(measure))])
    assert problems(params, published) == problems(params, Registry([measure]))


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array"},
        {"type": "object", "properties": []},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/missing"}, "b": 7, "c": {"type": "nothing"}},
        },
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": "many"}}},
        {"type": "object", "properties": {"a": {"enum": [[1], {}]}, "b": {"anyOf": []}, "c": {"type": []}}},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/loop"}},
            "$defs": {"loop": {"$ref": "#/$defs/loop"}},
        },
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/tree"}},
            "$defs": {
                "tree": {
                    "type": "object",
                    "properties": {name: {"$ref": "#/$defs/tree"} for name in "abcdef"},
                }
            },
        },
    ],
)
def test_a_schema_that_is_not_understood_checks_nothing(schema):
    model = model_from_schema(schema)
    if model is not None:
        model.model_validate({"a": {}})


@pytest.mark.parametrize("pattern", ["(?=x", "^(?=b)a", "x{2000}", r"^(a)\1$"])
def test_a_pattern_that_is_refused_checks_nothing(pattern):
    model = model_from_schema({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}})
    assert model is not None
    model.model_validate({"a": "b"})


def test_a_pattern_of_a_published_handler_is_matched_in_linear_time():
    part = {"type": "string", "pattern": r"(?i)^(?:\u017f+s)+c"}
    model = model_from_schema({"type": "object", "properties": {"a": part}})
    assert model is not None
    with pytest.raises(ValidationError, match="should match pattern"):
        model.model_validate({"a": "s" * 9_000})


def test_every_built_in_handler_has_a_model_as_strict_about_its_names():
    registry = find_handlers()
    published = PublishedHandlers(describe_handler(spec) for spec in registry)
    for spec in registry:
        other = published.find(spec.name)
        assert other is not None
        assert (other.queue, other.timeout_seconds, other.retry) == (
            spec.queue,
            spec.timeout_seconds,
            spec.retry,
        )
        assert (other.known_params(), other.required_params()) == (
            spec.known_params(),
            spec.required_params(),
        )
        assert other.output_keys() == spec.output_keys()
        assert (other.params_model is None) == (spec.params_schema() is None or spec.params_model is None), (
            spec.name
        )
        assert all(published.find(alias) is other for alias in spec.aliases)


@pytest.mark.process
def test_the_definitions_of_built_in_handlers_are_read_without_importing_them():
    code = (
        "import sys; from dagmaster.bootstrap import find_handlers; definitions = find_handlers().definitions();"
        "assert any(each.name == 'raster.create_cog' for each in definitions), definitions;"
        "assert 'rasterio' not in sys.modules and 'dagmaster.geo.raster.handlers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

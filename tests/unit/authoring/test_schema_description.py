"""What a handler takes and gives, in words."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from dagmaster.authoring.schema_description import describe_fields, takes_text


class Part(BaseModel):
    name: str


class Params(BaseModel):
    text: str
    maybe: str | None = Field(default=None, max_length=9, description="Or not.")
    word: Literal["a", "b"] = "a"
    words: list[Literal["x", "y"]] | None = None
    level: int | None = Field(default=None, ge=1, le=22)
    size: int = Field(default=512, ge=64, multiple_of=16)
    share: float = Field(gt=0, lt=1)
    box: tuple[float, float] | None = None
    part: Part | None = None
    parts: list[Part] = []
    either: dict[str, Any] | str | None = None
    what: Any = None


TOLD = {
    "text": ("string", "", "required", ""),
    "maybe": ("string", "at most 9 characters", "", "Or not."),
    "word": ("a | b", "", "a", ""),
    "words": ("array of x | y", "", "", ""),
    "level": ("integer", "1 to 22", "", ""),
    "size": ("integer", "at least 64, a multiple of 16", "512", ""),
    "share": ("number", "above 0, below 1", "required", ""),
    "box": ("array", "2 of them", "", ""),
    "part": ("object", "", "", ""),
    "parts": ("array of object", "", "", ""),
    "either": ("object or string", "", "", ""),
    "what": ("any", "", "", ""),
}


def test_a_field_tells_its_type_its_values_its_range_its_default_and_what_it_is():
    message = {
        one.name: (one.kind, one.limits, one.default, one.description)
        for one in describe_fields(Params.model_json_schema())
    }
    assert message == TOLD


@pytest.mark.parametrize("name", [*TOLD, "unknown"])
def test_only_what_takes_text_alone_wants_text(name):
    assert takes_text(Params.model_json_schema(), name) == (name in ("text", "maybe", "word"))

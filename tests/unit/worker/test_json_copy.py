"""Copies of values as plain JSON, and what JSON cannot say."""

from __future__ import annotations

import json
from collections import OrderedDict
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.errors import PermanentError
from dagmaster.worker import json_copy as module
from dagmaster.worker.json_copy import json_copy

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=40,
)


class Colour(StrEnum):
    RED = "red"


class Old(str, Enum):  # noqa: UP042 - the older form, whose str() is another text
    BLUE = "blue"


class Level(IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


class Ratio(float): ...


def copied(value: Any) -> Any:
    return json_copy(value, kind="invalid_output", subject="the output")


def refused(value: Any) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        copied(value)
    assert caught.value.kind == "invalid_output"
    return caught.value


@given(VALUES)
def test_what_json_can_say_is_copied_as_json_would(value):
    assert copied(value) == json.loads(json.dumps(value))


@given(
    st.lists(st.lists(st.integers(), max_size=20), min_size=1)
    | st.dictionaries(TEXTS, st.dictionaries(TEXTS, SCALARS))
)
def test_a_copy_shares_nothing_that_can_change(value):
    copy = copied(value)
    assert copy is not value
    inside = (
        zip(value.values(), copy.values(), strict=True)
        if isinstance(value, dict)
        else zip(value, copy, strict=True)
    )
    assert not any(one is other for one, other in inside)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "red"),
        (Old.BLUE, "blue"),
        (Level.HIGH, 3),
        (Ratio(0.5), 0.5),
        (Point(1, 2), [1, 2]),
        ((1, (2,)), [1, [2]]),
        (OrderedDict(a=1), {"a": 1}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
        ({Colour.RED: 1}, {"red": 1}),
        ([True, None], [True, None]),
        ([1] * 9 + [True], [1] * 9 + [True]),
    ],
)
def test_what_stands_for_a_json_value_becomes_that_value(value, plain):
    copy = copied({"it": value})["it"]
    assert copy == plain
    assert type(copy) is type(plain)
    assert not isinstance(copy, dict) or {type(key) for key in copy} == {str}


@pytest.mark.parametrize(
    ("value", "path", "sentence"),
    [
        ({"a": float("nan")}, "a", "is nan, which is not a valid JSON number"),
        ({"a": [1.0] * 20 + [float("inf")]}, "a[20]", "is inf"),
        ({"a": Ratio("nan")}, "a", "is nan"),
        ({"a": {1: 2}}, "a.1", "is a key of type int, and keys are text"),
        ({"a": [{"b c": b"x"}]}, 'a[0]["b c"]', "is of type bytes, which JSON does not have"),
        ({"a": {1, 2}}, "a", "is of type set"),
        ({"a": [(2, {"b": range(3)})]}, "a[0][1].b", "is of type range"),
        ({"a": "\ud800"}, "a", "unpaired surrogate"),
        ({"a": {"\udfff": 1}}, None, "unpaired surrogate"),
        ({"a": "x\0y"}, "a", "NUL"),
        ({"a": 2**1023}, "a", "more than 1023 bits"),
        ({"a": [2**1023] + [1] * 20}, "a[0]", "more than 1023 bits"),
        (object(), "", "the output is of type object"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_place(value, path, sentence):
    error = refused(value)
    assert sentence in str(error)
    assert path is None or error.details == {"path": path}
    assert path is None or path in str(error)


def test_a_value_that_contains_itself_is_refused():
    mapping: dict[str, Any] = {}
    mapping["me"] = [mapping]
    items: list[Any] = []
    items.append(items)
    assert "nested deeper than 256 levels, or contains itself" in str(refused(mapping))
    assert len(str(refused({"a": items}))) < 400


def test_256_levels_are_not_too_deep():
    value: Any = 1
    for _ in range(256):
        value = [value]
    assert copied(value) == value
    assert "deeper" in str(refused([value]))


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"a": "x" * 92}, True),
        ({"a": "x" * 93}, False),
        ({"a": "ä" * 46}, True),
        ({"a": "ä" * 47}, False),
        ({"a": [1] * 46}, True),
        ({"a": [1] * 47}, False),
        ({"a": 10**300}, False),
    ],
)
def test_the_size_is_counted_in_bytes_of_json(monkeypatch, value, fits):
    monkeypatch.setattr(module, "MAX_OUTPUT_BYTES", 100)
    assert (len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) <= 100) is fits
    if fits:
        assert copied(value) == value
    else:
        assert "is larger than" in str(refused(value))


def test_shared_parts_cannot_grow_without_end():
    value: Any = ["x" * 1000] * 1000
    for _ in range(4):
        value = [value] * 100
    assert "larger than 256 MiB" in str(refused({"a": value}))

"""A cursor survives the way out and back; anything else is an error, never a crash."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.application.cursors import _SHAPES, CursorKind, decode_cursor, encode_cursor
from dagmaster.errors import CursorInvalid

PARTS = {
    str: st.text(st.characters(codec="utf-8"), max_size=40),
    int: st.integers(-(2**63), 2**63),
    float: st.floats(allow_nan=False, allow_infinity=False),
}
POSITIONS = st.sampled_from(list(CursorKind)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.tuples(*(PARTS[of] for of in _SHAPES[kind])))
)


@given(POSITIONS)
def test_a_position_comes_back_as_it_was(kind_and_position):
    kind, position = kind_and_position
    cursor = encode_cursor(kind, position)
    assert decode_cursor(kind, cursor) == position
    assert cursor.isascii()
    assert not set(cursor) & set("+/=&? ")


def test_no_cursor_is_the_first_page():
    assert decode_cursor(CursorKind.JOBS, None) is None


@given(st.text(max_size=200), st.sampled_from(list(CursorKind)))
def test_a_text_that_is_no_cursor_is_an_error_and_no_crash(text, kind):
    with pytest.raises(CursorInvalid):
        decode_cursor(kind, text)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists)


@given(JSON, st.sampled_from(list(CursorKind)))
def test_any_json_in_a_cursor_is_checked(document, kind):
    cursor = base64.urlsafe_b64encode(json.dumps([1, kind.value, document]).encode()).decode().rstrip("=")
    try:
        position = decode_cursor(kind, cursor)
    except CursorInvalid:
        return
    assert position is not None
    assert [type(part) for part in position] == list(_SHAPES[kind])


@given(POSITIONS, st.sampled_from(list(CursorKind)))
def test_a_cursor_of_another_list_is_refused(kind_and_position, other):
    kind, position = kind_and_position
    if kind is not other:
        with pytest.raises(CursorInvalid, match="belongs to a list of"):
            decode_cursor(other, encode_cursor(kind, position))


@given(POSITIONS, st.data())
def test_a_cut_cursor_is_refused(kind_and_position, data):
    kind, position = kind_and_position
    cursor = encode_cursor(kind, position)
    length = data.draw(st.integers(0, len(cursor) - 1))
    with pytest.raises(CursorInvalid):
        decode_cursor(kind, cursor[:length])


def test_a_cursor_of_another_format_says_so():
    cursor = base64.urlsafe_b64encode(json.dumps([2, "jobs", ["7"]]).encode()).decode()
    with pytest.raises(CursorInvalid, match="format 2"):
        decode_cursor(CursorKind.JOBS, cursor.rstrip("="))


def test_a_cursor_nested_too_deep_is_refused():
    text = "[" * 1400
    with pytest.raises(CursorInvalid):
        decode_cursor(CursorKind.JOBS, base64.urlsafe_b64encode(text.encode()).decode().rstrip("="))

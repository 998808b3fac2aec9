"""Conditions of branches, and sizes in them."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.engine.expressions.conditions import compile_condition, condition_holds
from dagmaster.errors import EvaluationFailed, ExpressionInvalid

ROOTS = frozenset({"inputs", "nodes"})


def holds(text: str, value: Any, **scope: Any) -> bool:
    return condition_holds(compile_condition(text, roots=ROOTS), {"value": value, **scope})


def refusal(text: str, field_name: str = "") -> ExpressionInvalid:
    with pytest.raises(ExpressionInvalid) as refused:
        compile_condition(text, roots=ROOTS, field_name=field_name)
    return refused.value


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("< 100", 99, True),
        ("<100", 100, False),
        ("<= 100", 100, True),
        ("> 100", 100, False),
        (">= 100", 100, True),
        ("== 'a'", "a", True),
        ("!= 'a'", "a", False),
        ("in ['a', 'b']", "b", True),
        ("not in ['a', 'b']", "b", False),
        ("not  in ['a']", "b", True),
        ("  < 100  ", 99, True),
        ("{{ < 100 }}", 99, True),
        ("100 <= value < 1000", 500, True),
        ("{{ 100 <= value < 1000 }}", 5, False),
        ("< 10 or value > 20", 25, True),
        ("value", True, True),
        ("not value", True, False),
        ("value is none", None, True),
        ("value.kind == 'cog'", {"kind": "cog"}, True),
        ("value[0] == inputs.a", [1], True),
        ("inputs.a == 1", None, True),
    ],
)
def test_a_condition_holds_or_not(text, value, expected):
    assert holds(text, value, inputs={"a": 1}) is expected


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("100B", 100),
        ("1KB", 1000),
        ("100MB", 10**8),
        ("2GB", 2 * 10**9),
        ("1TB", 10**12),
        ("1KiB", 1024),
        ("1MiB", 2**20),
        ("1GiB", 2**30),
        ("1TiB", 2**40),
        ("1.5GB", 1_500_000_000),
        ("0.3KB", 300),
        ("1 MB", 10**6),
        ("1.3KiB", 1331.2),
    ],
)
def test_a_size_is_a_number_of_bytes(size, count):
    assert holds(f"== {size}", count)
    assert holds(f"value=={size}", count)
    assert not holds(f"< {size}", count)
    assert holds(f"0B <= value <= {size}", count)


def test_a_size_in_a_string_stays_text():
    assert holds("== '100MB'", "100MB")
    assert holds('in ["1GB", "it\'s 2GB"]', "it's 2GB")


def test_what_only_looks_like_a_size_is_not_a_size():
    assert holds("value.x1MB == 1", {"x1MB": 1})
    assert holds("== 0x1B", 27)
    assert "`1MB" not in str(refusal("== 1MBs"))


def test_a_unit_in_the_wrong_case_is_refused_with_the_right_one():
    error = refusal("< 5mb")
    assert str(error) == "`mb` is not a unit"
    assert (error.offset, error.hint) == (3, "did you mean `MB`?")
    assert refusal("{{ < 5mib }}").offset == 6


@pytest.mark.parametrize(
    ("text", "field_name", "message"),
    [
        (
            "< 100MB",
            "nodes.x.output.size_mb",
            "`size_mb` counts megabytes, and 100MB is 100000000 bytes: write `< 100`",
        ),
        ("< 100MB", "{{ nodes.x.output.size_mb | default(0) }}", "write `< 100`"),
        ("< 100MB", "nodes.x.output['size_mb']", "write `< 100`"),
        ("< 2GB", "size_mb", "write `< 2000`"),
        ("value.total_gb > 1.5TB", "", "`total_gb` counts gigabytes"),
        ("inputs.limit_mib > 1GiB", "", "write `inputs.limit_mib > 1024`"),
        ("< 1KB", "SIZE_KB", "counts kilobytes"),
        ("< 1TiB", "x_tib", "counts terabytes"),
        ("< 1TB", "x_tb", "counts terabytes"),
    ],
)
def test_a_unit_against_a_field_that_counts_units_is_refused_with_the_reason(text, field_name, message):
    assert message in str(refusal(text, field_name))


def test_a_field_that_counts_bytes_takes_units():
    compile_condition("< 100MB", roots=ROOTS, field_name="nodes.x.output.size_bytes")
    compile_condition("< 100", roots=ROOTS, field_name="nodes.x.output.size_mb")
    compile_condition("< 100MB", roots=ROOTS, field_name="nodes.x.output.size_mb.bytes")
    compile_condition("== '100MB'", roots=ROOTS, field_name="nodes.x.output.size_mb")


def test_value_is_among_the_uses():
    expression = compile_condition("< 100", roots=ROOTS)
    assert [use.keys for use in expression.uses] == [("value",)]
    assert expression.refs == (("value",),)


@pytest.mark.parametrize(
    ("text", "value", "message"),
    [
        ("value", 1, "returned integer 1; it must return true or false"),
        ("value", "yes", "returned string 'yes'"),
        ("value", None, "returned null"),
        ("value", [1], "returned array"),
        ("value", 0.5, "returned number 0.5"),
        ("value or 3", False, "returned integer 3"),
        ("value", "x" * 1000, "returned string 'xxx"),
    ],
)
def test_a_result_that_is_not_a_boolean_is_named(text, value, message):
    with pytest.raises(EvaluationFailed) as failed:
        holds(text, value)
    assert message in str(failed.value)
    assert len(str(failed.value)) < 300


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("= 5", "cannot be parsed", 0),
        ("> 5 and < 10", "cannot be parsed", 8),
        ("", "empty", 0),
        ("< ", "cannot be parsed", 1),
        ("in", "cannot be parsed", 2),
        ("inptus.a > 1", "no `inptus`", 0),
        ("> inptus.a", "no `inptus`", 2),
        ("> item", "no `item`", 2),
        ("> " + "1" * 5000, "more than 4096", 4096),
        ("> " + "9" * 40 + "MB", "", 0),
        ("> 1" + "9" * 29 + ".5MB > ", "", 0),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text, message, offset):
    error = refusal(text)
    assert message in str(error)
    assert not message or error.offset == offset


def test_a_result_whose_digits_python_will_not_write_is_named_by_its_kind():
    with pytest.raises(EvaluationFailed, match="returned integer;"):
        holds("value", 10**5000)


def test_an_equals_sign_alone_gets_a_hint():
    assert "==" in refusal("= 5").hint

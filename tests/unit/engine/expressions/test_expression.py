"""One expression: what it may say, what it gives, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.engine.expressions import json_values
from dagmaster.engine.expressions.expression import Expression, PathUse, compile_expression
from dagmaster.errors import EvaluationFailed, ExpressionInvalid

ROOTS = frozenset({"inputs", "nodes", "upstream", "item", "index", "outer", "job", "env", "value"})

SCOPE: dict[str, Any] = {
    "inputs": {
        "a": 1,
        "b": "x",
        "l": [3, 1, 2],
        "n": None,
        "f": 1.5,
        "t": True,
        "e": [],
        "path": "s3://b/dir/tile.tif",
    },
    "nodes": {
        "y": {
            "output": {"z": 5, "items": [1, 2], "keys": "mine", "deep": {"a b": [{"k": "v"}]}},
            "status": "completed",
        },
        "x": {"output": {"n": 4}, "status": "completed"},
    },
    "item": {"k": [{"items": 3}]},
    "index": 7,
    "outer": {"item": "tile", "index": 2, "outer": {"item": "scene", "index": 0}},
    "job": {"id": "j-1"},
    "env": {"REGION": "eu"},
    "value": 150,
}


def compiled(text: str) -> Expression:
    return compile_expression(text, roots=ROOTS)


def value_of(text: str, **changes: Any) -> Any:
    return compiled(text).evaluate({**SCOPE, **changes})


def refusal(text: str) -> ExpressionInvalid:
    with pytest.raises(ExpressionInvalid) as refused:
        compiled(text)
    return refused.value


def failure(text: str, **changes: Any) -> EvaluationFailed:
    expression = compiled(text)
    with pytest.raises(EvaluationFailed) as failed:
        expression.evaluate({**SCOPE, **changes})
    return failed.value


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'a'", "a"),
        ("'a' 'b'", "ab"),
        ("'\\n\\u00e9\\\\'", "\né\\"),
        ("1_000", 1000),
        ("0x1f", 31),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("none", None),
        ("[1, 'a', [none]]", [1, "a", [None]]),
        ("(1, 2)", [1, 2]),
        ("()", []),
        ("{'a': 1, 'b': {'c': [2]}}", {"a": 1, "b": {"c": [2]}}),
        ("inputs.a", 1),
        ("  inputs.a  ", 1),
        ("{{ inputs.a }}", 1),
        ("{{inputs.a}}", 1),
        ("inputs['a']", 1),
        ("inputs", SCOPE["inputs"]),
        ("inputs.l[0]", 3),
        ("inputs.l[-1]", 2),
        ("inputs.l.0", 3),
        ("inputs.l[inputs.a]", 1),
        ("inputs.l[index - 6]", 1),
        ("inputs.l[1:]", [1, 2]),
        ("inputs.l[:-1]", [3, 1]),
        ("inputs.l[inputs.a:2]", [1]),
        ("'abcdef'[1:3]", "bc"),
        ("inputs.n", None),
        ("nodes.y.output.deep['a b'][0].k", "v"),
        ("nodes.y.output[(inputs.b + 'z') | replace('x', '')]", 5),
        ("outer.item", "tile"),
        ("outer.outer.index", 0),
        ("job.id + env.REGION", "j-1eu"),
        ("1 + 2 * 3 - 4", 3),
        ("7 // 2", 3),
        ("-7 % 3", 2),
        ("1 / 4", 0.25),
        ("+inputs.a - -2", 3),
        ("-inputs.l[0]", -3),
        ("inputs.l + [9]", [3, 1, 2, 9]),
        ("100 <= value < 1000", True),
        ("100 <= value < 120", False),
        ("1 < 2 < 3 < 3", False),
        ("'a' < 'b'", True),
        ("1 == 1.0", True),
        ("1 == '1'", False),
        ("1 == true", False),
        ("[0, {'a': true}] == [0, {'a': 1}]", False),
        ("[0, {'a': true}] == [0, {'a': true}]", True),
        ("none == false", False),
        ("1 != true", True),
        ("3 in inputs.l", True),
        ("true in [1]", False),
        ("true in [1, true]", True),
        ("'z' not in nodes.y.output", False),
        ("1 in nodes.y.output", False),
        ("'b' in 'abc'", True),
        ("[1] in [[1]]", True),
        ("inputs.n or 'fallback'", "fallback"),
        ("inputs.a and inputs.b", "x"),
        ("inputs.e and inputs.b and 1", []),
        ("0 or '' or []", []),
        ("not inputs.e", True),
        ("true or inputs.nope", True),
        ("false and inputs.nope", False),
        ("inputs.a + 1 if nodes.x.output.n > 3 else 0", 2),
        ("1 if false else 2 if false else 3", 3),
        ("1 if true else inputs.nope", 1),
        ("inputs.a is defined", True),
        ("inputs.nope.deeper is defined", False),
        ("inputs.nope is not defined", True),
        ("inputs.n is none", True),
        ("inputs.a is not none", True),
        ("inputs.n is defined", True),
    ],
)
def test_an_expression_has_its_value(text, expected):
    result = value_of(text)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inputs.nope | default(3)", 3),
        ("inputs.nope.deeper[0] | default(3)", 3),
        ("inputs.l[9] | default('none there')", "none there"),
        ("inputs.a.b | default(0)", 0),
        ("inputs.n | default(3)", None),
        ("inputs.n | default(3, true)", 3),
        ("inputs.e | default([1], boolean=true)", [1]),
        ("inputs.e | default([1], false)", []),
        ("inputs.a | default(inputs.nope)", 1),
        ("inputs.nope | default(inputs.also_not) | default(4)", 4),
        ("inputs.nope | default(default_value=5)", 5),
        ("inputs.nope | default(value=5)", 5),
        ("inputs.nope[1:] | default([])", []),
        ("(inputs.e | first).name | default('x')", "x"),
        ("inputs.l[inputs.a] | default(0)", 1),
        ("inputs.e | first | default(0)", 0),
        ("inputs.e | last | default(0)", 0),
        ("inputs.e | min | default(0)", 0),
        ("inputs.e | max | default(0)", 0),
        ("(inputs.e | first) is defined", False),
        ("inputs.l | length", 3),
        ("'abc' | length", 3),
        ("nodes.x.output | length", 1),
        ("inputs.l | first", 3),
        ("inputs.l | last", 2),
        ("inputs.l | min", 1),
        ("['b', 'a'] | max", "b"),
        ("inputs.l | sum", 6),
        ("[0.1, 0.2, 0.3] | sum", 0.6),
        ("[] | sum", 0),
        ("inputs.l | join", "312"),
        ("inputs.l | join('-')", "3-1-2"),
        ("['a', none, [1], true] | join(d=',')", "a,null,[1],true"),
        ("'aB' | lower", "ab"),
        ("'ß' | upper", "SS"),
        ("'  a ' | trim", "a"),
        ("'xxaxx' | trim('x')", "a"),
        ("'aaa' | replace('a', 'b')", "bbb"),
        ("'aaa' | replace('a', 'b', 2)", "bba"),
        ("'aaa' | replace('a', 'b', 0)", "aaa"),
        ("'aaa' | replace('a', 'b', none)", "bbb"),
        ("'ab' | replace('', '-')", "-a-b-"),
        ("'ab' | replace('', '-', count=1)", "-ab"),
        ("' 42 ' | int", 42),
        ("-1.9 | int", -1),
        ("true | int", 1),
        ("'no' | int(7)", 7),
        ("none | int(default=none)", None),
        ("'1.5e2' | float", 150.0),
        ("3 | float", 3.0),
        ("'nan' | float(0)", 0),
        ("1.5 | string", "1.5"),
        ("inputs.b | string", "x"),
        ("none | string", "null"),
        ("2.567 | round(2)", 2.57),
        ("2.5 | round", 2.0),
        ("41 | round", 41),
        ("2.1 | round(0, 'ceil')", 3.0),
        ("2.19 | round(1, method='floor')", 2.1),
        ("1234 | round(-2)", 1200),
        ("-3 | abs", 3),
        ("inputs.l | sort", [1, 2, 3]),
        ("inputs.l | sort(true)", [3, 2, 1]),
        ("['b', 'A', 'a'] | sort(reverse=false)", ["A", "a", "b"]),
        (
            "[2, 1, 2, true, 1.0, [1], [1], 'a', {'k': 1}, {'k': 1}] | unique",
            [2, 1, True, [1], "a", {"k": 1}],
        ),
        ("[{'a': 1}, none, {'a': none}] | map(attribute='a')", [1, None, None]),
        ("[[1, {'b': 2}]] | map(attribute=-1) | map(attribute='b')", [2]),
        ("[] | map(attribute='a')", []),
        ("inputs.unknown | map(attribute='a') | default([3])", [3]),
        ("{'b': [1, 'é<'], 'a': none} | tojson", '{"b":[1,"é<"],"a":null}'),
        ("{'a': [1]} | tojson(2)", '{\n  "a": [\n    1\n  ]\n}'),
        ("inputs.path | basename", "tile.tif"),
        ("'a/b/' | basename", "b"),
        ("'plain' | basename", "plain"),
        ("inputs.path | basename | replace('.tif', '') | upper", "TILE"),
    ],
)
def test_a_filter_has_its_value(text, expected):
    result = value_of(text)
    assert result == expected
    assert type(result) is type(expected)


def test_a_key_wins_over_a_method():
    assert value_of("nodes.y.output.items") == [1, 2]
    assert value_of("nodes.y.output.keys") == "mine"
    assert value_of("item.k[0].items") == 3
    assert "keys: n" in str(failure("nodes.x.output.items"))


def test_a_list_literal_is_new_each_time():
    expression = compiled("[1, [2]]")
    expression.evaluate({}).append(3)
    assert expression.evaluate({}) == [1, [2]]


def test_the_scope_may_be_any_mapping():
    from types import MappingProxyType

    scope = MappingProxyType({"inputs": MappingProxyType({"a": (1, 2)})})
    assert compiled("inputs.a[1]").evaluate(scope) == 2
    assert compiled("inputs | tojson").evaluate(scope) == '{"a":[1,2]}'


# ── what is missing ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_key_is_named_with_its_path_and_the_keys_that_were_there():
    error = failure("nodes.y.output.zz")
    assert str(error) == "`nodes.y.output.zz` is missing; keys: z, items, keys, deep"
    assert error.path == "nodes.y.output.zz"


def test_at_most_twenty_keys_are_named():
    error = failure("inputs.nope", inputs={f"key{number}": 0 for number in range(50)})
    assert "key19 and 30 more" in str(error)
    assert "key20" not in str(error)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("inputs.l[3]", "`inputs.l[3]` is missing; `inputs.l` has 3 items"),
        ("inputs.l[-4]", "`inputs.l[-4]` is missing"),
        ("inputs.l.name", "`inputs.l` is array, which has no string keys"),
        ("inputs.n.x", "`inputs.n` is null, which has no keys"),
        ("inputs.b[0]", "`inputs.b` is string, which has no keys"),
        ("inputs.l[inputs.t]", "which has no boolean keys"),
        ("inputs.l[inputs.f]", "which has no number keys"),
        ("inputs[inputs.l[0:0] | tojson] | length", "must be literal"),
        ("nodes.y.output[inputs.l]", "which has no array keys"),
        ("nodes.y.output[inputs.a]", "which has no integer keys"),
        (
            "nodes.y.output[1:]",
            "`nodes.y.output[:]` is missing; `nodes.y.output` is object, which has no slices",
        ),
        ("nodes.y.output.deep[inputs.b].k", "`nodes.y.output.deep.x` is missing; keys: a b"),
        ("inputs.e | first", "`first` of an empty array is missing (in `inputs.e | first`)"),
        ("inputs.l[inputs.nope] | default(1)", "`inputs.nope` is missing"),
        ("(inputs.nope + 1) | default(1)", "`inputs.nope` is missing"),
        ("inputs.nope | first | default(1)", "`inputs.nope` is missing"),
        ("inputs.nope | default(inputs.also_not)", "`inputs.also_not` is missing"),
    ],
)
def test_what_is_missing_is_never_null(text, sentence):
    with pytest.raises((EvaluationFailed, ExpressionInvalid)) as failed:
        value_of(text)
    assert sentence in str(failed.value)


# ── what fails ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 / 0", "division by zero"),
        ("1 // 0", "zero"),
        ("1 % 0", "zero"),
        ("true + 1", "not boolean and integer"),
        ("1 + 'a'", "not integer and string"),
        ("'a' * 3", "`*` needs two numbers, not string and integer"),
        ("[1] * 3", "not array and integer"),
        ("'%s' % 'a'", "`%` needs two numbers, not string and string"),
        ("{'a': 1} + {'b': 1}", "not object and object"),
        ("-'a'", "`-` needs a number, not string"),
        ("+true", "`+` needs a number, not boolean"),
        ("1 < 'a'", "not integer and string"),
        ("none < 1", "not null and integer"),
        ("true < 2", "not boolean and integer"),
        ("[1] < [2]", "not array and array"),
        ("1 in 'abc'", "`in` cannot search for integer in string"),
        ("1 in 5", "`in` cannot search for integer in integer"),
        ("'abc' | int", "`int` cannot convert the string 'abc' to an integer"),
        ("'1.5' | int", "to an integer"),
        ("'٣' | int", "to an integer"),
        ("none | int", "cannot convert null"),
        ("'inf' | float", "to a number"),
        ("'1e999' | float", "finite"),
        ("1e308 * 10", "finite"),
        ("1e308 + 1e308", "finite"),
        ("[1e308, 1e308] | sum", "overflow"),
        ("[1, 'a'] | sort", "this one has integer, string"),
        ("[1, true] | max", "boolean, integer"),
        ("[1, true] | sum", "needs a number, not boolean"),
        ("'abc' | first", "needs an array, not string"),
        ("5 | length", "not integer"),
        ("5 | upper", "`upper` needs a string, not integer"),
        ("5 | join", "needs an array"),
        ("5 | map(attribute='a')", "`map` needs an array"),
        ("[{}] | map(attribute=1.5)", "`map` needs a key or an index, not number"),
        ("[{'a': 1}, {'b': 1}] | map(attribute='a')", "`map`: `item[1].a` is missing; keys: b"),
        ("[5] | map(attribute='a')", "which has no keys"),
        ("[1] | join(2)", "needs a string, not integer"),
        ("'a' | replace('a', 1)", "needs a string, not integer"),
        ("1 | round(99)", "precision"),
        ("1 | round(true)", "integer, not boolean"),
        ("1 | round(0, 'up')", "method"),
        ("[1] | sort('x')", "true or false"),
        ("[1] | tojson(99)", "indent"),
        ("inputs.l['a':]", "a slice goes from integer to integer, not string"),
        ("inputs.l[true:]", "not boolean"),
    ],
)
def test_a_failure_is_a_sentence(text, sentence):
    error = failure(text)
    assert sentence in str(error)
    assert text in str(error)


def test_results_are_bounded_before_they_are_made():
    half = "x" * (json_values.MAX_TEXT // 2 + 1)
    many = [0] * (json_values.MAX_ITEMS // 2 + 1)
    for text, value in [
        ("item + item", half),
        ("item + item", many),
        ("[item, item] | join", half),
        ("item | replace('x', 'yy')", half),
        ("item | replace('', 'yy')", half),
        ("item | tojson", [half, half]),
        ("item | tojson", many * 2),
        ("item | tojson(8)", [[[[[[[[0]]]]]]]] * 20_000),
        ("item | string", {half: half}),
        ("item | upper", "ß" * (json_values.MAX_TEXT - 1)),
        ("item | lower", half * 3),
        ("item | trim", "x" * (json_values.MAX_TEXT + 1)),
        ("item | sort", [0] * (json_values.MAX_ITEMS + 1)),
        ("item[1:]", [0] * (json_values.MAX_ITEMS + 2)),
        ("item[1:]", "x" * (json_values.MAX_TEXT + 2)),
    ]:
        assert "too large" in str(failure(text, item=value)), text


def test_a_replacement_that_would_take_gigabytes_is_refused_at_once():
    big = "x" * json_values.MAX_TEXT
    assert "too large" in str(failure("item | replace('x', item)", item=big))
    assert value_of("item | replace('x', '')", item=big) == ""


def test_numbers_are_bounded():
    chain = " * ".join(["item"] * 60)
    assert "too large" in str(failure(chain, item=10**6))
    failure("item * 2", item=2**1023)
    failure("item | tojson", item=10**5000)
    failure("item + 1.5", item=10**400)
    for text in ("item | abs", "-item", "item | round", "item | int", "item | string | int", "[item] | sum"):
        assert "too large" in str(failure(text, item=2**1023)), text
    assert "too large" in str(failure("[item, item] | sum", item=2**1022))
    assert "too large" in str(failure("item | int", item="9" * 309))
    assert "finite" in str(failure("item | float", item=float("inf")))
    assert value_of("item", item=2**1023) == 2**1023


@pytest.mark.slow
def test_values_that_are_too_deep_fail_and_do_not_crash():
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    other: Any = []
    for _ in range(100_000):
        other = [other]
    for text in ("item | tojson", "item | string", "item == value", "item in [value]", "[item] | unique"):
        assert "deep" in str(failure(text, item=deep, value=other))
    while deep:  # taken apart by hand: an interpreter may recurse when it frees what is this deep
        deep, other = deep[0], other[0]


def test_what_is_not_json_cannot_be_written_wherever_it_stands():
    for value in (object(), [object()], {"a": object()}, {"a": [{"b": {1}}]}):
        assert "not a JSON value" in str(failure("item | tojson", item=value))
    assert "a key of an object is a string" in str(failure("item | tojson", item={1: 2}))
    deep: dict[str, Any] = {}
    for _ in range(json_values.MAX_JSON_DEPTH):
        deep = {"a": deep}
    assert "deeper than 256" in str(failure("item | tojson", item=deep))
    assert value_of("item | tojson", item=deep["a"])


def test_letters_that_json_writes_longer_are_counted_as_written():
    assert "too large" in str(failure("item | tojson", item="\x01" * (json_values.MAX_TEXT // 6 + 1)))
    assert value_of("item | tojson | length", item="\x01" * 1000) == 6002


def test_a_value_that_holds_itself_fails():
    loop: list[Any] = []
    loop.append(loop)
    failure("item | tojson", item=loop)


# ── what is refused at load ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "empty"),
        ("{{ }}", "empty"),
        ("inputs.a if true", "`if` needs an `else`"),
        ("2 ** 3", "`**`"),
        ("'a' ~ 'b'", "`~`"),
        ("inputs.a()", "called"),
        ("'a'.upper()", "called"),
        ("range(3)", "called"),
        ("inputs.a, inputs.b", "not expected"),
        ("inputs.a = 3", "not expected"),
        ("inputs.a is odd", "`is odd`"),
        ("inputs.a is undefined", "`is undefined`"),
        ("inputs.a is defined(1)", "takes no argument"),
        ("inputs.l[::2]", "no step"),
        ("inputs.l[1.5]", "number is not a key"),
        ("inputs.l[true]", "boolean is not a key"),
        ("inputs.l[none]", "null is not a key"),
        ("{1: 2}", "string literals"),
        ("{inputs.b: 2}", "string literals"),
        ("{'a': 1, 'a': 2}", "each once"),
        ("inputs.a | select('x')", "no filter `select`"),
        ("inputs.a | map('x')", "`map` takes its argument by name"),
        ("inputs.a | map", "`map` needs `attribute`"),
        ("inputs.a | default", "needs `value`"),
        ("inputs.a | length(1)", "at most 0"),
        ("inputs.a | default(1, boolaen=true)", "does not have"),
        ("inputs.a | default(1, value=2)", "twice"),
        ("inputs.a | join(*inputs.l)", "`*`"),
        ("inputs.a | join(**inputs)", "`*`"),
        ("{{-5}}", "whitespace control"),
        ("{{- inputs.a }}", "whitespace control"),
        ("{{ inputs.a -}}", "whitespace control"),
        ("inputs.a {# note #}", "not expected"),
        ("{# note #} inputs.a", "cannot be parsed"),
        ("inputs.a }}{# note #}{{ inputs.b", "not expected"),
        ("{{ inputs.a }} and {{ inputs.b }}", "not expected"),
        ("{% if 1 %}", "cannot be parsed"),
        ("'\\d'", "not an escape"),
        ("'\\é'", "not an escape"),
        ("'\\777'", "not an escape"),
        ("'\\ud800'", "surrogate"),
        ("{'\\udfff': 1}", "surrogate"),
        ("'\\x1'", "cannot be parsed"),
        ("1e999", "too large"),
        ("9" * 400, "too large"),
        ("9" * 4090, "too large"),
        ("0x" + "f" * 4000, "too large"),
        ("nodes", "not a value by itself"),
        ("nodes.y", "not a value by itself"),
        ("upstream", "not a value by itself"),
        ("job", "not a value by itself"),
        ("env | length", "not a value by itself"),
        ("outer", "not a value by itself"),
        ("outer.outer", "not a value by itself"),
        ("inputs[inputs.b]", "after `inputs` must be literal"),
        ("nodes[inputs.b].output", "after `nodes` must be literal"),
        ("nodes.y[inputs.b]", "after `nodes.y` must be literal"),
        ("env[item]", "must be literal"),
        ("outer[item]", "must be literal"),
        ("inputs[0]", "index where it needs a name"),
        ("nodes[0].output", "index where it needs a name"),
        ("secrets.KEY", "there is no `secrets` here"),
    ],
)
def test_what_is_not_in_the_language_is_refused_at_load(text, sentence):
    assert sentence in str(refusal(text))


@pytest.mark.parametrize(
    ("text", "offset", "hint"),
    [
        ("inptus.a", 0, "`inputs`"),
        ("1 + inptus.a", 4, "`inputs`"),
        ("'inptus' + inptus.a", 11, "`inputs`"),
        ("inputs.a | lenght", 9, "`length`"),
        ("nodes.y.otput", 0, "`output`"),
        ("upstream.staus", 0, "`status`"),
        ("nodes.y", 0, "`nodes.y.output`"),
        ("outer.itme", 0, "`item`"),
        ("1 + * 2", 4, ""),
        ("inputs.a inputs.b", 9, ""),
        ("1 @ 2", 2, ""),
        ("(1", 2, ""),
        ("{{  1 + * 2 }}", 8, ""),
        ("\n{{ inptus.a }}", 4, "`inputs`"),
        ("1 +\n 2 ** 3", 7, ""),
        ("a = 1", 2, "=="),
    ],
)
def test_a_refusal_says_where_and_what_to_write(text, offset, hint):
    error = refusal(text)
    assert (error.offset, hint in error.hint) == (offset, True), error.hint


@pytest.mark.parametrize(
    "text",
    [
        "inputs.a" + " " * 4090 + "+ 1",
        "(" * 33 + "1" + ")" * 33,
        "[" * 2000 + "]" * 2000,
        "(" * 4000,
        "{'a':" * 800,
        "-" * 4000 + "1",
        "not " * 1000 + "1",
        "- + " * 1000 + "1",
        "1 if 1 else " * 300 + "1",
        "1 if 1 " * 300,
        "1+" * 2000 + "1",
        "inputs.a|abs" + "|abs" * 50,
        "1 " + "is defined " * 300,
        "inputs.l" + "[inputs.l" * 40 + "[0]" + "]" * 40,
        "(- -" * 32 + "1" + ")" * 32,
        "(" + "not not (" * 31 + "1" + ")" * 32,
    ],
)
def test_what_is_too_long_or_too_deep_is_refused_cleanly(text):
    refusal(text)


def test_signs_filters_and_slices_are_counted():
    for item in ("1 + 1", "inputs.l | first", "inputs.l[1:]", "inputs.nope | default(1)"):
        assert len(value_of(f"[{', '.join([item] * 100)}]")) == 100
        assert "more than 100 operations" in str(refusal(f"[{', '.join([item] * 101)}]"))


def test_what_would_make_the_parser_recurse_is_refused_before_it_is_parsed():
    assert "signs in a row" in str(refusal("-" * 33 + "1"))
    assert "signs in a row" in str(refusal("not " * 33 + "1"))
    assert "times `if`" in str(refusal("1 if 1 else " * 33 + "1"))
    assert "brackets" in str(refusal("(" * 33 + "1" + ")" * 33))


def test_long_chains_are_one_level():
    assert value_of(" + ".join(["1"] * 101)) == 101
    assert value_of(" and ".join(["true"] * 400)) is True
    assert value_of(" or ".join(["0"] * 800)) == 0
    assert value_of(" < ".join(map(str, range(500)))) is True
    assert value_of("[" + ",".join("1" * 1000) + "] | length") == 1000
    assert value_of("item" + ".k" * 2000 + " | default(1)") == 1
    assert value_of("(" * 32 + "1" + ")" * 32) == 1


def test_a_deep_caller_gets_a_refusal_and_no_recursion_error():
    def sink(levels: int) -> None:
        if levels:
            return sink(levels - 1)
        for depth in range(8, 33):
            try:
                compile_expression("(" * depth + f"{depth}" + ")" * depth, roots=())
            except ExpressionInvalid as error:
                assert "deep" in str(error)  # noqa: PT017 - either answer is right; a RecursionError is not
        return None

    import sys

    frame, used = sys._getframe(), 0
    while frame := frame.f_back:  # type: ignore[assignment]
        used += 1
    sink(sys.getrecursionlimit() - used - 250)


# ── what an expression says of itself ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "refs"),
    [
        ("inputs.x.y[0]", [("inputs", "x")]),
        ("inputs", [("inputs",)]),
        ("nodes.y.output.z + nodes.y.output.w", [("nodes", "y", "output")]),
        ("nodes.y.outputs[0]", [("nodes", "y", "outputs")]),
        ("nodes['y'].status == nodes.x.error", [("nodes", "y", "status"), ("nodes", "x", "error")]),
        ("nodes.y.failed | length", [("nodes", "y", "failed")]),
        ("upstream.output.z", [("upstream", "output")]),
        ("upstream.status", [("upstream", "status")]),
        ("item.a.b", [("item",)]),
        ("index", [("index",)]),
        ("outer.item.a", [("outer", "item")]),
        ("outer.index", [("outer", "index")]),
        ("outer.outer.item.x", [("outer", "outer", "item")]),
        ("job.id", [("job", "id")]),
        ("env.NAME", [("env", "NAME")]),
        ("value > 3", [("value",)]),
        ("item[inputs.k] if index else 1", [("item",), ("inputs", "k"), ("index",)]),
        ("'inputs.x'", []),
    ],
)
def test_refs_are_what_has_to_be_loaded(text, refs):
    assert compiled(text).refs == tuple(refs)


def test_uses_are_the_static_paths_in_the_order_of_the_text():
    assert compiled("item.a if inputs.b['c'][0] else nodes.x.output[index].z").uses == (
        PathUse(("item", "a"), guarded=False, offset=0),
        PathUse(("inputs", "b", "c", 0), guarded=False, offset=10),
        PathUse(("nodes", "x", "output"), guarded=False, offset=32),
        PathUse(("index",), guarded=False, offset=47),
    )
    assert compiled("item[-1].a").uses[0].keys == ("item", -1, "a")


def test_offsets_skip_strings_keys_filters_and_named_arguments():
    uses = compiled("'value' + item.value | default(value=value.first | first)").uses
    assert [(use.keys[0], use.offset) for use in uses] == [("item", 10), ("value", 37)]


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("inputs.a", [False]),
        ("inputs.a | default(1)", [True]),
        ("inputs.a.b[0] | default(inputs.c)", [True, False]),
        ("inputs.a | default(inputs.b) | default(1)", [True, True]),
        ("inputs.a is defined", [True]),
        ("inputs.a is not defined", [True]),
        ("inputs.a is none", [False]),
        ("(inputs.a) | default(1)", [True]),
        ("(inputs.a + inputs.b) | default(1)", [False, False]),
        ("inputs.a | first | default(1)", [False]),
        ("inputs.a[inputs.b] | default(1)", [True, False]),
        ("1 + inputs.a | default(1)", [True]),
        ("(inputs.a | default(inputs.b)).c", [True, False]),
    ],
)
def test_a_path_is_guarded_only_directly_under_default_or_defined(text, guarded):
    assert [use.guarded for use in compiled(text).uses] == guarded


def test_compiling_twice_gives_the_same_object():
    assert compiled("inputs.a + 1") is compiled(" inputs.a + 1 ")
    assert compiled("inputs.a + 1") is not compile_expression("inputs.a + 1", roots={"inputs"})


def test_an_expression_cannot_be_changed():
    with pytest.raises(AttributeError):
        compiled("inputs.a").text = "inputs.b"  # type: ignore[misc]


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_bare_secret_is_a_reference_without_a_value():
    expression = compile_expression("secrets.KEY", roots={"secrets"})
    assert expression.refs == (("secrets", "KEY"),)
    with pytest.raises(EvaluationFailed):
        expression.evaluate({"secrets": {"KEY": "hunter2"}})


@pytest.mark.parametrize(
    "text",
    [
        "secrets",
        "secrets.A.b",
        "secrets.A[0]",
        "secrets.A[inputs.a]",
        "secrets[inputs.a]",
        "secrets.A + 'x'",
        "'x' + secrets.A",
        "secrets.A | upper",
        "secrets.A | default('x')",
        "secrets.A is defined",
        "not secrets.A",
        "secrets.A == 'x'",
        "'x' in secrets.A",
        "[secrets.A]",
        "{'a': secrets.A}",
        "inputs[secrets.A]",
        "inputs.a[secrets.A]",
        "secrets.A if inputs.a else 'x'",
        "inputs.a if secrets.A else 'x'",
        "'x' | replace(secrets.A, 'y')",
        "inputs.a | default(secrets.A)",
        "secrets.A[1:]",
        "secrets | tojson",
        "secrets | length",
    ],
)
def test_a_secret_stands_alone(text):
    with pytest.raises(ExpressionInvalid):
        compile_expression(text, roots={"secrets", "inputs"})

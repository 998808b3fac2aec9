"""Properties: whatever is written, there is an answer or one of two errors; and what has an oracle agrees with it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from jinja2 import Environment

from dagmaster.engine.expressions.conditions import compile_condition, condition_holds
from dagmaster.engine.expressions.expression import _compile, _Compiler, compile_expression
from dagmaster.engine.expressions.filters import FILTERS
from dagmaster.engine.expressions.parser import parse
from dagmaster.engine.expressions.secret_parts import NO_SECRET_INPUTS, fill_secrets, has_secrets
from dagmaster.engine.expressions.templates import compile_template, split_template
from dagmaster.errors import EvaluationFailed, ExpressionInvalid

ROOTS = frozenset({"inputs", "nodes", "item", "index", "outer", "value"})

# The profile says how many examples; these properties get more of them.
more = settings(max_examples=2 * settings().max_examples)

ARITHMETIC = ["+", "-", "*", "/", "//", "%"]
ORDERINGS = ["==", "!=", "<", "<=", ">", ">="]

names = st.sampled_from(["a", "b", "items", "keys", "__class__", "0"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["{{ inputs.a }}", "12", "a/b", "1e400", 10**400])
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(names | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=10,
)
scopes = st.fixed_dictionaries(
    {
        "inputs": st.dictionaries(names, json_values, max_size=5),
        "item": json_values,
        "index": st.integers(0, 9),
    },
    optional={"value": json_values},
)

TOKENS = [
    "inputs", "item", "value", "nodes", ".a", ".items", "[0]", "['a']", "[1:", "]", "(", ")", "{", "}", "{{", "}}",
    "{%", "%}", "{#", "#}", "'", '"', "\\", "+", "-", "*", "**", "/", "//", "%", "~", "|", "|default(", "|length",
    "|first", "==", "<", ">=",
    "in", "not", "and", "or", "if", "else", "is", "defined", "none", "true", "1", "0.5", "1e999",
    "_", "1_0", ",", ":", "=", "!", "@", "\n", "\r", "\x00", "é", "\u2028", "100MB", "1mb", "secrets",
    ".__class__", "\ud800",
]  # fmt: skip
token_soup = st.lists(st.sampled_from(TOKENS), max_size=25).flatmap(
    lambda tokens: st.sampled_from(["", " "]).map(lambda space: space.join(tokens))
)

# ── any text ────────────────────────────────────────────────────────────────────────────────────────────────────────


@more
@given(token_soup | st.text(), scopes)
def test_any_text_compiles_or_is_refused_and_evaluates_or_fails(text, scope):
    with suppress(ExpressionInvalid, EvaluationFailed):
        is_json(compile_expression(text, roots=ROOTS).evaluate(scope))


@more
@given(token_soup | st.text(), scopes)
def test_any_text_is_a_condition_or_is_refused(text, scope):
    with suppress(ExpressionInvalid, EvaluationFailed):
        assert condition_holds(compile_condition(text, roots=ROOTS, field_name=text), scope) in (True, False)


@more
@given(
    st.recursive(token_soup | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
    scopes,
)
def test_any_structure_is_a_template_or_is_refused(value, scope):
    with suppress(ExpressionInvalid, EvaluationFailed):
        compile_template(value, roots=ROOTS | {"secrets"}).resolve(scope)


def is_json(value: Any) -> None:
    assert value is None or isinstance(value, bool | int | float | str | list | dict)
    with suppress(ValueError):  # integers from the scope may have more digits than Python writes
        json.dumps(value, allow_nan=False)


# ── valid expressions ───────────────────────────────────────────────────────────────────────────────────────────────

paths = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["inputs.a", "inputs.items", "item", "index", "value", "inputs"]),
        st.lists(
            st.sampled_from([".a", ".items", "[0]", "[-1]", "[index]", "['b']", "[1:]", "[:index]"]),
            max_size=3,
        ).map("".join),
    ),
)
literals = st.sampled_from(
    ["1", "-2", "0.5", "'a'", "''", "true", "none", "[]", "[1, 2]", "{'a': 1}", "'x y'", "1e300"]
)
calls = st.sampled_from(
    [name for name in FILTERS if name not in ("default", "replace")]
    + [
        "default(0)",
        "default(item, true)",
        "replace('a', 'bb')",
        "replace('', item)",
        "join(', ')",
        "map(attribute='a')",
        "map(attribute=0)",
        "int(0)",
        "float(0)",
    ]
    + [
        "round(2)",
        "round(index, 'ceil')",
        "sort(true)",
        "tojson(2)",
        "tojson(item)",
        "trim(item)",
        "int(item)",
    ]
)


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from([*ARITHMETIC, *ORDERINGS, "in", "not in", "and", "or"])
    return (
        st.builds("({} {} {})".format, inner, signs, inner)
        | st.builds("({} | {})".format, inner, calls)
        | st.builds("({} if {} else {})".format, inner, inner, inner)
        | st.builds("({}{})".format, st.sampled_from(["not ", "-", "+"]), inner)
        | st.builds("({} is {})".format, inner, st.sampled_from(["defined", "not defined", "none"]))
        | st.builds("[{}, {}]".format, inner, inner)
        | st.builds("{{'k': {}}}".format, inner)
        | st.builds("({})[{}]".format, inner, inner)
    )


expressions = st.recursive(paths | literals, larger, max_leaves=8)


@more
@given(expressions, scopes)
def test_a_valid_expression_gives_json_or_fails(text, scope):
    try:
        expression = compile_expression(text, roots=ROOTS)
    except ExpressionInvalid:
        return
    with suppress(EvaluationFailed):
        is_json(expression.evaluate(scope))


@given(expressions, scopes)
def test_evaluating_does_not_change_the_scope(text, scope):
    before = repr(scope)
    with suppress(ExpressionInvalid, EvaluationFailed):
        compile_expression(text, roots=ROOTS).evaluate(scope)
    assert repr(scope) == before


@given(expressions)
def test_refs_are_prefixes_of_uses_and_offsets_point_at_the_root(text):
    try:
        expression = compile_expression(text, roots=ROOTS)
    except ExpressionInvalid:
        return
    for use in expression.uses:
        assert any(use.keys[: len(ref)] == ref for ref in expression.refs)
        assert expression.text.startswith(str(use.keys[0]), use.offset)


@given(expressions, scopes)
def test_what_an_expression_reads_is_in_its_refs(text, scope):
    try:
        expression = compile_expression(text, roots=ROOTS)
    except ExpressionInvalid:
        return
    needed: dict[str, Any] = {}
    for ref in expression.refs:
        if ref[0] in scope:
            whole = scope[str(ref[0])]
            if len(ref) == 1:
                needed[str(ref[0])] = whole
            elif ref[1] in whole:
                needed.setdefault("inputs", {}).setdefault(ref[1], whole[ref[1]])
    assume(("inputs",) not in expression.refs)
    # A key that is missing is explained with the keys that are there, so only outcomes without a sentence are compared.
    assert outcome(expression, needed) == outcome(expression, scope)


def outcome(expression: Any, scope: dict[str, Any]) -> str:
    try:
        return repr(expression.evaluate(scope))
    except EvaluationFailed:
        return "failed"


# ── oracles ─────────────────────────────────────────────────────────────────────────────────────────────────────────

numbers = st.recursive(
    st.integers(0, 50).map(str) | st.sampled_from(["0.5", "2.25", "1e3", "inputs.n", "inputs.f"]),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(ARITHMETIC), inner)
        | st.builds("{} {} {}".format, inner, st.sampled_from(ARITHMETIC), inner)
        | st.builds("(-{})".format, inner)
    ),
    max_leaves=8,
)
booleans = st.recursive(
    st.sampled_from(["true", "false"])
    | st.builds("{} {} {}".format, numbers, st.sampled_from(ORDERINGS), numbers)
    | st.builds("{} < {} <= {}".format, numbers, numbers, numbers)
    | st.builds("{} in [{}, {}]".format, numbers, numbers, numbers),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("{} {} {}".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("not {}".format, inner)
        | st.builds("({} if {} else {})".format, inner, inner, inner)
    ),
    max_leaves=6,
)


class Names:
    n = 7
    f = -1.5


@more
@given(numbers | booleans | st.builds("{} if {} else {}".format, numbers, booleans, numbers))
@example("-7 // 2 * 3 % 4")
@example("1 < 2 <= 1 or not 1 == 1.0")
def test_arithmetic_and_logic_agree_with_python(text):
    try:
        expected = eval(text, {"inputs": Names, "true": True, "false": False})
    except ZeroDivisionError:
        expected = None
    try:
        expression = compile_expression(text, roots={"inputs"})
    except ExpressionInvalid as error:
        assert "operations" in str(error) or "deep" in str(error)  # noqa: PT017 - long ones may be refused
        return
    try:
        result = expression.evaluate({"inputs": {"n": Names.n, "f": Names.f}})
    except EvaluationFailed:
        assert expected is None
        return
    assert result == expected
    assert type(result) is type(expected)


words = st.sampled_from(
    [
        "inputs",
        "nodes",
        "item",
        "index",
        "outer",
        "value",
        "output",
        "a",
        "if",
        "not",
        "and",
        "or",
        "in",
        "is",
        "else",
        "true",
        "none",
        "x_1",
        "_",
        "é",
    ]
)


@more
@given(st.lists(words | st.text("abz_09", min_size=1, max_size=3), min_size=1, max_size=5).map(".".join))
def test_the_short_cut_for_plain_paths_equals_the_parser(text):
    assert short(text) == long(text)


def short(text: str) -> Any:
    try:
        expression = _compile.__wrapped__(text, ROOTS, NO_SECRET_INPUTS)
    except ExpressionInvalid as error:
        return str(error).split(":")[0], error.offset, error.hint
    return (
        expression,
        outcome(expression, {}),
        outcome(expression, {"inputs": {"a": {"if": 1}}, "item": {"a": 2}}),
    )


def long(text: str) -> Any:
    compiler = _Compiler(text, ROOTS, NO_SECRET_INPUTS)
    try:
        expression = compiler.finish(compiler.required(parse(text), 0))
    except ExpressionInvalid as error:
        return str(error).split(":")[0], error.offset, error.hint
    return (
        expression,
        outcome(expression, {}),
        outcome(expression, {"inputs": {"a": {"if": 1}}, "item": {"a": 2}}),
    )


PIECES = [
    "{{",
    "}}",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "'",
    '"',
    "\\'",
    "\\\\",
    "a",
    " ",
    "1",
    "'}}'",
    "{{ 1 }}",
    "{'a': 1}",
    "\n",
    "é",
]


@more
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("{{{'a': {'b': 1}}}}}}")
def test_text_is_split_where_jinja_splits_it(text):
    try:
        compile_template(text, roots={"a"})
    except ExpressionInvalid:
        return
    tokens = list(Environment(keep_trailing_newline=True).lex(text))
    assert [value for _, name, value in tokens if name == "data"] == [
        text for _, text, is_text in split_template(text) if is_text
    ]
    assert sum(name == "variable_begin" for _, name, _ in tokens) == sum(
        not is_text for *_, is_text in split_template(text)
    )


# ── templates ───────────────────────────────────────────────────────────────────────────────────────────────────────


@given(json_values)
def test_a_value_passes_through_a_template_untouched(value):
    scope = {"item": value}
    assert repr(compile_template({"a": ["{{ item }}"]}, roots={"item"}).resolve(scope)) == repr(
        {"a": [value]}
    )
    if isinstance(value, str):
        assert compile_template("<{{ item }}>", roots={"item"}).resolve(scope) == f"<{value}>"


@given(st.text() | token_soup, st.text())
def test_only_secret_positions_are_filled(text, secret):
    template = compile_template(
        ["a{{ item }}b{{ secrets.K }}{{ item }}", "{{ item }}"], roots={"item", "secrets"}
    )
    resolved = template.resolve({"item": text})
    assert has_secrets(resolved)
    assert fill_secrets(resolved, lambda _name: secret) == [f"a{text}b{secret}{text}", text]


@given(json_values)
def test_text_of_a_value_reads_back_as_the_value(value):
    assume(not isinstance(value, str))
    template = compile_template("{{ item }} ", roots={"item"})
    with suppress(EvaluationFailed):
        assert json.loads(template.resolve({"item": value})) == value

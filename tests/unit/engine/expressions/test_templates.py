"""JSON values with expressions in their strings, and secrets."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.engine.expressions import json_values, secret_parts
from dagmaster.engine.expressions.expression import PathUse
from dagmaster.engine.expressions.secret_parts import SecretName, SecretText, fill_secrets, has_secrets
from dagmaster.engine.expressions.templates import Template, compile_template, compile_template_all
from dagmaster.errors import EvaluationFailed, ExpressionInvalid

ROOTS = frozenset({"inputs", "item", "secrets", "nodes"})
SCOPE: dict[str, Any] = {
    "inputs": {"n": 1, "s": "tile", "l": [1, {"a": None}], "none": None, "f": 1.5, "t": True},
    "item": {},
}


def compiled(value: Any) -> Template:
    return compile_template(value, roots=ROOTS)


def resolved(value: Any, **changes: Any) -> Any:
    return compiled(value).resolve({**SCOPE, **changes})


def refusal(value: Any) -> ExpressionInvalid:
    with pytest.raises(ExpressionInvalid) as refused:
        compiled(value)
    return refused.value


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ inputs.n }}", 1),
        ("{{inputs.l}}", [1, {"a": None}]),
        ("{{ inputs.none }}", None),
        ("{{ inputs.t }}", True),
        ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
        ("{{{'a': {'b': 1}}}}", {"a": {"b": 1}}),
        ("{{ '}}' }}", "}}"),
        (" {{ inputs.n }}", " 1"),
        ("{{ inputs.n }}\n", "1\n"),
        ("{{ inputs.n }}{{ inputs.n }}", "11"),
        ("a {{ inputs.s }} b", "a tile b"),
        ("{{ inputs.l }}!", '[1,{"a":null}]!'),
        ("{{ inputs.none }},{{ inputs.t }},{{ inputs.f }}", "null,true,1.5"),
        ("{{ '{{' }} {{ '}}' }} {{ '{%' }}", "{{ }} {%"),
        ("a }} b { c } %} #}", "a }} b { c } %} #}"),
        ('{"a":{"b":1}}', '{"a":{"b":1}}'),
        ("{{ \"it's\" + '}}' }}-{{ '\\'' }}", "it's}}-'"),
        ("", ""),
        (5, 5),
        (None, None),
        ([], []),
        ({"a": ["{{ inputs.n }}", {"b": "x{{ inputs.n }}"}], "c": 2}, {"a": [1, {"b": "x1"}], "c": 2}),
        (("{{ inputs.n }}", 2), [1, 2]),
        ({"{ key }": "{{ inputs.n }}"}, {"{ key }": 1}),
    ],
)
def test_a_template_has_its_value(source, expected):
    result = resolved(source)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    "text", ["{{ inputs.n }}", "{{ secrets.KEY }}", "{% x %}", "{# #}", "{{", "{{ '", "}}"]
)
def test_a_value_is_never_parsed_again(text):
    assert resolved("{{ item }}", item=text) == text
    assert resolved("<{{ item }}>", item=text) == f"<{text}>"
    assert resolved({"a": ["{{ item }}"]}, item={"k": text}) == {"a": [{"k": text}]}
    assert resolved("{{ item }}{{ item }}", item=text) == text + text
    assert not has_secrets(resolved("{{ item }}", item=text))


def test_a_template_without_expressions_is_constant():
    source = {"a": [1, "text }}", {"b": None}]}
    template = compiled(source)
    assert template.is_constant
    assert template.resolve({}) is source
    assert not compiled({"a": "{{ 1 }}"}).is_constant
    assert not compiled({"a": "{{ secrets.KEY }}"}).is_constant


def test_what_holds_an_expression_is_new_each_time():
    template = compiled({"a": ["{{ inputs.n }}"]})
    template.resolve(SCOPE)["a"].append(2)
    assert template.resolve(SCOPE) == {"a": [1]}
    assert template.source == {"a": ["{{ inputs.n }}"]}


def test_uses_say_where_they_stand():
    template = compiled(
        {"a": ["x {{ inputs.n }} {{ item.q | default(inputs.n) }}"], "b": "{{  secrets.KEY }}"}
    )
    assert template.uses == (
        (("a", 0), PathUse(("inputs", "n"), guarded=False, offset=5)),
        (("a", 0), PathUse(("item", "q"), guarded=True, offset=20)),
        (("a", 0), PathUse(("inputs", "n"), guarded=False, offset=37)),
        (("b",), PathUse(("secrets", "KEY"), guarded=False, offset=4)),
    )
    assert template.refs == (("inputs", "n"), ("item",), ("secrets", "KEY"))


@pytest.mark.parametrize(
    ("source", "path", "offset", "message"),
    [
        ("{{ inptus.n }}", (), 3, "no `inptus`"),
        ({"a": [0, "text {{ inputs.n | lenght }}"]}, ("a", 1), 17, "no filter"),
        ({"a": {"b": "x {{ 1 + * 2 }}"}}, ("a", "b"), 9, "cannot be parsed"),
        ({"a": "{% if x %}"}, ("a",), 0, "statements"),
        ({"a": "b {# c #}"}, ("a",), 2, "comments"),
        ({"a": "{{ inputs.n }}{# c #}"}, ("a",), 14, "comments"),
        ({"a": "b {{ inputs.n"}, ("a",), 2, "does not end"),
        ({"a": "{{ (inputs.n }}"}, ("a",), 0, "does not end"),
        ({"a": "{{ 'inputs.n }}"}, ("a",), 3, "string does not end"),
        ({"a": "{{ }}"}, ("a",), 0, "empty"),
        ({"a": "{{- inputs.n }}"}, ("a",), 0, "whitespace control"),
        ({"a": "{{ inputs.n {# c #} }}"}, ("a",), 12, "not expected"),
        ({"a": {"{{ inputs.n }}": 1}}, ("a", "{{ inputs.n }}"), 0, "key cannot be an expression"),
        ({"a": {1: 2}}, ("a",), 0, "a key is a string"),
        ({"a": [object()]}, ("a", 0), 0, "not a JSON value"),
        ({"a": float("nan")}, ("a",), 0, "not a JSON value"),
        ({"a": b"x"}, ("a",), 0, "not a JSON value"),
        ({"a": "x {{ secrets.K | upper }}"}, ("a",), 5, "secret must be used alone"),
        ({"a": "{{ secrets }}"}, ("a",), 3, "not a value by itself"),
    ],
)
def test_a_refusal_says_where_in_the_structure_and_in_the_string(source, path, offset, message):
    error = refusal(source)
    assert message in str(error)
    assert error.path == path
    if message != "empty":
        assert error.offset == offset


def test_all_problems_are_reported_and_the_first_is_raised():
    source = {"a": "{{ inptus.n }} {{ itme }}", "b": ["{{ 1 ** 2 }}", "{{ inputs.n }}"], "c": {"{{": 1}}
    template, problems = compile_template_all(source, ROOTS)
    assert template is None
    assert [problem.path for problem in problems] == [("a",), ("a",), ("b", 0), ("c", "{{")]
    assert str(refusal(source)) == str(problems[0])
    template, problems = compile_template_all({"b": "{{ inputs.n }}"}, ROOTS)
    assert template is not None
    assert not problems


def test_a_structure_that_is_too_deep_is_refused():
    deep: Any = "{{ inputs.n }}"
    for _ in range(secret_parts.MAX_LEVELS):
        deep = [deep]
    assert resolved(deep)
    assert "deeper than 64" in str(refusal([deep]))
    for _ in range(5000):
        deep = {"a": deep}
    assert "deeper than 64" in str(refusal(deep))


def test_a_failure_names_the_place_and_the_path():
    with pytest.raises(EvaluationFailed) as failed:
        resolved({"tiles": [{"url": "x/{{ inputs.nope.id }}"}]})
    assert failed.value.path == "tiles[0].url: inputs.nope"
    assert "keys: n, s, l" in str(failed.value)
    with pytest.raises(EvaluationFailed) as failed:
        resolved({"count": "{{ inputs.s + 1 }}"})
    assert failed.value.path == "count"
    with pytest.raises(EvaluationFailed) as failed:
        resolved("{{ inputs.nope }}")
    assert failed.value.path == "inputs.nope"


def test_text_is_bounded():
    half = "x" * (json_values.MAX_TEXT // 2 + 1)
    for source in ("{{ item }}{{ item }}", "a{{ [item, item] }}", "{{ item }}" + "{{ item }}" * 10_000):
        with pytest.raises(EvaluationFailed, match="too large"):
            resolved(source, item=half)


def test_the_whole_of_a_resolution_is_bounded(monkeypatch):
    monkeypatch.setattr("dagmaster.engine.expressions.templates.MAX_TOTAL", 16 * json_values.MAX_TEXT)
    half = "x" * (json_values.MAX_TEXT // 2)
    for source in ("a{{ item }}", "{{ item + 'a' }}"):
        assert resolved([source] * 20, item=half)
        with pytest.raises(EvaluationFailed, match="in all"):
            resolved([source] * 40, item=half)


def test_a_value_that_is_not_json_cannot_stand_in_text():
    with pytest.raises(EvaluationFailed, match="not a JSON value"):
        resolved("a{{ item }}", item=object())
    with pytest.raises(EvaluationFailed, match="finite"):
        resolved("a{{ item }}", item=float("nan"))


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_secret_becomes_a_typed_part():
    assert resolved("{{ secrets.KEY }}") == SecretText((SecretName("KEY"),))
    assert resolved("{{ secrets['KEY'] }}") == SecretText((SecretName("KEY"),))
    assert resolved("a={{ inputs.n }};{{ secrets.A }}{{ secrets.B }}/{{ inputs.s }}.") == SecretText(
        ("a=1;", SecretName("A"), SecretName("B"), "/tile.")
    )
    assert resolved("{{ item }}{{ secrets.A }}{{ item }}", item="") == SecretText((SecretName("A"),))


def test_only_secret_parts_are_filled():
    value = resolved(
        {"url": "https://u:{{ secrets.P }}@{{ item }}", "l": ["{{ secrets.P }}", 1], "plain": "{{ item }}"},
        item="{{ secrets.P }}",
    )
    assert has_secrets(value)
    filled = fill_secrets(value, {"P": "hunter2"}.__getitem__)
    assert filled == {
        "url": "https://u:hunter2@{{ secrets.P }}",
        "l": ["hunter2", 1],
        "plain": "{{ secrets.P }}",
    }
    assert not has_secrets(filled)


def test_a_secret_that_looks_like_a_template_stays_what_it_is():
    assert fill_secrets(resolved("{{ secrets.A }}"), lambda _name: "{{ secrets.B }}") == "{{ secrets.B }}"


def test_a_secret_in_the_scope_is_not_read():
    assert resolved("{{ secrets.A }}", secrets={"A": "hunter2"}) == SecretText((SecretName("A"),))


def test_a_secret_is_found_as_deep_as_a_template_goes_and_deep_values_do_no_harm():
    deep: Any = "{{ secrets.A }}"
    for _ in range(secret_parts.MAX_LEVELS):
        deep = [deep]
    value = resolved(deep)
    assert has_secrets(value)
    assert not has_secrets(fill_secrets(value, str.lower))
    bottomless: Any = []
    for _ in range(5000):
        bottomless = [bottomless]
    value = resolved({"a": "{{ item }}", "b": "{{ secrets.A }}"}, item=bottomless)
    assert fill_secrets(value, str.lower)["b"] == "a"


def test_the_lookup_is_asked_by_name():
    asked: list[str] = []

    def lookup(name: str) -> str:
        asked.append(name)
        return "x"

    fill_secrets(resolved(["{{ secrets.A }}", "{{ secrets.B }}", "text"]), lookup)
    assert asked == ["A", "B"]

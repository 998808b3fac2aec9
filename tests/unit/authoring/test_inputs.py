"""Inputs: how they are declared, what a submit may give, and what it gets when it gives something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from dagmaster.authoring.input_schema import inputs_schema
from dagmaster.authoring.inputs import accept_inputs, parse_input
from dagmaster.errors import InputsInvalid, Problem
from dagmaster.json_types import _reject_duplicates, read_json
from tests.unit.authoring.compiled_workflows import (
    TASK,
    described,
    flow,
    graph_of,
    messages,
    problems_of,
    the_problem_of,
)

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph


def declared(inputs: str) -> str:
    return flow(f"a: {{{TASK}}}", f"inputs: {inputs}")


def with_inputs(inputs: str) -> Graph:
    return graph_of(declared(inputs))


def refused(inputs: str, **values: Any) -> tuple[Problem, ...]:
    with pytest.raises(InputsInvalid) as caught:
        accept_inputs(with_inputs(inputs), values)
    return caught.value.problems


def the_refusal(inputs: str, **values: Any) -> str:
    (problem,) = refused(inputs, **values)
    return problem.message


# ── What is accepted ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "said_of_it"),
    [
        ("string", "text", 5, "5 is not text"),
        ("string", "", None, "null is not text"),
        ("integer", 5, "5", '"5" is not a whole number'),
        ("integer", -1, 1.5, "1.5 is not a whole number"),
        ("integer", 0, True, "true is not a whole number"),
        ("number", 1.5, "1.5", '"1.5" is not a number'),
        ("number", 2, False, "false is not a number"),
        ("boolean", False, "false", '"false" is not true or false'),
        ("boolean", True, 1, "1 is not true or false"),
        ("array", [1, "a"], {"a": 1}, "a mapping is not a list"),
        ("array", [], "a", '"a" is not a list'),
        ("object", {"a": 1}, [1], "[1] is not a mapping"),
        ("uri", "https://example.com/a.tif", "not a uri", '"not a uri" is not a URI (scheme://…)'),
        ("uri", "s3://bucket/key", "example.com", '"example.com" is not a URI (scheme://…)'),
        ("uri", "file:///a", "http://a b", '"http://a b" is not a URI (scheme://…)'),
        ("date", "2026-01-31", "2026-13-45", '"2026-13-45" is not a date, as 2026-01-31'),
        ("date", "2026-01-31", 5, "5 is not a date, as 2026-01-31"),
        ("date", "2024-02-29", "2026-02-29", '"2026-02-29" is not a date'),
        ("date", "2026-01-01", "20260101", '"20260101" is not a date'),
        ("date-time", "2026-01-31T06:00:00Z", "2026-13-45T06:00:00Z", "is not a date-time with its zone"),
        ("date-time", "2026-01-31T06:00:00Z", "2026-01-31", '"2026-01-31" is not a date-time with its zone'),
        ("date-time", "2026-01-31T06:00:00+02:00", "2026-01-31T06:00:00", "is not a date-time with its zone"),
        ("date-time", "2026-01-31t06:00:00Z", "tomorrow", '"tomorrow" is not a date-time with its zone'),
    ],
)
def test_each_type_takes_its_values_and_no_others(kind, right, wrong, said_of_it):
    inputs = f"{{x: {{type: {kind}}}}}"
    assert accept_inputs(with_inputs(inputs), {"x": right}) == {"x": right}
    assert said_of_it in the_refusal(inputs, x=wrong)


def test_dates_inside_of_lists_and_mappings_are_real_dates():
    inputs = "{x: {type: array, items: {type: string, format: date}}}"
    assert accept_inputs(with_inputs(inputs), {"x": ["2026-01-31"]}) == {"x": ["2026-01-31"]}
    assert the_refusal(inputs, x=["2026-01-31", "2026-13-45"]) == '"2026-13-45" is not a date, as 2026-01-31'


def test_an_input_without_a_type_is_text():
    assert accept_inputs(with_inputs("{x: {}}"), {"x": "text"}) == {"x": "text"}
    assert the_refusal("{x: {}}", x=5) == "5 is not text"


def test_a_default_is_taken_when_nothing_is_given():
    graph = with_inputs("{x: {type: integer, default: 3}, y: {type: array, default: []}, z: {}}")
    assert accept_inputs(graph, {}) == {"x": 3, "y": []}
    assert accept_inputs(graph, {"x": 4, "z": "a"}) == {"x": 4, "y": [], "z": "a"}


@pytest.mark.parametrize(
    ("default", "value"), [("0", 0), ("false", False), ("''", ""), ("[]", []), ("{}", {})]
)
def test_a_default_that_is_nothing_much_is_a_default(default, value):
    kind = {int: "integer", bool: "boolean", str: "string", list: "array", dict: "object"}[type(value)]
    assert accept_inputs(with_inputs(f"{{x: {{type: {kind}, default: {default}}}}}"), {}) == {"x": value}


AREA = """
area:
  type: object
  properties:
    name: {type: string}
    size: {type: integer, default: 4}
    tags: {type: array, default: []}
    box: {type: object, properties: {x: {type: number, default: 1.5}}, default: {}}
    maybe: {default: null, anyOf: [{type: object, properties: {y: {default: 2}}}, {type: "null"}]}
    wrong: {type: integer, default: null}
    none: true
"""
FILLED = {"size": 4, "tags": [], "box": {"x": 1.5}, "maybe": None}


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ({"name": "a"}, {"name": "a", **FILLED}),
        ({"size": 1, "tags": ["t"]}, {**FILLED, "size": 1, "tags": ["t"]}),
        (
            {"box": {"x": 2}, "maybe": {}, "none": {}},
            {**FILLED, "box": {"x": 2}, "maybe": {"y": 2}, "none": {}},
        ),
    ],
)
def test_a_key_of_an_object_that_is_left_out_has_its_default(value: dict[str, Any], accepted: dict[str, Any]):
    before = str(value)
    graph = graph_of(flow(f"a: {{{TASK}}}", "inputs:" + AREA.replace("\n", "\n  ")))
    assert accept_inputs(graph, {"area": value}) == {"area": accepted}
    assert str(value) == before


def test_objects_in_lists_and_mappings_have_their_defaults():
    part = "{type: object, properties: {x: {type: integer, default: 1}}}"
    graph = with_inputs(
        f"{{list: {{type: array, items: {part}}}, map: {{type: object, constraints: {{additionalProperties: {part}}}}},"
        f" pair: {{type: array, constraints: {{prefixItems: [{part}, true]}}}}}}"
    )
    values: Any = {"list": [{}, {"x": 2}], "map": {"a": {}}, "pair": [{}, {}, {}]}
    assert accept_inputs(graph, values) == {
        "list": [{"x": 1}, {"x": 2}],
        "map": {"a": {"x": 1}},
        "pair": [{"x": 1}, {}, {}],
    }


def test_a_default_of_a_required_key_does_not_replace_it():
    declaration = "{box: {type: object, properties: {x: {default: 1}}, constraints: {required: [x]}}}"
    assert the_refusal(declaration, box={}) == "missing key 'x'"


def test_what_is_required_must_be_given():
    (problem,) = refused("{area: {required: true, description: Where to cut.}}")
    assert (problem.message, problem.path) == ("missing input 'area' (Where to cut.)", "area")


def test_each_missing_input_is_reported():
    message = refused("{a: {required: true}, b: {required: true}, c: {required: true}}", b="x")
    assert messages(message) == ["missing input 'a'", "missing input 'c'"]


def test_a_default_wins_over_required():
    assert accept_inputs(with_inputs("{x: {type: integer, required: true, default: 3}}"), {}) == {"x": 3}


def test_an_unknown_input_is_reported_with_the_nearest():
    (problem,) = refused("{area: {}, size: {}}", aera="x")
    assert (problem.message, problem.path, problem.hint) == (
        "unknown input 'aera'",
        "aera",
        "did you mean 'area'?",
    )


def test_a_workflow_without_inputs_takes_none():
    assert accept_inputs(graph_of(flow(f"a: {{{TASK}}}")), {}) == {}
    with pytest.raises(InputsInvalid):
        accept_inputs(graph_of(flow(f"a: {{{TASK}}}")), {"x": 1})


@pytest.mark.parametrize(
    ("declaration", "right", "wrong", "message"),
    [
        ("{enum: [fast, slow]}", "slow", "medium", '"medium" is not one of "fast", "slow"'),
        ("{type: integer, enum: [1, 2]}", 2, 3, "3 is not one of 1, 2"),
        ("{pattern: '^[a-z]+$'}", "abc", "ABC", '"ABC" does not match the pattern ^[a-z]+$'),
        ("{type: integer, minimum: 1}", 1, 0, "0 is less than 1"),
        ("{type: number, maximum: 2.5}", 2.5, 2.6, "2.6 is more than 2.5"),
        ("{type: array, items: {type: integer}}", [1, 2], [1, "b"], '"b" is not a whole number'),
        ("{type: array, items: {type: string, enum: [a]}}", ["a"], ["b"], '"b" is not one of "a"'),
        (
            "{type: object, properties: {n: {type: integer}}}",
            {"n": 1, "other": "x"},
            {"n": "1"},
            '"1" is not a whole number',
        ),
    ],
)
def test_a_value_fits_its_declaration(declaration, right, wrong, message):
    inputs = f"{{x: {declaration}}}"
    assert accept_inputs(with_inputs(inputs), {"x": right}) == {"x": right}
    assert the_refusal(inputs, x=wrong) == message


def test_the_place_inside_a_value_is_reported():
    inputs = "{x: {type: array, items: {type: object, properties: {n: {type: integer}}, required: [n, m]}}}"
    message = refused(inputs, x=[{"n": 1, "m": 1}, {"n": "a", "m": 1}, {}])
    assert {(problem.path, problem.message) for problem in message} == {
        ("x[1].n", '"a" is not a whole number'),
        ("x[2]", "missing key 'n'"),
        ("x[2]", "missing key 'm'"),
    }


def test_all_that_does_not_fit_is_reported_at_once():
    message = refused("{a: {required: true}, b: {type: integer}, c: {enum: [x]}}", b="1", c="y", d="z")
    assert len(message) == 4


def test_a_long_value_is_reported_in_short():
    (problem,) = refused("{x: {type: integer}}", x="y" * 100_000)
    assert len(problem.message) < 200
    assert len(problem.text) <= 120


@pytest.mark.parametrize(
    "declaration",
    ["{secret: true, pattern: '^k'}", "{secret: true, enum: [a]}", "{secret: true, type: integer}"],
)
def test_the_value_of_a_secret_is_not_repeated(declaration):
    (problem,) = refused(f"{{x: {declaration}}}", x="hunter2")
    assert "hunter2" not in str(problem)
    assert problem.path == "x"


def test_a_part_of_a_secret_is_not_repeated():
    inputs = "{x: {type: object, secret: true, properties: {key: {type: integer}}}}"
    (problem,) = refused(inputs, x={"key": "hunter2"})
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1, 2}, (1, 2), {"a": object()}, {1: 2}, "a\0b", "\ud800", 1 << 2000],
)
def test_what_is_not_json_is_refused(value):
    (problem,) = refused("{x: {type: object}, y: {}}", x=value)
    assert problem.path.startswith("x")


def test_what_is_too_deep_is_refused():
    value: Any = 1
    for _ in range(100):
        value = [value]
    assert "deep" in refused("{x: {type: array}}", x=value)[0].message


# ── How inputs are declared ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("{type: integer, default: many}", 'the default does not fit: "many" is not a whole number'),
        ("{type: integer, default: 0, minimum: 1}", "the default does not fit: 0 is less than 1"),
        ("{enum: [a, b], default: c}", 'the default does not fit: "c" is not one of "a", "b"'),
        ("{pattern: '^a', default: b}", 'the default does not fit: "b" does not match the pattern ^a'),
        ("{type: uri, default: here}", 'the default does not fit: "here" is not a URI (scheme://…)'),
        (
            "{type: array, items: {type: integer}, default: [a]}",
            'the default does not fit: "a" is not a whole number',
        ),
        ("{type: string, default: 2026}", "the default does not fit: 2026 is not text"),
        ("{type: string, default: }", "the default does not fit: null is not text"),
        ("{type: string, required: true, default: ~}", "the default does not fit: null is not text"),
    ],
)
def test_a_default_that_does_not_fit_is_reported_when_the_file_is_loaded(declaration, message):
    problem = the_problem_of(declared(f"{{x: {declaration}}}"))
    assert (problem.message, problem.path) == (message, "inputs.x.default")


def test_a_default_of_null_is_reported_what_to_do():
    problem = the_problem_of(declared("{x: {default: ~}}"))
    assert problem.hint == "leave it out, and write `| default(…)` where the input is used"


@pytest.mark.parametrize(
    ("declaration", "message", "path"),
    [
        ("{type: int}", "type is one of string, integer, number, boolean, array, object, uri, date, date-time, not 'int'", "type"),
        ("{type: [string]}", "type is one of string, integer, number, boolean, array, object, uri, date, date-time, not a list", "type"),
        ("{required: yes}", "required is true or false, not the text 'yes'", "required"),
        ("{enum: fast}", "enum is a list, not the text 'fast'", "enum"),
        ("{enum: []}", "enum needs at least one entry", "enum"),
        ("{type: integer, enum: [1, b]}", 'enum: "b" is not a whole number', "enum[1]"),
        ("{pattern: '('}", "the pattern is not a regular expression: missing ): (", "pattern"),
        ("{type: integer, pattern: a}", "pattern goes with type date or date-time or string or uri, not with integer", "pattern"),
        ("{type: string, minimum: 1}", "minimum goes with type integer or number, not with string", "minimum"),
        ("{type: integer, minimum: a}", "minimum is a number, not the text 'a'", "minimum"),
        ("{type: integer, minimum: 3, maximum: 2}", "minimum is more than maximum: no number fits", "minimum"),
        ("{type: string, items: {}}", "items goes with type array, not with string", "items"),
        ("{type: array, properties: {}}", "properties goes with type object, not with array", "properties"),
        ("{type: array, items: [a]}", "items is a mapping (key: value), not a list", "items"),
        ("{type: array, constraints: {minLength: 1}}", "minLength goes with type date or date-time or string or uri, not with array", "constraints.minLength"),
        ("{constraints: {minLenght: 1}}", "'minLenght' is not a constraint of inputs", "constraints.minLenght"),
        ("{constraints: {minLength: -1}}", "not a JSON Schema: -1 is less than the minimum of 0", "constraints.minLength"),
        ("{constraints: {format: email}}", "format is one of duration, ipv4, ipv6, time, uuid; uri, date and date-time are types", "constraints.format"),
        ("{constraints: {format: [uuid]}}", "format is one of duration, ipv4, ipv6, time, uuid; uri, date and date-time are types", "constraints.format"),
        ("{description: [a]}", "description is text, not a list", "description"),
        ("{default: a, secret: 1}", "secret is true or false, not the number 1", "secret"),
    ],
)  # fmt: skip
def test_a_declaration_that_makes_no_sense_is_reported(declaration, message, path):
    problem = the_problem_of(declared(f"{{x: {declaration}}}"))
    assert (problem.message, problem.path) == (message, f"inputs.x.{path}")


@pytest.mark.parametrize(
    "declaration",
    [
        "{type: array, items: {type: strin}}",
        "{type: object, properties: {a: 5}}",
        "{type: object, properties: {a: {minimum: x}}}",
    ],
)
def test_a_schema_inside_a_declaration_is_checked(declaration):
    problem = the_problem_of(declared(f"{{x: {declaration}}}"))
    assert problem.message.startswith("not a JSON Schema: ")
    assert problem.path.startswith("inputs.x.")


@pytest.mark.parametrize(
    "declaration",
    [
        "{type: array, items: {$ref: 'http://example.com/schema'}, default: [1]}",
        "{type: array, items: {$ref: '#'}}",
        "{type: object, properties: {a: {allOf: [{$ref: '#/properties/x'}]}}}",
        "{type: object, properties: {a: {$dynamicRef: '#a'}}}",
        "{type: object, properties: {a: {$id: 'http://example.com'}}}",
    ],
)
def test_a_schema_inside_a_declaration_refers_to_nothing(declaration):
    assert the_problem_of(declared(f"{{x: {declaration}}}")).message.endswith(
        "references are not allowed in this schema"
    )


def test_a_key_may_be_called_like_a_reference():
    graph = with_inputs("{x: {type: object, properties: {$ref: {type: string}}}}")
    assert accept_inputs(graph, {"x": {"$ref": "a"}}) == {"x": {"$ref": "a"}}


@pytest.mark.parametrize("name", ["a b", "1a", "a-b", "a.b", "''", "ä"])
def test_the_name_of_an_input_is_an_identifier(name):
    problem = the_problem_of(declared(f"{{{name}: {{}}}}"))
    assert problem.message == "an input's name is made of letters, digits and _, and starts with no digit"


def test_an_input_that_is_wrong_hides_no_other():
    problems = problems_of(
        declared("{a: {type: int}, b: {type: integer, default: x}, c: {tpe: string}, d: string}")
    )
    assert [problem.path for problem in problems] == [
        "inputs.a.type",
        "inputs.b.default",
        "inputs.c.tpe",
        "inputs.d",
    ]


def test_an_input_of_an_unknown_type_has_that_problem_only():
    problem = the_problem_of(declared("{a: {type: int, default: 5, minimum: 1}}"))
    assert problem.path == "inputs.a.type"


def test_an_input_that_is_wrong_is_declared_all_the_same():
    problem = the_problem_of(
        flow(f"a: {{{TASK}, params: {{x: '{{{{ inputs.a }}}}'}}}}", "inputs: {a: {type: int}}")
    )
    assert problem.message.startswith("type is one of ")


def test_a_problem_of_an_input_has_its_place():
    problem = the_problem_of(
        "workflow_id: w\ninputs:\n  size:\n    type: integer\n    default: x\nnodes:\n  a: {handler: w, queue: q}"
    )
    assert described(problem).startswith("5:14 the default does not fit")
    assert problem.text == "default: x"


# ── For machines ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_inputs_become_a_json_schema():
    graph = with_inputs("""{
        a: {type: integer, required: true, minimum: 1, maximum: 9, description: How many.},
        b: {type: uri, default: 'file:///x'}, c: {type: array, items: {type: string}}, d: {secret: true},
        e: {required: true, default: x, enum: [x, y]}, f: {type: object, properties: {n: {type: integer}}},
        g: {pattern: '^a'}, h: {type: boolean, default: false}, i: {type: date-time}}
    """)
    schema = inputs_schema(graph.inputs)
    Draft202012Validator.check_schema(schema)
    assert schema["required"] == ["a"]
    assert schema["additionalProperties"] is False
    assert schema["properties"] == {
        "a": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."},
        "b": {"type": "string", "format": "uri", "default": "file:///x"},
        "c": {"type": "array", "items": {"type": "string"}},
        "d": {"type": "string", "writeOnly": True},
        "e": {"type": "string", "default": "x", "enum": ["x", "y"]},
        "f": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "g": {"type": "string", "pattern": "^a"},
        "h": {"type": "boolean", "default": False},
        "i": {"type": "string", "format": "date-time"},
    }


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "5", "5"),
        ("uri", "file:///a", "file:///a"),
        ("date-time", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("integer", "5", 5),
        ("number", "1.5", 1.5),
        ("boolean", "true", True),
        ("array", "[1, 2]", [1, 2]),
        ("object", '{"a": 1}', {"a": 1}),
        ("integer", "many", "many"),
        ("number", "NaN", "NaN"),
        ("array", "[" * 100_000, "[" * 100_000),
    ],
)
def test_an_input_is_read_from_a_command_line_as_its_type_says(kind, text, value):
    assert parse_input(with_inputs(f"{{x: {{type: {kind}}}}}"), "x", text) == value


def test_a_number_that_json_does_not_have_is_refused():
    graph = with_inputs("{x: {type: number}}")
    with pytest.raises(InputsInvalid):
        accept_inputs(graph, {"x": parse_input(graph, "x", "1e999")})


class CountedKey(str):
    """A key that counts how often it is compared."""

    __slots__ = ()

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedKey.comparisons += 1
        return str.__eq__(self, other)


def test_a_key_that_appears_twice_is_found_without_a_comparison_of_all():
    count = 5_000
    keys = [*(CountedKey(number) for number in range(count)), CountedKey("x"), CountedKey("x")]
    with pytest.raises(ValueError, match="key 'x' appears twice"):
        _reject_duplicates([(key, 1) for key in keys])
    assert CountedKey.comparisons < 10 * count
    with pytest.raises(ValueError, match="key 'x' appears twice"):
        read_json('{"a": {"x": 1, "x": 2}}')


@pytest.mark.parametrize("text", ["1e999", "[-1e999]", "1" + "0" * 400 + ".0"])
def test_a_number_that_no_float_can_hold_is_rejected(text):
    with pytest.raises(ValueError, match="is too large"):
        read_json(text)
    assert read_json("[1e308, -0.0, 1.5, 10]") == [1e308, 0.0, 1.5, 10]

"""Checks of inputs: equal values by hash, every keyword counted, and an end that names the input."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.authoring.check_budget import CHARACTERS_PER_STEP, QUICK_STEPS, CheckBudget, CheckStopped
from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.authoring.inputs import MAX_PROBLEMS, accept_inputs, accept_values
from dagmaster.errors import InputsInvalid, Problem, WorkflowInvalid, suggestions
from dagmaster.errors.suggestions import LONGEST_NAME, MAX_CANDIDATES, MAX_HINTS
from tests.unit.authoring.compiled_workflows import TASK, flow, graph_of, problems_of, the_problem_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def steps_of(definition: Mapping[str, Any], value: Any) -> int:
    """Return the steps that a check takes, whatever it finds."""
    budget = CheckBudget(10**12)
    with suppress(InputsInvalid):
        accept_values({"x": definition}, {"x": value}, budget)
    return budget.limit - budget.left


def calls_of(definition: Mapping[str, Any], value: Any) -> int:
    """Return how many functions a check calls, those of libraries too: work that no budget counts."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        steps_of(definition, value)
    finally:
        sys.setprofile(None)
    return calls


def refusal(definition: Mapping[str, Any], value: Any) -> list[Problem]:
    with pytest.raises(InputsInvalid) as caught:
        accept_values({"x": definition}, {"x": value})
    return list(caught.value.problems)


UNIQUE: dict[str, Any] = {"type": "array", "constraints": {"uniqueItems": True}}
OBJECT = {"type": "object"}
DEFAULTS = {"type": "array", "items": {"type": "object", "properties": {"a": {"default": ["x" * 50]}}}}
# Each grows by its number in the schema, in the value, or in both: the product may not be the work.
GROWING: list[tuple[str, Any, Any]] = [
    ("unique objects", lambda _: UNIQUE, lambda n: [{"a": i} for i in range(n)]),
    (
        "unique mixed values",
        lambda _: UNIQUE,
        lambda n: [[i, {}][i % 2] if i % 3 else {"a": i} for i in range(1, n, 2)],
    ),
    ("an enum of objects", lambda n: {**OBJECT, "enum": [{"a": i} for i in range(n)]}, lambda n: {"a": -n}),
    (
        "values of an enum",
        lambda n: {"type": "array", "items": {"enum": [{"a": i} for i in range(n)]}},
        lambda n: [{"a": n - 1 - i} for i in range(n)],
    ),
    ("integers", lambda _: {"type": "array", "items": {"type": "integer"}}, lambda n: list(range(n))),
    (
        "patterns",
        lambda _: {"type": "array", "items": {"pattern": "(?i)^(\\u017f+s)+c"}},
        lambda n: ["s" * 20] * n,
    ),
    ("a long text", lambda _: {"type": "string", "pattern": "^(a|aa)+$"}, lambda n: "a" * n),
    ("contains", lambda _: {"type": "array", "constraints": {"contains": {"const": [1]}}}, lambda n: [0] * n),
    ("defaults", lambda _: DEFAULTS, lambda n: [{} for _ in range(n)]),
]


@pytest.mark.parametrize(
    ("schema", "value"), [part[1:] for part in GROWING], ids=[part[0] for part in GROWING]
)
def test_the_work_of_a_check_grows_with_the_size_of_what_is_checked(schema: Any, value: Any) -> None:
    for work in (steps_of, calls_of):
        assert work(schema(400), value(400)) <= 2.5 * work(schema(200), value(200)) + 200


# The work of these is a product, as JSON Schema has it: it is counted, and stopped.
PRODUCTS: list[tuple[str, Any, Any]] = [
    ("keys of objects", {"items": {"properties": {f"k{n}": {} for n in range(3000)}}}, [{}] * 3000),
    ("alternatives", {"items": {"anyOf": [{"const": n} for n in range(3000)]}}, [-1] * 3000),
    ("empty schemas", {"items": {"allOf": [{} for _ in range(3000)]}}, [1] * 3000),
    (
        "nested lists that are unique at each depth",
        {
            "items": {"uniqueItems": True, "items": {"uniqueItems": True}},
            "constraints": {"uniqueItems": True},
        },
        [[list(range(1000))] * 500] * 4,
    ),
    (
        "keys and patterns",
        {"items": {"patternProperties": {f"^(a|b)+{n}$": {} for n in range(200)}}},
        [{"ab" * 40 + str(n): 1 for n in range(200)}] * 20,
    ),
    ("the value in each message", {"items": {"anyOf": [{"minItems": 5}] * 2000}}, [["x" * 50_000]]),
    (
        "copies of a default",
        {"items": {"properties": {"a": {"default": "x" * 100_000}}}},
        [{} for _ in range(3000)],
    ),
]


@pytest.mark.parametrize(
    ("schema", "value"), [part[1:] for part in PRODUCTS], ids=[part[0] for part in PRODUCTS]
)
def test_a_check_ends_with_its_budget_and_names_the_input(schema: dict[str, Any], value: Any) -> None:
    definition = {"type": "array", **schema}
    with pytest.raises(CheckStopped):
        accept_values({"x": definition}, {"x": value}, CheckBudget(100_000))


def test_a_check_that_is_stopped_is_a_problem_of_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckBudget.__init__, "__defaults__", (1_000,))
    definition = {"type": "array", "items": {"type": "integer"}}
    (problem,) = refusal(definition, [1] * 1_000)
    assert problem.message == "the check of input 'x' was stopped after 1,000 steps"
    assert problem.path == "x"
    assert "make the value or its schema smaller" in problem.hint
    problem = the_problem_of(
        flow(
            f"a: {{{TASK}}}",
            f"inputs: {{x: {{type: array, items: {{type: integer}}, default: {[1] * 1000}}}}}",
        )
    )
    assert problem.message.startswith(
        "the check was stopped after 1,000 steps: make the schemas, defaults and"
    )
    assert problem.path == "inputs.x"


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([1, 1.0], False),
        ([0, -0.0], False),
        ([10**20, 1e20], False),
        ([1, True], True),
        ([0, False, None, "", [], {}], True),
        (["1", 1], True),
        (['"1', "1", '"1"'], True),
        ([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], False),
        ([[1, [2]], [1, [2.0]]], False),
        ([[1, [True]], [1, [1]]], True),
        ([{"a": "1"}, {"a": 1}], True),
        (["é", "e\u0301"], True),
    ],
)
def test_items_are_equal_as_json_schema_says(items: list[Any], is_unique: bool) -> None:
    if is_unique:
        assert accept_values({"x": UNIQUE}, {"x": items}) == {"x": items}
    else:
        (problem,) = refusal(UNIQUE, items)
        assert problem.message == "its items 0 and 1 are equal: each must be unique"
    allowed: dict[str, Any] = {"type": "array", "items": {"enum": items[:1]}}
    try:
        accept_values({"x": allowed}, {"x": items[1:2]})
        is_allowed = True
    except InputsInvalid:
        is_allowed = False
    assert is_allowed is not is_unique


def test_only_the_first_problems_are_collected() -> None:
    problems = refusal({"type": "array", "items": {"type": "integer"}}, [f"a{n}" for n in range(10_000)])
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].message == f"there are more problems: these are the first {MAX_PROBLEMS}"
    with pytest.raises(InputsInvalid) as caught:
        accept_values({"x": {}}, {f"y{n}": 1 for n in range(10_000)})
    assert len(caught.value.problems) <= MAX_PROBLEMS


def test_a_pattern_that_is_refused_is_named_at_its_line() -> None:
    problem = the_problem_of(flow(f"a: {{{TASK}}}", r"inputs: {x: {pattern: '^(?=a)b'}}"))
    assert (problem.path, problem.line) == ("inputs.x.pattern", 4)
    assert problem.message == "look-ahead (?=…) at character 2 is not supported in a pattern"
    assert problem.hint.startswith("describe the whole text instead")
    for schema in (r"{pattern: '(a)\1'}", r"{patternProperties: {'(a)\1': {}}}"):
        problem = the_problem_of(flow(f"a: {{{TASK}}}", f"inputs: {{x: {{type: array, items: {schema}}}}}"))
        assert problem.path.startswith("inputs.x.items.pattern")
        assert problem.message.startswith(r"a back reference \1 at character 4")


def test_an_input_has_a_bounded_number_of_patterns() -> None:
    patterns = ", ".join(f"'^a{n}$': {{}}" for n in range(201))
    (problem,) = problems_of(
        flow(
            f"a: {{{TASK}}}",
            f"inputs: {{x: {{type: object, constraints: {{patternProperties: {{{patterns}}}}}}}}}",
        )
    )
    assert problem.message == "an input has at most 200 patterns, not 201"


@pytest.mark.parametrize("keyword", ["unevaluatedItems", "unevaluatedProperties"])
def test_a_keyword_that_checks_again_and_again_is_refused_by_name(keyword: str) -> None:
    problem = the_problem_of(
        flow(f"a: {{{TASK}}}", f"inputs: {{x: {{type: array, items: {{{keyword}: false}}}}}}")
    )
    assert problem.message == f"items.{keyword} is not supported in the schema of an input"


PUBLISHED = {"workflow_id": "w", "version": 1, "nodes": {"a": {"handler": "h", "queue": "q"}}}


@pytest.mark.parametrize(
    "declared",
    [
        {"pattern": "(?=a)"},
        {"type": "array", "items": {"pattern": "(?=a)"}},
        {"type": "object", "constraints": {"patternProperties": {"(?=a)": {}}}},
        {"type": "object", "properties": {"a": {"unevaluatedProperties": False}}},
    ],
)
def test_a_published_workflow_with_a_pattern_that_is_refused_since_then_is_loaded(
    declared: dict[str, Any],
) -> None:
    definition: Any = {**PUBLISHED, "inputs": {"x": declared, "y": {}}}
    graph = compile_definition(definition)
    assert accept_inputs(graph, {"y": "b"}) == {"y": "b"}
    value: Any = {"string": "a", "array": ["a"], "object": {"a": {"b": 1}}}[declared.get("type", "string")]
    with pytest.raises(InputsInvalid) as caught:
        accept_inputs(graph, {"x": value})
    (problem,) = caught.value.problems
    assert problem.message.startswith("the value cannot be checked: its ")
    assert problem.path == "x"
    assert problem.hint == "publish the workflow again with another schema of this input"
    with pytest.raises(WorkflowInvalid, match="not supported"):
        compile_definition(definition, is_published=False)


def test_a_schema_is_checked_in_linear_time_and_within_the_budget() -> None:
    graph = f"inputs: {{x: {{type: array, items: {{type: {json.dumps([{} for _ in range(20_000)])}}}}}}}"
    (problem,) = problems_of(flow(f"a: {{{TASK}}}", graph))
    assert problem.message.startswith(("not a JSON Schema", "the check was stopped"))


def test_an_extra_key_is_named_once_however_many_there_are() -> None:
    definition = {"type": "object", "properties": {"a": {}}, "constraints": {"additionalProperties": False}}
    (problem,) = refusal(definition, {"a": 1, "b": 2})
    assert problem.message == "Additional properties are not allowed ('b' was unexpected)"
    (problem,) = refusal(definition, {f"b{n}": 2 for n in range(1000)})
    assert problem.message.endswith("'b9', … were unexpected)")


def test_the_choices_of_one_input_do_not_apply_to_another() -> None:
    inputs: dict[str, Any] = {f"x{n}": {"enum": [f"a{n}", f"b{n}"], "default": f"a{n}"} for n in range(200)}
    definition: Any = {**PUBLISHED, "inputs": inputs}
    graph = compile_definition(definition, is_published=False)
    assert accept_inputs(graph, {"x7": "b7"})["x7"] == "b7"
    lines = ", ".join(f"{name}: {json.dumps(declared)}" for name, declared in inputs.items())
    assert graph_of(flow(f"a: {{{TASK}}}", f"inputs: {{{lines}}}")).inputs.keys() == inputs.keys()


def test_few_unknown_inputs_of_a_request_get_a_suggestion() -> None:
    problems = _unknown_inputs({f"input_{number}x": 1 for number in range(MAX_PROBLEMS)})
    assert len(problems) == MAX_PROBLEMS
    hints = [problem.hint for problem in problems if problem.hint]
    assert hints == [f"did you mean 'input_{number}'?" for number in range(MAX_HINTS)]


def test_suggestions_and_long_names_of_inputs_take_steps() -> None:
    definitions: Any = {f"input_{number}": {} for number in range(20)}
    suggested, unknown = CheckBudget(QUICK_STEPS), dict.fromkeys((f"{n}input" for n in range(100)), 1)
    with pytest.raises(InputsInvalid):
        accept_values(definitions, unknown, suggested)
    assert QUICK_STEPS - suggested.left > MAX_HINTS * len(definitions)
    # A name as long as a value costs as much.
    with pytest.raises(CheckStopped):
        accept_values(definitions, {"a" * CHARACTERS_PER_STEP * QUICK_STEPS: 1}, CheckBudget(QUICK_STEPS))


def test_a_suggestion_compares_few_names_of_a_limited_length(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []

    def get_close_matches(word: str, names: Any, n: int) -> list[str]:
        compared.append((word, list(names)))
        return []

    monkeypatch.setattr(suggestions, "get_close_matches", get_close_matches)
    many = [f"name_{number}" for number in range(5 * MAX_CANDIDATES)]
    assert suggestions.nearest("a" * (LONGEST_NAME + 1), many) is None
    assert not compared
    suggestions.nearest("nome_7", [*many, "n" * (LONGEST_NAME + 1)])
    ((_, names),) = compared
    assert len(names) == MAX_CANDIDATES
    assert {f"name_{number}" for number in range(10)} <= set(names)


def test_difflib_is_used_where_its_work_is_limited_alone() -> None:
    source = Path(suggestions.__file__).parents[1]
    users = [file.name for file in source.rglob("*.py") if "difflib import" in file.read_text("utf-8")]
    assert users == ["suggestions.py"]


def _unknown_inputs(values: dict[str, Any]) -> list[Problem]:
    definitions: Any = {f"input_{number}": {} for number in range(20)}
    with pytest.raises(InputsInvalid) as caught:
        accept_values(definitions, values, CheckBudget(QUICK_STEPS))
    return list(caught.value.problems)

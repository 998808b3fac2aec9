"""Whatever is compiled, it is a graph or a list of problems with places; and a graph outlives its file."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagmaster.authoring.compiler.compile import compile_definition, compile_document, compile_text
from dagmaster.authoring.inputs import accept_inputs
from dagmaster.authoring.source_document import document_from_data
from dagmaster.errors import InputsInvalid, Problem, WorkflowInvalid
from tests.unit.authoring.compiled_workflows import HANDLERS
from tests.unit.authoring.compiler.test_compile import FILES, TWELVE, WHOLE, same, stored
from tests.unit.authoring.workflow_strategies import VALUES, workflows

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph

TEXTS = [WHOLE, TWELVE, *(file.read_text(encoding="utf-8") for file in FILES)]

WORDS = [
    "type", "task", "start", "end", "conditional", "fan_out", "fan_in", "workflow", "approval", "wait", "nodes", "inputs",
    "outputs", "handler", "queue", "params", "next", "depends_on", "any_of", "all_of", "branches", "condition", "default",
    "condition_field", "source", "tolerate_failures", "retry", "none", "max_attempts", "seconds", "until", "signal", "END",
    "START", "route.small", "route", "first", "tiles", "name", "version", "true", "~", "0", "-1", "1e308", "99999999999999999999",
    "[]", "{}", "[[a]]", "{a: {b: c}}", "'{{ item }}'", "'{{ nodes.first.output.x }}'", "'{{ upstream.output }}'",
    "'{{ outer.outer.item }}'", "'{{ secrets.X }}'", "'{{ inputs.size'", "'{{ }}'", "'{% x %}'", "'< 100MB'", '"\\n"', "5%",
    "properties", "items", "enum", "pattern", "'('", "minimum", "$ref", "'#'", "timeout_seconds", "2026-01-01T00:00:00Z",
]  # fmt: skip


def compiled(text: str) -> Graph | None:
    """Return the graph, or None if there are problems; nothing else may happen."""
    try:
        result = compile_text(text, "fuzz.yaml", handlers=HANDLERS, allow_missing_handlers=True)
    except WorkflowInvalid as invalid:
        check(invalid.problems, lines=len(text.splitlines()))
        return None
    check(result.warnings, lines=len(text.splitlines()), severity="warning")
    return result.graph


def check(problems: tuple[Problem, ...], *, lines: int, severity: str = "") -> None:
    """Each has a place and a message; there is an error, unless they are all warnings."""
    assert severity or any(problem.severity == "error" for problem in problems)
    for problem in problems:
        assert problem.message
        assert problem.file == "fuzz.yaml"
        assert 1 <= problem.line <= max(lines, 1)
        assert problem.column >= 1
        assert problem.severity == (severity or problem.severity)
        assert "\0" not in str(problem)
        assert "Input should" not in problem.message


def outlives(graph: Graph) -> None:
    again = stored(graph)
    assert same(again, graph)
    assert list(again.definition["nodes"]) == list(graph.definition["nodes"])


# ── Text ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Mutation:
    """Changes a text a little, as a tired author would."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, text: str) -> str:
        lines = text.splitlines()
        for _ in range(self.random.randint(1, 3)):
            change = self.random.choice(
                [self.delete, self.double, self.swap, self.word, self.word, self.word, self.splice]
            )
            change(lines)
        return "\n".join(lines)

    def place(self, lines: list[str]) -> int:
        return self.random.randrange(len(lines))

    def delete(self, lines: list[str]) -> None:
        if len(lines) > 1:
            del lines[self.place(lines)]

    def double(self, lines: list[str]) -> None:
        lines.insert(self.place(lines), self.random.choice(lines))

    def swap(self, lines: list[str]) -> None:
        one, other = self.place(lines), self.place(lines)
        lines[one], lines[other] = lines[other], lines[one]

    def word(self, lines: list[str]) -> None:
        place = self.place(lines)
        words = lines[place].split(" ")
        words[self.random.randrange(len(words))] = self.random.choice(WORDS) + self.random.choice(
            ["", ":", ","]
        )
        lines[place] = " ".join(words)

    def splice(self, lines: list[str]) -> None:
        place = self.place(lines)
        indentation = len(lines[place]) - len(lines[place].lstrip())
        lines.insert(place, f"{' ' * indentation}{self.random.choice(WORDS)}: {self.random.choice(WORDS)}")


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_file_with_a_few_changes_compiles_or_is_refused(text):
    for seed in range(250):
        graph = compiled(Mutation(seed).of(text))
        if graph is not None:
            outlives(graph)


@given(
    st.lists(
        st.sampled_from([*WORDS, "\n", "\n  ", "\n    ", ": ", "- ", "{", "}", "[", "]", ", "]), max_size=30
    ).map("".join)
)
@example("workflow_id: w\nnodes: {a: {type: fan_out, source: [1], task: {type: [a]}}}")
@example("workflow_id: w\nnodes: {a: {type: [a]}}")
@example("workflow_id: w\nnodes: {a: {type: conditional, branches: [{default: true, condition: x}]}}")
def test_any_mix_of_words_compiles_or_is_refused(text):
    compiled(text)


# ── Data ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def changed(data: Any, chance: random.Random) -> Any:
    """Return a copy in which one value somewhere differs, or has another key."""
    if isinstance(data, dict) and data and chance.random() < 0.8:
        key = chance.choice(list(data))
        if chance.random() < 0.15:
            return {**data, chance.choice(WORDS): data[key]}
        return {**data, key: changed(data[key], chance)}
    if isinstance(data, list) and data and chance.random() < 0.8:
        place = chance.randrange(len(data))
        return [changed(item, chance) if number == place else item for number, item in enumerate(data)]
    return chance.choice(
        [
            None,
            True,
            0,
            -1,
            1.5,
            10**30,
            "",
            "a",
            "a__b",
            "{{ item }}",
            "{{ nodes.n0.output }}",
            [],
            [data],
            {},
            {"a": data},
        ]
    )


@given(workflows())
def test_a_workflow_as_data_as_text_and_as_it_is_stored_is_one_graph(data):
    graph = compile_document(document_from_data(data)).graph
    outlives(graph)
    # JSON is YAML.
    for indent in (None, 1):
        text = compiled(json.dumps(data, indent=indent, ensure_ascii=False))
        assert text is not None
        assert same(text, graph)


@given(workflows(), st.randoms(use_true_random=False))
def test_the_order_of_keys_means_nothing(data, chance):
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            chance.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    mixed = shuffled(data)
    mixed["nodes"] = {node_id: mixed["nodes"][node_id] for node_id in data["nodes"]}
    one, other = (compile_document(document_from_data(each)).graph for each in (data, mixed))
    assert same(one, other)


@given(workflows(), st.integers(0, 2**32))
def test_data_with_a_few_changes_compiles_or_is_refused(data, seed):
    chance = random.Random(seed)
    for _ in range(6):
        mutant = changed(data, chance)
        graph = compiled(json.dumps(mutant, indent=1, ensure_ascii=False))
        if graph is not None:
            outlives(graph)


@given(
    st.dictionaries(
        st.sampled_from(["workflow_id", "name", "nodes", "inputs", "outputs", "tags"]) | st.text(max_size=5),
        VALUES,
    )
)
def test_any_data_compiles_or_is_refused(data):
    try:
        outlives(compile_definition(data))
    except WorkflowInvalid as invalid:
        problems = invalid.problems
        assert problems
        assert all(problem.message and problem.file == "<definition>" for problem in problems)


@given(workflows(), st.dictionaries(st.text(max_size=5), VALUES, max_size=3))
def test_any_inputs_are_accepted_or_refused(data, given_inputs):
    graph = compile_document(document_from_data(data)).graph
    names = list(graph.inputs)
    inputs = {
        names[number] if number < len(names) else name: value
        for number, (name, value) in enumerate(given_inputs.items())
    }
    try:
        result = accept_inputs(graph, inputs)
    except InputsInvalid as invalid:
        problems = invalid.problems
        assert all(problem.message for problem in problems)
        return
    assert result == accept_inputs(graph, result)
    json.dumps(result, allow_nan=False)

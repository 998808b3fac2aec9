"""Whatever is read, it is plain data or a list of problems with places."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dagmaster.authoring.source_document import Document, Path, document_from_data, read_document
from dagmaster.errors import Problem, WorkflowInvalid
from dagmaster.errors.suggestions import did_you_mean, nearest

# Pieces that YAML gives a meaning to, and some that look as if.
PIECES = st.sampled_from(
    [
        *"[]{}:,-?!&*|>%@`#'\"\t\n\r \\~.0aé",
        "\n  ", "\n    ", ": ", "- ", "? ", "---", "...", "<<", "&a ", "*a", "!!str ", "{{ a }}", "%TAG ! b\n", "\r\n",
        "null", "true", ".inf", "0x1F", "1e999", "010", "\\u0000", "\\ud800", "\ufeff", "\x85", "\u2028", "\0", "key: ",
        "|+2\n", ">-\n", '"a": ', "\U0001f600", "\ud800",
    ]
)  # fmt: skip
SOUP = st.lists(PIECES, max_size=40).map("".join)

GOOD = """\
name: flow
nodes:
  validate:
    handler: "check {{ inputs.a }}"
    params: {x: [1, 'two', {deep: true}], y: -1.5e3}
  publish:
    depends_on: [validate]
    script: |
      one
        two
    text: >-
      folded
"""

# YAML has no pairs of surrogates, which is how JSON escapes the characters past U+FFFF: those are for PyYAML to write.
SHORT_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0", max_codepoint=0xFFFF)
TEXT = st.text(SHORT_CHARACTERS, max_size=20)
ANY_TEXT = st.text(SHORT_CHARACTERS | st.characters(min_codepoint=0x10000), max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def mappings(text: st.SearchStrategy[str], scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    inside = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=15,
    )
    return st.dictionaries(text, inside, max_size=4)


def read(source: str | bytes) -> Document | None:
    """Return the document, or None if it is refused; nothing else may happen."""
    try:
        document = read_document(source, "fuzz.yaml")
    except WorkflowInvalid as invalid:
        check_problems(invalid.problems)
        return None
    check_plain(document)
    return document


def check_problems(problems: tuple[Problem, ...]) -> None:
    """There is one, and each has a place."""
    assert problems
    for problem in problems:
        assert problem.message
        assert problem.line >= 1
        assert problem.column >= 1
        assert len(problem.text) <= 120


def check_plain(document: Document) -> None:
    """Everything in it is JSON, and has a place in the text."""
    document_from_data(document.data)
    for path in paths(document.data):
        for at_key in (False, True):
            problem = document.problem("here", path, at_key=at_key, offset=3)
            assert 1 <= problem.line <= max(len(document.lines), 1)
            assert 1 <= problem.column <= len(document.lines[problem.line - 1]) + 1


def paths(data: Any, path: Path = ()) -> list[Path]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(result for key, value in inner for result in paths(value, (*path, key)))]


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types: 1, 1.0 and True are three values."""
    return json.dumps(left) == json.dumps(right)


@given(st.binary(max_size=200))
@example(b"\xff\xfea\x00")
def test_any_bytes_are_read_or_refused(content):
    read(content)


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text):
    read(text)


@given(SOUP)
@example("{{ a }}: [\n")
@example("? {{ a }}\n: *a")
@example("{? {? a}}")
@example("- |+2\n\n")
@example("\r%TAG ! b\n")
def test_any_mix_of_yaml_is_read_or_refused(text):
    read(text)


@given(st.data())
def test_a_good_file_with_a_few_changes_is_read_or_refused(data):
    text = GOOD
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 5))
        text = text[:at] + data.draw(st.just("") | PIECES) + text[at + gone :]
    read(text)


@given(SOUP)
def test_what_is_read_is_what_yaml_says(text):
    """Where both read it, the structure and the words are the ones that libyaml's own composer finds."""
    try:
        composed = yaml.compose(text, Loader=yaml.CBaseLoader)
    except (yaml.YAMLError, UnicodeEncodeError):
        composed = None
    document = read(text)
    if document is not None:
        assert agrees(composed, document.data)


def agrees(node: yaml.Node | None, data: Any) -> bool:
    """Compare structure, keys and text; the meaning of an unquoted word is ours to define."""
    if isinstance(node, yaml.MappingNode):
        values = list(zip((value for _, value in node.value), data.values(), strict=True))
        return [key.value for key, _ in node.value] == list(data) and all(agrees(*pair) for pair in values)
    if isinstance(node, yaml.SequenceNode):
        return all(agrees(*pair) for pair in zip(node.value, data, strict=True))
    return isinstance(node, yaml.ScalarNode) and (not isinstance(data, str) or node.value == data)


@given(mappings(TEXT, st.none() | st.booleans() | NUMBERS | TEXT))
def test_json_is_read_as_json_reads_it(data):
    document = read(json.dumps(data))
    assert document is not None
    assert same(document.data, data)


@given(mappings(TEXT, st.none() | st.booleans() | NUMBERS | TEXT), st.sampled_from([None, 0, 3]))
def test_the_place_of_a_value_is_where_its_json_begins(data, indent):
    text = json.dumps(data, indent=indent)
    document = read_document(text)
    for path in paths(data):
        value: Any = data
        for part in path:
            value = value[part]
        assert same(json_at(document, document.problem("here", path)), value)
        if path and isinstance(path[-1], str):
            assert json_at(document, document.problem("here", path, at_key=True)) == path[-1]


def json_at(document: Document, problem: Problem) -> Any:
    rest = "\n".join(
        [document.lines[problem.line - 1][problem.column - 1 :], *document.lines[problem.line :]]
    )
    return json.JSONDecoder().raw_decode(rest)[0]


@given(mappings(ANY_TEXT, ANY_TEXT), st.booleans(), st.integers(2, 9))
def test_quoted_text_that_pyyaml_writes_is_read_back(data, flow, indent):
    text = yaml.safe_dump(data, default_style='"', default_flow_style=flow, indent=indent, sort_keys=False)
    document = read(text)
    assert document is not None
    assert same(document.data, data)


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_back(whole, fraction):
    assert read_document(f"[{whole}, {fraction!r}]").data == [whole, fraction]


@given(st.text(max_size=30), st.lists(st.text(max_size=30), max_size=20))
def test_the_nearest_name_is_one_of_the_names(wrong, right):
    near = nearest(wrong, right)
    assert near is None or near in right
    assert isinstance(did_you_mean(wrong, right), str)
    if wrong and wrong in right:
        assert near is not None

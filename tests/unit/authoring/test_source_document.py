"""Documents: what is read, what is refused, and where it says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dagmaster.authoring.source_document import (
    MAX_BYTES,
    document_from_data,
    format_path,
    read_document,
    read_file,
)
from dagmaster.authoring.yaml import reader
from dagmaster.errors import Problem, WorkflowInvalid
from dagmaster.errors.suggestions import did_you_mean, nearest


def problems_of(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(WorkflowInvalid) as caught:
        read_document(text, "flow.yaml")
    return caught.value.problems


def the_problem_of(text: str | bytes) -> Problem:
    (problem,) = problems_of(text)
    return problem


# Scalars


@pytest.mark.parametrize(
    "word", ["no", "on", "Yes", "y", "12:30:00", "2026-01-01", "1_000", "0b1", "1.2.3", "-", "nUll"]
)
def test_a_word_that_only_yaml_1_1_reads_otherwise_is_text(word):
    assert read_document(f"[{word} ]" if word != "-" else "['-']").data == [word]


@pytest.mark.parametrize(
    "word", ["+", ".", "1e", "0x", "0o8", "e5", "+0x1", "--1", "1 2", "1\u0661", "\u0661"]
)
def test_a_word_that_is_almost_a_number_is_text(word):
    assert read_document(f"a: {word}").data == {"a": word}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("False", False),
        ("FALSE", False),
        ("0", 0),
        ("010", 10),
        ("+7", 7),
        ("-7", -7),
        ("0o17", 15),
        ("0x1F", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("-1e3", -1000.0),
        ("1.5E-2", 0.015),
        ("'1'", "1"),
        ('"true"', "true"),
        ("'~'", "~"),
        ("|\n  1", "1"),
    ],
)
def test_an_unquoted_word_has_the_value_of_the_core_schema(word, value):
    read = read_document(f"a: {word}").data["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "word", [".inf", "-.Inf", "+.INF", ".nan", ".NaN", "1e400", "-1e400", "9" * 309, "0x" + "f" * 400]
)
def test_a_number_that_json_cannot_say_is_refused(word):
    problem = the_problem_of(f"a: {word}")
    assert (problem.line, problem.column, problem.path) == (1, 4, "a")
    assert "number" in problem.message


def test_an_integer_of_308_digits_is_read():
    assert read_document("a: " + "8" * 308).data == {"a": int("8" * 308)}


# Keys


@pytest.mark.parametrize("word", ["1", "true", "null", "~", "1.5", ".inf", "0x10"])
def test_a_key_that_is_not_text_is_refused_with_the_text_to_write(word):
    problem = the_problem_of(f"a: 1\n{word}: 2")
    assert problem.message == f"keys are text: write '{word}'"
    assert (problem.line, problem.column) == (2, 1)


def test_a_quoted_key_is_text():
    assert read_document("'1': a\n\"true\": b\nno: c\n'<<': d").data == {
        "1": "a",
        "true": "b",
        "no": "c",
        "<<": "d",
    }


def test_a_key_that_is_missing_is_refused():
    assert the_problem_of("?\n: 1").message == "a key is missing before ':'"


def test_a_key_that_is_a_list_or_a_mapping_is_refused_and_the_rest_is_read():
    first, second, third = problems_of("? [a, {b: [c]}]\n: 1\n? {d: 1}\n: 2\nx: .nan")
    assert first.message == "keys are text, not a list"
    assert second.message == "keys are text, not a mapping"
    assert third.path == "x"


def test_a_duplicate_key_says_where_the_first_one_stands():
    first, second = problems_of("nodes:\n  a: 1\n  b: 2\n  a: 3\n  a: 4\n")
    assert first.message == "duplicate key 'a': first at line 2, column 3"
    assert (first.line, first.column, first.path, first.text) == (4, 3, "nodes.a", "a: 3")
    assert second.message == "duplicate key 'a': first at line 2, column 3"


def test_keys_that_differ_in_quotes_only_are_duplicates():
    assert "duplicate key" in the_problem_of("a: 1\n'a': 2").message


# What YAML has beyond JSON


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("a: &x 1", "anchors are not accepted: &x", (1, 4, "a")),
        ("a:\n  - &x\n    b: 1", "anchors are not accepted: &x", (2, 5, "a[0]")),
        ("&x a: 1", "anchors are not accepted: &x", (1, 1, "")),
        ("a: [1, *x]", "aliases are not accepted: *x", (1, 8, "a[1]")),
        ("*x : 1", "aliases are not accepted: *x", (1, 1, "")),
        ("a: {<<: {b: 1}}", "merge keys are not accepted: <<", (1, 5, 'a["<<"]')),
        ("a: !!str 1", "tags are not accepted: tag:yaml.org,2002:str", (1, 4, "a")),
        ("a: ! b", "tags are not accepted: !", (1, 4, "a")),
        ("a: ! 'b'", "tags are not accepted: !", (1, 4, "a")),
        ("a: !\n", "tags are not accepted: !", (1, 4, "a")),
        ("a: !<x> [b]", "tags are not accepted: x", (1, 4, "a")),
        (
            "a:\n- !!python/object:os.system {}",
            "tags are not accepted: tag:yaml.org,2002:python/object:os.system",
            (2, 3, "a[0]"),
        ),
        ("%YAML 1.2\n---\na: 1", "directives are not accepted", (1, 1, "")),
        ("# c\r%TAG ! x\r---\ra: 1", "directives are not accepted", (2, 1, "")),
        ("a: 1\n---\nb: 2", "more than one document", (2, 1, "")),
        ("a: 1\n...\n# c\n---\n", "more than one document", (4, 1, "")),
        ("--- 'a'\n%TAG ! x\n---\n", "more than one document", (2, 1, "")),
    ],
)
def test_it_is_refused_where_it_stands(text, message, place):
    problem = the_problem_of(text)
    assert problem.message == message
    assert (problem.line, problem.column, problem.path) == place
    assert problem.hint
    assert problem.file == "flow.yaml"


def test_all_problems_are_found_in_one_pass():
    text = "%YAML 1.2\n---\na: &x 1\nb: *x\n<<: c\nd: !!int 2\na: 3\n4: .nan\nnodes: [1, {e: .inf}]\nz: [\n"
    assert [(problem.line, problem.path) for problem in problems_of(text)] == [
        (1, ""),
        (3, "a"),
        (4, "b"),
        (5, '["<<"]'),
        (6, "d"),
        (7, "a"),
        (8, "4"),
        (8, "4"),
        (9, "nodes[1].e"),
        (10, "z"),
    ]


def test_reading_stops_after_fifty_problems_and_says_so():
    problems = problems_of("".join(f"k{number}: *x\n" for number in range(1000)))
    assert len(problems) == 51
    assert "first 50 problems" in problems[-1].message


@pytest.mark.parametrize(
    "text",
    ["---\na: 1\n", "a: 1\n...\n", "a: 1\n...\n...\n# end\n", "\ufeffa: 1", b"\xef\xbb\xbfa: 1", "a: 1\r\n"],
)
def test_one_document_with_its_markers_is_read(text):
    assert read_document(text).data == {"a": 1}


@pytest.mark.parametrize(
    "text", ["", " \n", "# only this\n", "---\n", "--- # c\n...\n", "~", "null", b"", "\ufeff", "\n" * 70_000]
)
def test_an_empty_document_is_refused_with_what_to_write(text):
    problem = the_problem_of(text)
    assert problem.message == "the document is empty"
    assert "nodes:" in problem.hint
    assert problem.line == 1


# Characters


@pytest.mark.parametrize(
    "character",
    ["\0", "\x07", "\x1b", "\x0b", "\x7f", "\x85", "\x9f", "\u2028", "\ud800", "\ufffe", "\uffff"],
)
@pytest.mark.parametrize("text", ["a: 1\nb: {}", "a: 1\nb: '{}'", "a: 1\nb: #{}"])
def test_a_control_character_is_refused_where_it_stands(character, text):
    problem = the_problem_of(text.format(character))
    assert problem.message == f"the character U+{ord(character):04X} is not accepted"
    assert problem.line == 2
    assert problem.column == text.index("{") - 4


def test_a_control_character_comes_with_the_way_to_write_it_if_there_is_one():
    assert the_problem_of("a: \x1b").hint == 'in double quotes it can be written "\\u001b"'
    assert the_problem_of("a: \0").hint == "remove it"
    assert the_problem_of("a: \ud800").hint == "remove it"


def test_every_control_character_is_named_in_one_pass():
    assert [problem.line for problem in problems_of("a: \x01\nb: 2\nc: \x02\n")] == [1, 3]


def test_an_escaped_character_is_read_but_nul():
    assert read_document('a: "\\x07\\u2028\\t"').data == {"a": "\x07\u2028\t"}
    assert the_problem_of('a:\n - "x\\0"').message == "text cannot have a NUL character"
    assert the_problem_of('"\\0": 1').message == "text cannot have a NUL character"


def test_half_a_character_in_an_escape_is_refused_with_what_to_write():
    assert "\\U" in the_problem_of('a: "\\ud83d\\ude00"').hint
    assert read_document('a: "\\U0001F600"').data == {"a": "\U0001f600"}


def test_text_that_is_not_utf_8_is_refused_where_it_stands():
    problem = the_problem_of("a: ä\nb: ö".encode() + b"\xff!\nc: 1")
    assert problem.message == "the text is not UTF-8: byte 0xff"
    assert (problem.line, problem.column) == (2, 5)
    assert problem.text.startswith("b: ö")
    assert "UTF-8" in problem.hint


def test_utf_16_is_not_utf_8():
    assert "not UTF-8" in the_problem_of("a: 1".encode("utf-16")).message


# Syntax


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a:\n\tb: 1", "indent with spaces"),
        ("a:\n  b: 1\n\tc: 2", "indent with spaces"),
        ("\tx: 1", "indent with spaces"),
        ("x: a: b # c", "a value with ': ' in it needs quotes: x: \"a: b\""),
        ('- x: say "a": b', "needs quotes: - x: 'say \"a\": b'"),
        ("a: 1\n  b: 2", "check the indentation of this one"),
        ("a: @b", "a value that begins with '@' needs quotes"),
        ("a: %b", "a value that begins with '%' needs quotes"),
        ("a: - b", "on the line below its key"),
        ("- a\nb: c", "not a part of the list above"),
        ('a: "b" c\n', "check the indentation"),
        ("a: [1, 2\nb: 3", "']' is missing"),
        ("a: {b: 1\n", "'}' is missing"),
        ("a: 'b\nc: d\n", "closing quote"),
        ('a: "\\d"', "single quotes"),
        ("a: 1\nb\n", "key: value"),
        ("a: !x!y 1", "tags are not accepted"),
        ('"a":1', "the document ends above"),
    ],
)
def test_a_syntax_error_says_what_to_do(text, hint):
    problem = problems_of(text)[-1]
    assert problem.message.startswith("not valid YAML: ")
    assert hint in problem.hint
    assert "None" not in problem.message
    assert problem.line >= 1
    assert problem.column >= 1
    assert problem.text


def test_a_syntax_error_keeps_the_words_of_libyaml_and_says_where_its_context_begins():
    problem = the_problem_of("nodes:\n  a: [1, 2\n\n\n")
    assert problem.message == (
        "not valid YAML: did not find expected ',' or ']' while parsing a flow sequence that begins at line 2, column 6"
    )
    # Not line 5, where libyaml noticed it: nothing is there to see.
    assert (problem.line, problem.column, problem.text, problem.path) == (2, 11, "a: [1, 2", "nodes.a")


@pytest.mark.parametrize(
    ("text", "place", "written"),
    [
        ("x: {{ inputs.a }}", (1, 4), '"{{ inputs.a }}"'),
        ("x: {{inputs.a}}  # why", (1, 4), '"{{inputs.a}}"'),
        ("x: {{ a }}-{{ b }} # c", (1, 4), '"{{ a }}-{{ b }}"'),
        ("x: {{ a | default('b') }}", (1, 4), "\"{{ a | default('b') }}\""),
        ('x: {{ a["b"] }}', (1, 4), "'{{ a[\"b\"] }}'"),
        ("x: {{ a[0] }}", (1, 4), '"{{ a[0] }}"'),
        ("x: {{ @a }}", None, '"{{ @a }}"'),
        ("x: {{ 1 + 2 }}", (1, 4), '"{{ 1 + 2 }}"'),
        ("x: [{{ a }}, {{ b }}]", (1, 5), '"{{ a }}"'),
        ("{{ a }}: 1", (1, 1), '"{{ a }}"'),
        ("x: {{ a\n  }}", (1, 4), '"{{ ... }}"'),
        ("n:\n  - {{ item }}", (2, 5), '"{{ item }}"'),
        ("x: {{ a, b: c }}", (1, 4), '"{{ a, b: c }}"'),
    ],
)
def test_an_expression_without_quotes_is_shown_with_quotes(text, place, written):
    problem = problems_of(text)[0]
    assert problem.hint == f"put the expression in quotes: {written}"
    assert place in (None, (problem.line, problem.column))


@pytest.mark.parametrize("text", ["x: {{ a }}", "x: {{ a }} and {{ b }}", "x: {{ a[0] }}", "x: {{ 1 }}"])
def test_an_expression_without_quotes_is_one_problem(text):
    assert the_problem_of(f"a: 1\n{text}\nb: 2").line == 2


def test_expressions_in_quotes_and_blocks_are_text():
    text = "a: \"{{ x }}\"\nb: '{{ x }}'\nc: |\n  {{ x }}\nd: say {{ x }}\n"
    assert read_document(text).data == {"a": "{{ x }}", "b": "{{ x }}", "c": "{{ x }}\n", "d": "say {{ x }}"}


def test_a_quoted_expression_is_not_blamed_for_another_mistake():
    assert "expression" not in the_problem_of('x: "{{ a }}" b').hint


# Places

FLOW = """\
name: flow
nodes:
  validate:
    handler: "check {{ inputs.a }}"
    params: {x: [1, 'two', {deep: true}]}
    empty:
  a b:
    script: |
      one

      three {{ bad }}
    folded: >
      x y
"""


@pytest.mark.parametrize(
    ("path", "at_key", "place", "spelled"),
    [
        ((), False, (1, 1), ""),
        (("name",), False, (1, 7), "name"),
        (("name",), True, (1, 1), "name"),
        (("nodes", "validate"), False, (4, 5), "nodes.validate"),
        (("nodes", "validate"), True, (3, 3), "nodes.validate"),
        (("nodes", "validate", "params", "x", 1), False, (5, 21), "nodes.validate.params.x[1]"),
        (("nodes", "validate", "params", "x", 1), True, (5, 21), "nodes.validate.params.x[1]"),
        (("nodes", "validate", "params", "x", 2, "deep"), True, (5, 29), "nodes.validate.params.x[2].deep"),
        (("nodes", "validate", "empty"), False, (6, 11), "nodes.validate.empty"),
        (("nodes", "a b", "script"), True, (8, 5), 'nodes["a b"].script'),
        (("nodes", "validate", "queue", "x"), False, (4, 5), "nodes.validate.queue.x"),
        (("nodes", "validate", "queue", "x"), True, (3, 3), "nodes.validate.queue.x"),
        (("nodes", "validate", "params", "x", 3), False, (5, 17), "nodes.validate.params.x[3]"),
        (("nodes", "validate", "params", "x", 9), False, (5, 17), "nodes.validate.params.x[9]"),
        (("nodes", "validate", "params", "x", -1), False, (5, 17), "nodes.validate.params.x[-1]"),
        (("name", "deeper", 0), False, (1, 7), "name.deeper[0]"),
        (("nodes", 0), False, (3, 3), "nodes[0]"),
    ],
)
def test_a_problem_stands_at_the_value_or_its_key_or_the_nearest_parent(path, at_key, place, spelled):
    problem = read_document(FLOW, "flow.yaml").problem("wrong", path, at_key=at_key)
    assert (problem.line, problem.column) == place
    assert problem.path == spelled
    assert problem.text == FLOW.splitlines()[place[0] - 1].strip()


def test_a_problem_has_what_it_was_given():
    problem = read_document(FLOW, "flow.yaml").problem("wrong", ("name",), hint="do", severity="warning")
    assert str(problem) == "flow.yaml:1:7: warning: wrong\n    at name\n    name: flow\n    do"


@pytest.mark.parametrize(
    ("path", "offset", "place"),
    [
        (("name",), 2, (1, 9)),
        (("name",), 99, (1, 7)),
        (("nodes", "validate", "handler"), 6, (4, 21)),
        (("nodes", "validate", "params", "x", 1), 1, (5, 23)),
        (("name",), 3, (1, 10)),
        (("nodes", "a b", "script"), 1, (9, 8)),
        (("nodes", "a b", "script"), 3, (9, 10)),
        (("nodes", "a b", "script"), 4, (10, 1)),
        (("nodes", "a b", "script"), 5, (11, 7)),
        (("nodes", "a b", "script"), 11, (11, 13)),
        (("nodes", "a b", "folded"), 2, (12, 13)),
        (("nodes", "missing"), 2, (3, 3)),
    ],
)
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_an_offset_moves_into_the_text_where_that_is_clear(path, offset, place, line_break):
    problem = read_document(FLOW.replace("\n", line_break)).problem("wrong", path, offset=offset)
    assert (problem.line, problem.column) == place


def test_an_offset_does_not_move_a_key():
    assert read_document(FLOW).problem("wrong", ("name",), offset=2, at_key=True).column == 1


@pytest.mark.slow
def test_lines_are_counted_over_more_text_than_is_split_at_once():
    document = read_document("".join(f"key_{number}: {number}\n" for number in range(20_000)))
    for number in (0, 19_999, 7, 12_345):
        assert document.problem("wrong", (f"key_{number}",)).line == number + 1
    assert len(document.lines) == 20_000


def test_of_a_long_line_the_part_around_the_place_is_shown():
    problem = the_problem_of("a: [" + "1, " * 1000 + "*here, " + "1, " * 1000 + "]")
    assert "*here" in problem.text
    assert len(problem.text) <= 120


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        ((), ""),
        (("nodes", "a b", 0), 'nodes["a b"][0]'),
        (("a-b", "c_1"), "a-b.c_1"),
        ((0, "x"), "[0].x"),
        (("", "é"), '[""]["é"]'),
        (('a"b\\', "a.b"), '["a\\"b\\\\"]["a.b"]'),
    ],
)
def test_a_path_is_spelled_as_people_write_it(path, spelled):
    assert format_path(path) == spelled


# Size, depth, bombs


@pytest.mark.parametrize(
    "deepen", [lambda depth: "[" * depth + "]" * depth, lambda depth: "- " * depth + "a"]
)
def test_64_levels_are_read_and_65_are_refused(deepen):
    read_document(deepen(64))
    problem = the_problem_of(deepen(65))
    assert "more than 64 levels deep" in problem.message
    assert problem.column in (65, 129)


ALIAS_BOMB = "a: &a [x]\n" + "".join(
    f"{b}: &{b} [{f'*{a},' * 9}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(f"a{n + 1}: &a{n + 1} {{<<: [*a{n}, *a{n}]}}\n" for n in range(15))


@pytest.mark.parametrize(
    "bomb",
    [
        ALIAS_BOMB,
        MERGE_BOMB,
        "[" * 100_000,
        "{" * 100_000,
        "{? " * 30_000,
        "- " * 100_000,
        "[" * MAX_BYTES,
        "[\n" * (MAX_BYTES // 2),
        "".join(f"%TAG !{number}! x\n" for number in range(100_000)) + "--- a",
        "a: 1\n" + "".join(f"%TAG !{number}! x\n" for number in range(100_000)) + "--- a",
        "\ufeff\ufeff\n" + "".join(f"%TAG !{number}! x\n" for number in range(100_000)) + "--- a",
        "\r".join(f"%TAG !{number}! x" for number in range(100_000)) + "\r--- a",
        "a: 1\n" * 1_000_000,
        "---\n" * 1_000_000,
        "a: " + "9" * 1_000_000,
        "a: 1." + "9" * 1_000_000,
    ],
    ids=range(16),
)
def test_a_bomb_is_refused_after_a_few_events(bomb, monkeypatch):
    events = 0
    libyaml = vars(reader)["CParser"]

    class Counting:
        def __init__(self, text):
            self._parser = libyaml(text)

        def get_event(self):
            nonlocal events
            events += 1
            return self._parser.get_event()

    monkeypatch.setattr(reader, "CParser", Counting)
    problems_of(bomb)
    assert events < 500


@pytest.mark.parametrize("text", ["a" * (MAX_BYTES + 1), b"a" * (MAX_BYTES + 1), "ä" * (MAX_BYTES // 2 + 1)])
def test_a_text_past_8_mib_is_refused_unread(text):
    assert read_document(b"a: 1 #".ljust(MAX_BYTES, b"-")).data == {"a": 1}
    assert the_problem_of(text).message == "the text is larger than 8 MiB"


def test_a_large_file_is_read_with_every_place():
    node = '  node_{0}:\n    type: task\n    handler: echo\n    params:\n      message: "hi {0}"\n    next: [node_0]\n'
    text = "name: large\nnodes:\n" + "".join(node.format(number) for number in range(10_000))
    document = read_document(text)
    assert len(document.data["nodes"]) == 10_000
    assert document.problem("wrong", ("nodes", "node_9999", "params", "message")).line == 2 + 6 * 9_999 + 5


# Files


def test_a_file_is_read_with_its_name(tmp_path):
    file = tmp_path / "flow.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: \xc3\xa4\r\n")
    document = read_file(file)
    assert document.data == {"a": "ä"}
    assert document.file == str(file)
    assert document.problem("wrong", ("a",)).file == str(file)


def refusal_of(path: Path) -> Problem:
    with pytest.raises(WorkflowInvalid) as caught:
        read_file(path)
    (problem,) = caught.value.problems
    assert problem.file == str(path)
    return problem


def test_what_is_not_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert refusal_of(tmp_path).message == "this is not a file"
    assert refusal_of(tmp_path / "pipe").message == "this is not a file"
    assert refusal_of(Path("/dev/zero")).message == "this is not a file"
    assert refusal_of(tmp_path / "none.yaml").message == "the file cannot be read: No such file or directory"
    assert "cannot be read" in refusal_of(tmp_path / "a\0b").message


def test_a_file_that_may_not_be_read_is_refused(tmp_path):
    file = tmp_path / "flow.yaml"
    file.write_text("a: 1")
    file.chmod(0)
    user = os.geteuid()
    if user == 0:  # root reads everything
        os.seteuid(65534)
    try:
        assert "Permission denied" in refusal_of(file).message
    finally:
        os.seteuid(user)


def test_a_large_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    file = tmp_path / "flow.yaml"
    with file.open("wb") as opened:
        opened.truncate(MAX_BYTES + 1)
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("it was read"))
    assert refusal_of(file).message == "the file is larger than 8 MiB: it has 8,388,609 bytes"


# Documents without a text


def test_a_definition_is_a_document_without_places():
    document = document_from_data({"nodes": {"a b": [1]}}, "stored")
    assert document.data == {"nodes": {"a b": [1]}}
    assert document.lines == []
    assert document.problem("wrong", ("nodes", "a b", 0), offset=3, hint="do") == Problem(
        message="wrong", file="stored", path='nodes["a b"][0]', hint="do"
    )


def nested(depth: int) -> object:
    data: object = 1
    for _ in range(depth):
        data = [data]
    return data


@pytest.mark.parametrize(
    ("data", "message", "path"),
    [
        ({"a": {1: 2}}, "keys are text: write '1'", "a"),
        ({None: 2}, "keys are text: write 'None'", ""),
        ({"a": [1, float("nan")]}, "nan is not a valid JSON number", "a[1]"),
        ({"a": float("-inf")}, "-inf is not a valid JSON number", "a"),
        ({"a": 10**400}, "the number is too large", "a"),
        ({"a": (1,)}, "a value of type tuple is not JSON", "a"),
        ({"a": {"b": b""}}, "a value of type bytes is not JSON", "a.b"),
        ({"a": "\0"}, "text cannot have a NUL character", "a"),
        ({"a": "\ud800"}, "the text has an unpaired surrogate", "a"),
        ({"\0": 1}, "text cannot have a NUL character", ""),
        (nested(65), "lists and mappings are nested more than 64 levels deep", "[0]" * 64),
    ],
)
def test_a_definition_that_is_not_json_is_refused(data, message, path):
    with pytest.raises(WorkflowInvalid) as caught:
        document_from_data(data, "stored")
    (problem,) = caught.value.problems
    assert (problem.message, problem.path, problem.file, problem.line) == (message, path, "stored", 0)


def test_a_definition_of_64_levels_is_accepted():
    assert document_from_data(nested(64)).data == nested(64)


def test_a_definition_that_holds_itself_is_refused():
    data: list[object] = []
    data.append(data)
    with pytest.raises(WorkflowInvalid, match="more than 64 levels deep"):
        document_from_data(data)


def test_a_definition_that_shares_its_parts_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("dagmaster.authoring.source_document.MAX_VALUES", 1_000)
    data: list[object] = []
    for _ in range(30):
        data = [data, data]
    with pytest.raises(WorkflowInvalid, match="more than 1,000 values"):
        document_from_data(data)


def test_a_definition_has_at_most_fifty_problems():
    with pytest.raises(WorkflowInvalid) as caught:
        document_from_data([b""] * 1000)
    assert len(caught.value.problems) == 50


def test_all_problems_of_a_definition_are_found_in_order():
    with pytest.raises(WorkflowInvalid) as caught:
        document_from_data({"a": [b"", {2: 3}], "b": {"c": set()}})
    assert [problem.path for problem in caught.value.problems] == ["a[0]", "a[1]", "b.c"]


# Names


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("qeueu", "queue"),
        ("Queue", "queue"),
        ("dependson", "depends_on"),
        ("depends-on", "depends_on"),
        ("DEPENDS ON", "depends_on"),
        ("handlr", "handler"),
        ("timeout", "timeout_seconds"),
        ("desc", "description"),
        ("retry_policy_name", "retry"),
        ("de", None),
        ("zzz", None),
        ("", None),
        ("x" * 1_000_000, None),
    ],
)
def test_the_nearest_name_is_the_one_that_was_meant(wrong, right):
    names = ["queue", "depends_on", "handler", "timeout_seconds", "description", "retry", "params"]
    assert nearest(wrong, names) == right
    assert nearest(wrong, iter(names)) == right


def test_an_abbreviation_of_two_names_is_near_neither():
    assert nearest("max", ["max_parallel_items", "max_attempts_per_node"]) is None


def test_an_exact_name_in_another_case_wins_over_a_close_one():
    assert nearest("nodeS", ["node", "nodes"]) == "nodes"


def test_a_hint_names_the_near_one_or_the_few_there_are():
    assert did_you_mean("qeue", ["params", "queue"]) == "did you mean 'queue'?"
    assert did_you_mean("zzz", {"b", "a", "c"}) == "one of: a, b, c"
    assert did_you_mean("zzz", (f"name_{number}" for number in range(13))) == ""
    assert did_you_mean("zzz", (f"name_{number}" for number in range(12))).startswith(
        "one of: name_0, name_1, name_10"
    )
    assert did_you_mean("zzz", []) == ""

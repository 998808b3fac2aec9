# ruff: noqa: RUF001 - the letters that look like others are what is tested
"""Patterns of users: what they mean, what is refused by name, and that no text takes more than linear work."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.patterns import (
    MAX_PATTERN_CHARACTERS,
    MAX_PATTERN_TEXT,
    MAX_PROGRAM,
    MAX_WORK,
    PatternRefused,
    compile_pattern,
)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"^a\/b$", "a/b", "a\\/b"),
        (r"^\u00e9\x41$", "éA", "eA"),
        (r"^\ud83d\ude00$", "😀", "x"),
        (r"^\u{1F600}$", "😀", "u"),
        (r"^\U0001F600$", "😀", "U"),
        (r"^\cJ$", "\n", "J"),
        (r"^[\b]$", "\b", "b"),
        (r"^\0$", "\0", "0"),
        (r"^\_\é\-$", "_é-", "_e-"),
        (r"^(?<year>\d{4})$", "2026", "202"),
        (r"^(?P<year>\d{4})\Z", "2026", "2026\n"),
        (r"^(?i:abc)$", "ABC", "ABD"),
        (r"(?i)^ſ$", "s", "f"),
        (r"^\d\w\s$", "1a\t", "١a\t"),
        (r"^\p{L}+$", "für", "f1r"),
        (r"^a.c$", "a😀c", "a\nc"),
        (r"a$", "ba", "a\n"),
        (r"(?m)^b$", "a\nb\nc", "ab"),
        (r"^[\]a]$", "]", "b"),
        (r"^[^\/]+$", "ab", "a/b"),
        (r"^a{2,3}?$", "aaa", "a"),
        (r"\bcat\b", "a cat!", "concat"),
        ("^x{$", "x{", "x"),
        ("", "", None),
    ],
)
def test_a_pattern_means_what_the_reference_says(pattern: str, matching: str, other: str | None) -> None:
    compiled = compile_pattern(pattern)
    assert compiled.search(matching)
    assert other is None or not compiled.search(other)


REFUSED = [
    ("(?=a)", "look-ahead (?=…) at character 1", "describe the whole text"),
    ("a(?!b)", "negative look-ahead (?!…) at character 2", "describe the whole text"),
    ("(?<=a)b", "look-behind (?<=…) at character 1", "describe the whole text"),
    ("(?<!a)b", "negative look-behind (?<!…)", "describe the whole text"),
    (r"(a)\1", r"a back reference \1 at character 4", "write the alternatives out"),
    (r"(?<n>a)\k<n>", r"a back reference \k<…>", "write the alternatives out"),
    ("(?P<n>a)(?P=n)", "a back reference (?P=…)", "write the alternatives out"),
    ("(?>a+)b", "an atomic group (?>…)", "write (?:…)"),
    ("a++b", "a possessive repetition ++", "write +"),
    ("a{2,3}+b", "a possessive repetition {2,3}+", "write {2,3}"),
    ("(a)?(?(1)b|c)", "a conditional group (?(…)…)", "write both alternatives"),
    ("(?#note)a", "a comment (?#…)", "into the description"),
    ("(?x) a", "the group (?x)", "flags are i, m and s"),
    ("a{,3}", "the repetition {,3}", "write {0,3}"),
    ("[]", "an empty set [] or [^]", r"write [\]…]"),
    ("[^]", "an empty set [] or [^]", r"[\s\S]"),
    ("[[:alpha:]]", "a POSIX class [:…:]", "write its characters"),
    ("[a-z&&[^b]]", "an operation on sets, &&", "write the characters"),
    (r"[\1]", r"the octal number \1", r"write the code as \x41"),
    (r"\012", r"the octal number \012", r"write the code as \x41"),
    (r"\ud83d", r"\ud83d, which is no character,", "write the code of a character"),
    (r"\u{110000}", r"\u{110000}, which is no character,", "write the code of a character"),
    (r"\Qa\E", r"the escape \Q", "write the character itself"),
    (r"\C", r"the escape \C", "write the character itself"),
    (r"\h", r"the escape \h", "write the character itself"),
    ("\\", "the escape \\ at character 1", "write the character itself"),
    ("x{1001}", "a repetition has more than 1,000 rounds", "write + or *"),
    ("(x{100}){100}", "a repetition has more than 1,000 rounds", "write + or *"),
    (r"\p{L}{50}", "the pattern compiles to more than 4,000 instructions", "limit the length with maxLength"),
    ("a" * 1025, "the pattern has 1,025 characters: at most 1,024", ""),
    ("(", "the pattern is not a regular expression: missing ): (", ""),
    ("[a", "the pattern is not a regular expression: a set [ is not closed by ]", ""),
    (r"\p{Letter}", "the pattern is not a regular expression: invalid character class range", ""),
]


@pytest.mark.parametrize(("pattern", "name", "hint"), REFUSED)
def test_what_cannot_be_matched_in_linear_time_is_refused_by_name(
    pattern: str, name: str, hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PatternRefused) as caught:
        compile_pattern(pattern)
    assert str(caught.value.args[0]).startswith(name)
    assert hint in caught.value.hint
    assert not any(capfd.readouterr()), "the library writes errors to stderr, unless it is told not to"


# The shapes of published attacks: nested quantifiers, overlapping alternatives, ambiguous concatenation, folded case,
# counts that multiply, classes of Unicode.
SHAPES = [
    "^(a+)+$", "^(a*)*b", "^(a|a)*$", "^(a|aa)+$", "^(a|b|ab)*c", r"^(\w+\s?)*$", "^(?:a?){500}a{500}$", "(x+x+)+y",
    r"^(([a-z])+.)+[A-Z]([a-z])+$", "(.*.*.*.*.*)*=", r"^\s+|\s+$", ".*a.*a.*a.*a.*b", r"(\d+)*\D", "(?i)^(?:ſ+s)+c",
    "(?i)^(?:ı|i)+$", "(?i)^(?:å|Å|Å)*x", "(?i)(?:ς|σ|Σ)+b", "(?i)(µ|μ)+c", "(?:aa|a){400}b", r"^(?:\w.{90}){5}x",
    "((((a{1,10}){1,10}){1,10}))b", r"(\p{L}|\p{Ll}|\w)+!", r"([\s\S]*?)*?z", "(a?){500}", r"(.{1,20}){1,20}!",
    r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
]  # fmt: skip
PUMPS = ["a", "s", "ſ", "x", "i", "ı", "aA", " ", "1", "σ", "µ", "a b", "é", "😀", ".", "@a.", "\n"]


@pytest.mark.parametrize("pattern", SHAPES)
def test_the_work_of_a_match_is_bounded_by_the_length_of_the_text(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    assert compiled.size <= MAX_PROGRAM
    for pump in PUMPS:
        text = pump * (compiled.longest_text // len(pump.encode())) + "!"
        text = text[: -1 - max(0, len(text.encode()) - compiled.longest_text)] + "!"
        assert compiled.fits(text)
        assert compiled.work(text) <= MAX_WORK
        compiled.search(text)


def test_a_text_that_is_too_long_is_not_matched() -> None:
    assert compile_pattern("^a+$").search("a" * MAX_PATTERN_TEXT)
    assert not compile_pattern("^a+$").search("a" * (MAX_PATTERN_TEXT + 1))
    heavy = compile_pattern("^(?:a?){1000}$")
    assert heavy.longest_text < MAX_PATTERN_TEXT
    assert not heavy.search("é" * (heavy.longest_text // 2 + 1))


def test_half_of_a_surrogate_pair_is_one_character() -> None:
    assert compile_pattern("^.$").search("\ud800")
    assert not compile_pattern(r"[\w\s]").search("\ud800")
    assert not compile_pattern("\ud800").search("x")


@given(st.text(st.sampled_from("ab|()*+?.[]^$\\-{}1,2d:<>P="), max_size=20))
def test_every_text_is_a_pattern_or_refused(source: str) -> None:
    with suppress(PatternRefused):
        compile_pattern(source).search("abab12")


ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "(a|b)", "(?:ab)"]


@given(
    st.lists(
        st.tuples(st.sampled_from(ATOMS), st.sampled_from(["", "*", "+", "?", "{1,2}", "*?"])), max_size=4
    )
)
def test_simple_patterns_match_the_texts_that_they_match_in_python(parts: list[tuple[str, str]]) -> None:
    source = "^" + "".join(map("".join, parts)) + "$"
    for text in (
        "",
        "a",
        "b",
        "ab",
        "1",
        "_",
        "ab1",
        *map("".join, product("ab", repeat=3)),
    ):
        assert compile_pattern(source).search(text) == (re.search(source, text) is not None)


def test_the_length_of_a_pattern_is_bounded_also_where_it_is_short_to_run() -> None:
    assert compile_pattern("a" * MAX_PATTERN_CHARACTERS).search("a" * MAX_PATTERN_CHARACTERS)

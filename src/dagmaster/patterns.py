"""Regular expressions that users write: matched in linear time, refused by name where that is not possible.

Python's `re` backtracks: a few characters of a pattern can take longer than the universe has. RE2 does not.
What it cannot express is refused with what to write instead, and the spellings of ECMAScript and Python that
it does not know are translated. A construct that means different things in the three is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

MAX_PATTERN_CHARACTERS: Final = 1_024
MAX_PATTERN_TEXT: Final = 10_000
"""Bytes of a text in UTF-8 that a pattern is matched against, at most."""
MAX_PROGRAM: Final = 4_000
"""Instructions of a compiled pattern: `\\p{L}` is 1,200 of them, a counted repetition multiplies."""
MAX_WORK: Final = 10_000_000
"""Instructions times bytes of one match: 40 ms where each byte meets each instruction (bench/patterns.py)."""
_MEMORY: Final = 1024 * 1024
_MAX_COUNT: Final = 1_000

_TOKEN: Final = re.compile(
    r"""(?P<escape>\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}
        |u\{[0-9A-Fa-f]{1,6}\}|U[0-9A-Fa-f]{8}|c[A-Za-z]|[0-9]+|.?))
    |(?P<possessive>(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\+)
    |(?P<open_count>\{,[0-9]+\})
    |(?P<group>\(\?(?:P?<[A-Za-z_]|<[=!]|P[=>]|[a-zA-Z-]*[:)]|.?))
    |(?P<set>\[\^?)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_KNOWN_ESCAPES: Final = frozenset("dDwWsSbBAzfnrtvaxpP")
_OTHER_SPELLINGS: Final = {("b", True): r"\x08", ("Z", False): r"\z"}
"""Escapes that RE2 spells in another way, in a set or outside: a backspace, and Python's end of the text."""
_FLAGS: Final = re.compile(r"\(\?[ims]*(?:-[ims]+)?[:)]")
_NAMED: Final = re.compile(r"\(\?P?<")

_LOOK_AROUND: Final = "describe the whole text instead, as ^[a-z]+$, or check the rest in a task"
_BACK_REFERENCE: Final = "write the alternatives out, as (?:'[^']*'|\"[^\"]*\")"
_REFUSED_GROUPS: Final = {
    "(?=": ("look-ahead (?=…)", _LOOK_AROUND),
    "(?!": ("negative look-ahead (?!…)", _LOOK_AROUND),
    "(?<=": ("look-behind (?<=…)", _LOOK_AROUND),
    "(?<!": ("negative look-behind (?<!…)", _LOOK_AROUND),
    "(?P=": ("a back reference (?P=…)", _BACK_REFERENCE),
    "(?P>": ("recursion (?P>…)", "write the nested levels out"),
    "(?>": ("an atomic group (?>…)", "write (?:…): nothing backtracks here"),
    "(?|": ("a branch reset (?|…)", "write (?:…)"),
    "(?(": ("a conditional group (?(…)…)", "write both alternatives, as (?:a…|b…)"),
    "(?#": ("a comment (?#…)", "write it into the description"),
}


class PatternRefused(ValueError):
    """A pattern that is not matched: what is wrong with it, and what to write instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        """Return the message with what to write instead."""
        return f"{self.args[0]}: {self.hint}" if self.hint else str(self.args[0])


@dataclass(frozen=True, slots=True)
class LinearPattern:
    """A compiled pattern. The time of a match grows with the length of the text, and with nothing else."""

    source: str
    size: int
    """Instructions of the program: the work of a match is at most this for each byte."""
    _compiled: Any

    @property
    def longest_text(self) -> int:
        """Return how many bytes of UTF-8 a text has at most."""
        return min(MAX_PATTERN_TEXT, MAX_WORK // self.size)

    def work(self, text: str) -> int:
        """Return the work of a match at most, in instructions."""
        return len(_encode(text)) * self.size

    def fits(self, text: str) -> bool:
        """Return whether the text is short enough to be matched."""
        return len(_encode(text)) <= self.longest_text

    def search(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in the text; False for one that is too long."""
        encoded = _encode(text)
        return len(encoded) <= self.longest_text and self._compiled.search(encoded) is not None

    def fullmatch(self, text: str) -> dict[str, str] | None:
        """Return the named groups of a match of the whole text, in their order; None without a match."""
        encoded = _encode(text)
        match = self._compiled.fullmatch(encoded) if len(encoded) <= self.longest_text else None
        if match is None:
            return None
        values = ((name, match.group(index)) for name, index in self._named_groups())
        return {name: value.decode() for name, value in values if value is not None}

    @property
    def groups(self) -> frozenset[str]:
        """Return the names of its groups."""
        return frozenset(name for name, _ in self._named_groups())

    def _named_groups(self) -> list[tuple[str, int]]:
        """Return names and numbers in the order of the pattern: RE2 sorts the names."""
        numbers = sorted((number, name.decode()) for name, number in self._compiled.groupindex.items())
        return [(name, number) for number, name in numbers]


@lru_cache(maxsize=256)
def compile_pattern(source: str, *, ignore_case: bool = False) -> LinearPattern:
    """Compile a pattern; raise `PatternRefused`."""
    length = len(source)
    if length > MAX_PATTERN_CHARACTERS:
        raise PatternRefused(f"the pattern has {length:,} characters: at most {MAX_PATTERN_CHARACTERS:,}")
    # Here: its library is 3 MB of each orchestrator and worker (2026-11), and most never need it.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    options.case_sensitive = not ignore_case
    translated = _translate(source)
    try:
        compiled = re2.compile(_encode(translated), options)
    except re2.error as error:
        raise _refusal(error) from None
    if compiled.programsize > MAX_PROGRAM:
        raise _too_large()
    return LinearPattern(source, max(1, compiled.programsize), compiled)


def _encode(text: str) -> bytes:
    # JSON may have half of a surrogate pair.
    return text.encode("utf-8", "surrogatepass")


def _refusal(error: Exception) -> PatternRefused:
    words = error.args[0].decode("utf-8", "replace") if error.args else ""
    if words.startswith("invalid repetition size"):
        return PatternRefused(
            f"a repetition has more than {_MAX_COUNT:,} rounds, multiplied along nested ones",
            "write + or *, and limit the length with maxLength",
        )
    if words.startswith("pattern too large"):
        return _too_large()
    return PatternRefused(f"the pattern is not a regular expression: {words}")


def _too_large() -> PatternRefused:
    return PatternRefused(
        f"the pattern compiles to more than {MAX_PROGRAM:,} instructions",
        "write + or * instead of a count, limit the length with maxLength, and use few \\p{…}",
    )


# ── Spellings ───────────────────────────────────────────────────────────────────────────────────────────────


def _translate(source: str) -> str:
    """Return a pattern in the syntax of RE2; raise `PatternRefused` by the name of what it cannot say."""
    pieces: list[str] = []
    at = 0
    while (token := _TOKEN.match(source, at)) is not None:
        kind, text = str(token.lastgroup), token[0]
        at = token.end()
        if kind == "escape":
            pieces.append(_escape(text, token.start()))
        elif kind == "set":
            piece, at = _set(source, at)
            pieces.append(text + piece)
        else:
            if kind != "other":
                _check(kind, text, source, token.start())
            pieces.append(text)
    return "".join(pieces)


def _set(source: str, at: int) -> tuple[str, int]:
    """Return what follows `[` or `[^` up to the bracket that closes it, and where that ends."""
    if source[at : at + 1] == "]":
        raise _refused("an empty set [] or [^]", at, r"write [\]…] if it contains the bracket, or [\s\S]")
    pieces: list[str] = []
    while (token := _TOKEN.match(source, at)) is not None:
        if token.lastgroup == "escape":
            pieces.append(_escape(token[0], at, in_set=True))
            at = token.end()
            continue
        letter = source[at]
        if source[at : at + 2] in ("[:", "[.", "[="):
            raise _refused("a POSIX class [:…:]", at, "write its characters, as A-Za-z, or \\p{L}")
        if source[at : at + 2] in ("&&", "~~"):
            raise _refused(f"an operation on sets, {source[at : at + 2]}", at, "write the characters")
        pieces.append(letter)
        at += 1
        if letter == "]":
            return "".join(pieces), at
    raise PatternRefused("the pattern is not a regular expression: a set [ is not closed by ]")


def _escape(text: str, at: int, *, in_set: bool = False) -> str:
    name = text[1:2]
    if name in ("u", "U") and len(text) > len(r"\u"):
        return _code_point(text, at)
    if name == "c" and len(text) > len(r"\c"):
        return f"\\x{{{ord(text[2]) & 0x1F:X}}}"
    if name.isdigit():
        return _number(text, at, in_set=in_set)
    if (name, in_set) in _OTHER_SPELLINGS:
        return _OTHER_SPELLINGS[name, in_set]
    if name == "k":
        raise _refused(r"a back reference \k<…>", at, _BACK_REFERENCE)
    if not name.isascii():
        return name
    if name in _KNOWN_ESCAPES or (name and not name.isalpha()):
        return text
    raise _refused(f"the escape {text}", at, "write the character itself, or its code as \\x41 or \\u0041")


def _code_point(text: str, at: int) -> str:
    codes = [
        int(part, 16) for part in re.findall(r"[0-9A-Fa-f]+", text.replace("\\u", " ").replace("\\U", " "))
    ]
    code = codes[0] if len(codes) == 1 else 0x10000 + ((codes[0] & 0x3FF) << 10) + (codes[1] & 0x3FF)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:  # noqa: PLR2004 - the limits of Unicode
        raise _refused(f"{text}, which is no character,", at, "write the code of a character")
    return f"\\x{{{code:X}}}"


def _number(text: str, at: int, *, in_set: bool) -> str:
    if text == r"\0":
        return r"\x00"
    if in_set or text.startswith(r"\0"):
        raise _refused(f"the octal number {text}", at, "write the code as \\x41")
    raise _refused(f"a back reference {text}", at, _BACK_REFERENCE)


def _check(kind: str, text: str, source: str, at: int) -> None:
    """Raise `PatternRefused` for a group or a repetition that is no part of RE2's language."""
    if kind == "possessive":
        raise _refused(f"a possessive repetition {text}", at, f"write {text[:-1]}: nothing backtracks here")
    if kind == "open_count":
        raise _refused(
            f"the repetition {text}", at, f"write {{0{text[1:]}, or \\{text} if it is meant as text"
        )
    for start, (name, hint) in _REFUSED_GROUPS.items():
        if source.startswith(start, at):
            raise _refused(name, at, hint)
    if not _NAMED.match(text) and not _FLAGS.fullmatch(text):
        raise _refused(f"the group {text}", at, "flags are i, m and s, as (?i) or (?i:…)")


def _refused(name: str, at: int, hint: str) -> PatternRefused:
    return PatternRefused(f"{name} at character {at + 1} is not supported in a pattern", hint)

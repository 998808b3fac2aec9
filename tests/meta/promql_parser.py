"""A parser of the part of PromQL that the rules and the dashboard use, for machines without promtool."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"\s+|(?P<number>\d+(\.\d+)?(?![\w]))|(?P<duration>(\d+(ms|[smhdwy]))+)|(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)"
    r"|(?P<text>\"[^\"]*\"|'[^']*')|(?P<sign>==|!=|>=|<=|=~|!~|[-+*/%^(){}\[\],=<>])"
)
_LEVELS: Final = (("or",), ("and", "unless"), ("==", "!=", ">", "<", ">=", "<="), ("+", "-"), ("*", "/", "%"))
_AGGREGATIONS: Final = frozenset({"sum", "min", "max", "avg", "count"})
_FUNCTIONS: Final = {
    "absent": 1, "rate": 1, "increase": 1, "histogram_quantile": 2, "quantile_over_time": 2, "max_over_time": 1,
}  # fmt: skip
_OF_RANGES: Final = frozenset({"rate", "increase", "quantile_over_time", "max_over_time"})


def check_promql(expression: str) -> None:
    """Raise ValueError if an expression is not valid."""
    parser = _Parser(expression)
    if parser.expression(0):
        raise ValueError("an expression is not a range")
    if parser.tokens:
        raise ValueError(f"unexpected {parser.tokens[0]!r}")


class _Parser:
    """Each method consumes its part, and returns whether that is a range."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise ValueError(f"unexpected {text[place]!r}")
            place = match.end()
            if not match[0].isspace():
                self.tokens.append(match[0])

    def expression(self, level: int) -> bool:
        if level == len(_LEVELS):
            return self._operand()
        is_range = self.expression(level + 1)
        while self.tokens and self.tokens[0] in _LEVELS[level]:
            self._take(self.tokens[0])
            if self.expression(level + 1) or is_range:
                raise ValueError("an operator takes no range")
        return is_range

    def _operand(self) -> bool:
        first = self._next()
        if first == "(":
            is_range = self.expression(0)
            self._take(")")
        elif first in _AGGREGATIONS:
            self._labels()
            if self._arguments(1) != [False]:
                raise ValueError(f"{first} takes no range")
            self._labels()
            is_range = False
        elif first in _FUNCTIONS:
            if self._arguments(_FUNCTIONS[first])[-1] != (first in _OF_RANGES):
                raise ValueError(f"{first} takes {'a' if first in _OF_RANGES else 'no'} range")
            is_range = False
        elif re.fullmatch(r"\d+(\.\d+)?", first):
            return False
        else:
            is_range = self._selector(first)
        if self._is_next("offset"):
            self._duration()
        return is_range

    def _selector(self, name: str) -> bool:
        if not re.fullmatch(r"[A-Za-z_:][\w:]*", name) or self.tokens[:1] == ["("]:
            raise ValueError(f"{name!r} is neither a metric nor a known function")
        if self._is_next("{"):
            while not self._is_next("}"):
                label, sign, value = self._next(), self._next(), self._next()
                if not label.isidentifier() or sign not in ("=", "!=", "=~", "!~") or value[0] not in "\"'":
                    raise ValueError(f"{label} {sign} {value} is no matcher")
                self._is_next(",")
        if not self._is_next("["):
            return False
        self._duration()
        self._take("]")
        return True

    def _arguments(self, count: int) -> list[bool]:
        self._take("(")
        ranges = [self.expression(0)]
        while self._is_next(","):
            ranges.append(self.expression(0))
        self._take(")")
        if len(ranges) != count:
            raise ValueError(f"{len(ranges)} arguments instead of {count}")
        return ranges

    def _labels(self) -> None:
        if self._is_next("by") or self._is_next("without"):
            self._take("(")
            while not self._is_next(")"):
                if not self._next().isidentifier():
                    raise ValueError("a label is a name")
                self._is_next(",")

    def _duration(self) -> None:
        if not re.fullmatch(r"(\d+(ms|[smhdwy]))+", self._next()):
            raise ValueError("a duration is a number and a unit")

    def _is_next(self, token: str) -> bool:
        if self.tokens[:1] == [token]:
            del self.tokens[0]
            return True
        return False

    def _take(self, token: str) -> None:
        if not self._is_next(token):
            raise ValueError(f"{token!r} is missing")

    def _next(self) -> str:
        if not self.tokens:
            raise ValueError("the expression is not complete")
        return self.tokens.pop(0)

"""What every error has: a code, a category, a sentence; and the one table from category to answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Category(StrEnum):
    """What kind of error it is, for interfaces that treat all of a kind alike."""

    INVALID = "invalid"
    """The request is wrong; sent again unchanged it fails again."""
    NOT_FOUND = "not_found"
    """What the request names does not exist."""
    CONFLICT = "conflict"
    """The request does not fit the present state."""
    UNAUTHENTICATED = "unauthenticated"
    """The caller is not known."""
    FORBIDDEN = "forbidden"
    """The caller may not do this."""
    UNAVAILABLE = "unavailable"
    """A service that the request needs cannot be used now; sent again later it may succeed."""
    INTERNAL = "internal"
    """A mistake in dagmaster."""


class Outcome(NamedTuple):
    """How interfaces answer with an error of one category."""

    exit_code: int
    http_status: int


OUTCOMES: Final[Mapping[Category, Outcome]] = {
    Category.INVALID: Outcome(2, 400),
    Category.NOT_FOUND: Outcome(2, 404),
    Category.CONFLICT: Outcome(2, 409),
    Category.UNAUTHENTICATED: Outcome(2, 401),
    Category.FORBIDDEN: Outcome(2, 403),
    Category.UNAVAILABLE: Outcome(3, 503),
    # 70 is EX_SOFTWARE of sysexits: an internal error is never taken for a failed job (1) or bad input (2).
    Category.INTERNAL: Outcome(70, 500),
}
"""The one table from category to exit code and HTTP status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake in a file or in inputs, with its position."""

    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    path: str = ""
    text: str = ""
    hint: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        """Format the problem as compilers do: position, message, path, source line, hint."""
        position = ":".join(str(part) for part in (self.file, self.line or "", self.column or "") if part)
        head = f"{self.severity}: {self.message}"
        lines = [f"{position}: {head}" if position else head]
        lines += [f"    {line}" for line in (self.path and f"at {self.path}", self.text, self.hint) if line]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class DagmasterError(Exception):
    """An operation of dagmaster failed."""

    code: ClassVar[str] = "dagmaster_error"
    category: ClassVar[Category] = Category.INTERNAL
    http_status: ClassVar[int | None] = None
    """The status of an HTTP response, if it is not that of the category."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip())

    def to_dict(self) -> dict[str, Any]:
        """Return the error as `--json` prints it under `error`."""
        return {"code": self.code, "category": self.category.value, "message": str(self)}


class ProblemsError(DagmasterError):
    """Several problems, each with its position."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def to_dict(self) -> dict[str, Any]:
        count = len(self.problems)
        message = f"{(self.__doc__ or '').strip().rstrip('.')}: {count} problem{'s' if count != 1 else ''}"
        return {
            **super().to_dict(),
            "message": message,
            "problems": [problem.to_dict() for problem in self.problems],
        }

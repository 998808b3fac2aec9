"""Every exception of dagmaster. The docstring of a class is its message when none is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with what somebody wrote, and where."""

    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    path: str = ""
    text: str = ""
    hint: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        """Say it the way compilers do: place, what, where inside, what was written, what to do."""
        place = ":".join(str(part) for part in (self.file, self.line or "", self.column or "") if part)
        said = f"{place}: {self.severity}: {self.message}" if place else f"{self.severity}: {self.message}"
        if self.path:
            said += f"\n    at {self.path}"
        if self.text:
            said += f"\n    {self.text}"
        if self.hint:
            said += f"\n    {self.hint}"
        return said


class DagmasterError(Exception):
    """Something went wrong in dagmaster."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class WorkflowInvalid(DagmasterError):
    """The workflow has problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InputsInvalid(DagmasterError):
    """The inputs do not fit the workflow."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ExpressionInvalid(DagmasterError):
    """The expression cannot be compiled."""

    def __init__(self, message: str, *, offset: int = 0, hint: str = "", path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.offset = offset
        self.hint = hint
        self.path = path


class EvaluationFailed(DagmasterError):
    """The expression has no value."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class InvalidTransition(DagmasterError):
    """The transition table does not allow this step."""


class HandlerNotFound(DagmasterError):
    """No handler has this name."""


class HandlerInvalid(DagmasterError):
    """The handler cannot be registered."""


class PermanentError(DagmasterError):
    """Raised by a handler: trying again would not help."""

    def __init__(self, message: str = "", *, kind: str = "permanent", **details: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details


class SettingsInvalid(DagmasterError):
    """A setting does not fit."""


class EmbeddedPostgresUnavailable(DagmasterError):
    """The embedded PostgreSQL does not run."""


class DataDirectoryUnusable(EmbeddedPostgresUnavailable):
    """The data directory cannot hold the embedded PostgreSQL."""


class DatabaseUnavailable(DagmasterError):
    """The database cannot be reached."""


class SchemaVersionMismatch(DagmasterError):
    """The schema of the database does not fit this version of dagmaster."""


class OwnershipLost(DagmasterError):
    """Others may believe that this process is dead."""


class WorkflowNotFound(DagmasterError):
    """No workflow has this name, or not this version."""


class JobNotFound(DagmasterError):
    """No job has this id."""


class SubmissionRejected(DagmasterError):
    """The job was not accepted."""


class BlobNotFound(DagmasterError):
    """There is no such blob."""


class BlobNameInvalid(PermanentError):
    """The text names no blob that may be used."""

    def __init__(self, message: str = "", *, kind: str = "invalid_input", **details: Any) -> None:
        super().__init__(message, kind=kind, **details)


class BlobsUnavailable(DagmasterError):
    """The storage of blobs does not work."""


class CatalogUnavailable(DagmasterError):
    """The catalog does not answer."""


class TablesUnavailable(DagmasterError):
    """The place of tables does not answer."""


class ServicesNotFound(PermanentError):
    """The handler was called without the services that it asks for."""


class CommandRejected(DagmasterError):
    """What was asked of a job cannot be."""


class StatementFailed(DagmasterError):
    """The database refused a statement: a mistake in dagmaster, or a row that breaks a constraint."""

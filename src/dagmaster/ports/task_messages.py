"""The task message for a worker, and the outcomes that it returns.

The message is a public, versioned JSON document: other programs may write and read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from dagmaster.errors import PermanentError
from dagmaster.ports.handler_reports import Checkpoint
from dagmaster.ports.tasks import QueuedTask
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from dagmaster.ports.added_nodes import UnstoredNodes

VERSION = 1
"""Of the message. Keys may be added within a version: a reader ignores those it does not know."""


@dataclass(slots=True)
class TaskMessage(QueuedTask):
    """One attempt at a node, for a worker. `params` may contain secrets: they are not in the repr.

    The queue, to which tasks that it adds go, and the isolation are not part of the JSON: the worker knows
    them.
    """

    params: dict[str, Any] = field(default_factory=dict, repr=False)
    timeout_seconds: float | None = None
    attempt: int = 1
    checkpoint: Checkpoint | None = field(default=None, repr=False)
    dispatched_at: float | None = None
    """In seconds since the epoch; as RFC 3339 in the JSON."""
    trace_parent: str | None = None
    workflow: str = ""
    fencing_token: int = 1
    lease_token: int | None = None
    """Guards every report about this claim of the task. None: the message was not claimed, as in a test."""
    # The params are JSON and not shared: a handler may get them without a copy. Not part of the JSON.
    own_params: bool = False
    # The handler's code of the submitter, if it is recorded. Not part of the JSON: only Python can compare
    # it.
    code_fingerprint: str | None = None

    @property
    def retry_count(self) -> int:
        return self.attempt - 1

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "task_id": self.task_id,
            "job_id": self.job_id,
            "node_id": self.node_id,
            "handler": self.handler,
            "params": self.params,
            "timeout_seconds": self.timeout_seconds,
            "retry_count": self.retry_count,
            "attempt": self.attempt,
            "checkpoint": self.checkpoint and self.checkpoint.to_json(),
            "dispatched_at": None if self.dispatched_at is None else format_rfc3339(self.dispatched_at),
            "trace_parent": self.trace_parent,
            "workflow": self.workflow,
            # As text, like ids: they have more digits than the numbers of some JSON readers.
            "fencing_token": str(self.fencing_token),
            "lease_token": None if self.lease_token is None else str(self.lease_token),
        }

    @classmethod
    def from_json(cls, data: Any) -> TaskMessage:
        """Parse a message; raise PermanentError of kind `invalid_message` if it is invalid."""
        try:
            message = _Message.model_validate(data)
        except ValidationError as error:
            errors = [
                f"{'.'.join(map(str, one['loc'])) or 'message'}: {one['msg']}" for one in error.errors()[:20]
            ]
            raise PermanentError(
                f"the task message is invalid: {'; '.join(errors)}", kind="invalid_message"
            ) from None
        values = {name: getattr(message, name) for name in _Message.model_fields.keys() - _DERIVED}
        values["attempt"] = message.attempt or message.retry_count + 1
        values["checkpoint"] = message.checkpoint and Checkpoint.from_json(message.checkpoint.model_dump())
        values["dispatched_at"] = message.dispatched_at and message.dispatched_at.timestamp()
        return cls(**values)


@dataclass(slots=True)
class _Ended:
    """How long the handler ran: None if it never started, or while the executor has not set it."""

    running_seconds: float | None = field(default=None, kw_only=True, compare=False)


@dataclass(slots=True)
class Succeeded(_Ended):
    """The handler returned an output: JSON, not shared.

    Only a task of a Python graph returns other than a mapping.
    """

    output: Any
    metrics: dict[str, Any] = field(default_factory=dict)
    added: UnstoredNodes | None = None
    """Nodes that the handler added to its job."""


@dataclass(slots=True)
class Failed(_Ended):
    """The attempt failed.

    `error` is JSON with `kind`, `message` and details; `permanent`: a retry would not help.
    """

    error: dict[str, Any]
    permanent: bool = False


@dataclass(slots=True)
class Released(_Ended):
    """The attempt was not finished, and has not failed. It uses up no retry."""

    reason: str


Outcome = Succeeded | Failed | Released


def add_ending(outcome: Outcome | None, how: str, **details: Any) -> Outcome | None:
    """Return the failure of a handler that did not end by itself, with how it was ended."""
    if not isinstance(outcome, Failed):
        return outcome
    error = outcome.error
    return Failed({**error, "message": f"{error['message']}; {how}", **details}, outcome.permanent)


_DERIVED = {"version", "retry_count"}
# Ids are decimal strings in our JSON; numbers of other writers are accepted.
_Id = Annotated[
    str, BeforeValidator(lambda value: str(value) if type(value) is int else value), Field(min_length=1)
]


# Written as text, and read as a number or as text.
_DIGITS = WithJsonSchema({"type": "string", "pattern": "^[0-9]+$"})


class CheckpointModel(BaseModel):
    """A point from which an attempt can resume.

    `artifacts`: URIs that it relies on; `versions` of some of them.

    `earlier`: older ones, the newest first, for when an artifact is gone.
    """

    phase: str
    data: dict[str, Any] = {}
    artifacts: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    earlier: tuple[CheckpointModel, ...] = ()


def message_schema() -> dict[str, Any]:
    """Return the JSON Schema of the message, as it is written: every key is present."""
    schema = _Message.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "TaskMessage",
        "required": list(schema["properties"]),
    }


class _Message(BaseModel):
    """A task: one attempt at a node, for a worker.

    Keys may be added within a version: ignore those you do not know.
    """

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    version: Literal[1] = Field(default=1, description="Of this schema.")
    task_id: _Id = Field(description="Of this attempt: decimal digits.")
    job_id: _Id
    node_id: _Id
    handler: str = Field(min_length=1, description="The name of the handler to run.")
    params: dict[str, Any] = Field(default={}, description="Secrets are filled in.")
    timeout_seconds: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="How long the handler may run."
    )
    retry_count: int = Field(default=0, ge=0, description="`attempt` - 1.")
    # Older writers set retry_count only.
    attempt: int | None = Field(default=None, ge=1, description="1 is the first attempt at the node.")
    checkpoint: CheckpointModel | None = Field(default=None, description="Where an earlier attempt stopped.")
    dispatched_at: AwareDatetime | None = Field(default=None, description="When it was put into its queue.")
    trace_parent: str | None = Field(
        default=None, max_length=128, description="The W3C trace context of the submit, if it had one."
    )
    workflow: str = Field(default="", description="Id and version, for people.")
    fencing_token: Annotated[int, _DIGITS] = Field(
        default=1,
        ge=1,
        description="Greater for every later execution of the node, as decimal digits.",
        json_schema_extra={"default": "1"},
    )
    lease_token: Annotated[int, _DIGITS] | None = Field(
        default=None, description="Of this claim, as decimal digits: part of every report about the task."
    )

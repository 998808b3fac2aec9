"""What is set with the submit of a job, besides its workflow and inputs.

An option that submitters set is declared here once: HTTP bodies, clients, the command line, the page and the
check of a request read its declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from dagmaster.ports.tenants import DEFAULT_TENANT, MAX_TENANT
from dagmaster.records.requests import MAX_CALLBACK_URL

MAX_KEY: Final = 128
MAX_NAME: Final = 128
MAX_ACTOR: Final = 80 + MAX_TENANT + 1
"""The longest name of a caller with its tenant and namespace."""
MAX_SUBMITTER: Final = MAX_ACTOR
MAX_CORRELATION_ID: Final = 64
MAX_LABEL: Final = 64
MAX_PRIORITY: Final = 10


class Option(NamedTuple):
    """How an option is described and checked. `is_identity`: with an idempotency key it must not change."""

    description: str
    metavar: str = "TEXT"
    max_length: int | None = None
    min_length: int | None = None
    maximum: int | None = None
    """Of a number, whose minimum is 0."""
    is_identity: bool = True


def _option(default: Any, *arguments: Any, **declaration: Any) -> Any:
    return field(default=default, metadata={"option": Option(*arguments, **declaration)})


# Not frozen, nor what extends it: a `NewJob` is made in 0.4 µs instead of 1.7, twice for every job (2026-11).
@dataclass(slots=True, kw_only=True)
class JobOptions:
    """What is stored of a submit as it is. Fields without a declaration are not set by submitters."""

    name: str = _option("", "A name to find the job by. Default: the workflow's.", max_length=MAX_NAME)
    priority: int = _option(5, "10 is the most urgent.", maximum=MAX_PRIORITY)
    idempotency_key: str | None = _option(
        None,
        "A second submission with the same key returns the first job instead of a new one.",
        "KEY",
        max_length=MAX_KEY,
        min_length=1,
        is_identity=False,
    )
    correlation_id: str | None = _option(
        None, "Your own id, stored with the job, to find it by.", "ID", max_length=MAX_CORRELATION_ID
    )
    submitter_label: str | None = _option(
        None,
        "Who asked for the job, as a label next to the name of the caller, which stays the submitter.",
        "NAME",
        max_length=MAX_LABEL,
        min_length=1,
    )
    callback_url: str | None = _option(
        None,
        "Where to send what becomes of the job, signed: an https address. See `dagmaster callbacks`.",
        "URL",
        max_length=MAX_CALLBACK_URL,
        min_length=1,
    )
    submitted_by: str = ""
    tenant: str = DEFAULT_TENANT
    queue: str | None = None
    """A queue that only one process serves, for all tasks of the job: see `ports.run_queues`."""
    trace_parent: str | None = None
    """The W3C trace context of the submit, which the tasks of the job continue. One that is not valid is
    dropped."""
    is_hidden: bool = False
    """Whether lists and counts leave the job out, as one that tests a handler."""
    resumed_from: str | None = None
    """The job whose results are reused where they match."""
    redo: tuple[str, ...] = ()
    """Nodes whose results, and whose dependents' results, are not reused."""


OPTION_NAMES: Final = tuple(one.name for one in fields(JobOptions))
SUBMITTER_OPTIONS: Final[dict[str, Option]] = {
    one.name: one.metadata["option"] for one in fields(JobOptions) if "option" in one.metadata
}
"""The options that submitters set."""
DEFAULTS: Final = {one.name: one.default for one in fields(JobOptions)}

"""The audit of stored rows, batch by batch: a million jobs are many short reads, not one long one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dagmaster.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.output_names import OutputName


class AuditedRows(StrEnum):
    """What the batches of an audit are of, in this order."""

    JOBS = "jobs"
    QUEUE = "queue"
    RESULTS = "results"


class AuditPosition(NamedTuple):
    """Where the next batch begins: at the job with this id, or after the task with it."""

    rows: AuditedRows
    start: int


@dataclass(frozen=True, slots=True)
class Violation(Record, documented="ViolationView"):
    """A row that violates an invariant. `rule` is the invariant as a sentence, `message` what is wrong."""

    invariant: str
    rule: str
    job_id: str
    node_id: str | None
    message: str

    @property
    def place(self) -> str:
        return f"job {self.job_id}, node {self.node_id}" if self.node_id else f"job {self.job_id}"

    def __str__(self) -> str:
        return f"{self.invariant}: {self.place} {self.message}"


@dataclass(frozen=True, slots=True)
class AuditBatch:
    """How many rows a batch had, the violations in it, and where the next one begins: None after the last."""

    jobs: int
    nodes: int
    events: int
    invariants: int
    violations: Sequence[Violation]
    next_position: AuditPosition | None


class InvariantAuditor(Protocol):
    """Checks invariants on stored rows, and writes nothing. Its methods raise `DatabaseUnavailable`."""

    async def count_jobs(self) -> int:
        """Return how many jobs an audit checks."""

    async def check(self, position: AuditPosition | None = None, *, job_id: str | None = None) -> AuditBatch:
        """Check one batch: the first without a position; with `job_id`, all rows of one job."""

    async def newer_outputs(self, outputs: Sequence[OutputName]) -> Sequence[Violation]:
        """Return the large outputs of attempts and turns that the rows do not have."""

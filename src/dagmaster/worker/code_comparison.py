"""Compare the code of a handler with the code that the submitter of a task had, and report a difference.

The task runs all the same: a deployment changes code while jobs run. Tasks that record no fingerprint cost
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.ports.task_messages import Failed, Succeeded
from dagmaster.sdk.code_fingerprints import code_fingerprint

if TYPE_CHECKING:
    from dagmaster.ports.task_messages import Outcome, TaskMessage
    from dagmaster.sdk.handler_decorator import HandlerSpec


def own_fingerprint(message: TaskMessage, spec: HandlerSpec | None) -> str | None:
    """Return the fingerprint of the code here if it is known to differ from the submitter's."""
    own = "" if spec is None or message.code_fingerprint is None else code_fingerprint(spec.function)
    return own if own and own != message.code_fingerprint else None


def describe_difference(message: TaskMessage, own: str) -> str:
    return (
        f"dagmaster: this worker has other code of {message.handler} than the submitter of the job:"
        f" {own} here, {message.code_fingerprint} there\n"
    )


def with_difference(outcome: Outcome, message: TaskMessage, own: str) -> Outcome:
    """Return the outcome with both fingerprints: in its metrics, or in its error."""
    both = {"code_fingerprint": {"submitter": message.code_fingerprint, "worker": own}}
    if isinstance(outcome, Succeeded):
        return replace(outcome, metrics=outcome.metrics | both)
    return replace(outcome, error=outcome.error | both) if isinstance(outcome, Failed) else outcome

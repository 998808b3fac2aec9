"""Approvals and waits: nodes that advance by a person, a signal or the clock."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Final

from dagmaster.engine.decisions import RequestApproval
from dagmaster.engine.graph import ApprovalSpec, OnTimeout, WaitSpec
from dagmaster.engine.json_size import preview
from dagmaster.engine.status import NodeStatus
from dagmaster.engine.step import Step, failure
from dagmaster.engine.transitions import Move
from dagmaster.errors import EvaluationFailed
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.model import Node
    from dagmaster.json_types import JsonValue

# A hundred years: longer is a mistake in the unit.
MAX_WAIT_SECONDS: Final = 100 * 366 * 86_400


def may_answer(spec: ApprovalSpec, by: str | None) -> bool:
    """Return whether a sender may approve or reject: one of the approvers, or anyone where none are named.

    An approver with a namespace (`key:ci`, `oidc:anna`) is that caller. A bare name is a person: the user of
    that name, or who an identity provider says has it; never a key of that name.
    """
    if not spec.approvers or by in spec.approvers:
        return True
    namespace, _, name = (by or "").partition(":")
    return namespace == "oidc" and ":" not in name and name in spec.approvers


def forbidden_answer(spec: ApprovalSpec, node_id: str, by: str) -> str:
    return (
        f"{by or 'an unknown sender'} may not answer {node_id}: its approvers are {', '.join(spec.approvers)}"
    )


def request_approval(step: Step, node: Node, spec: ApprovalSpec) -> None:
    step.move(node, Move.WAIT)
    step.out.append(RequestApproval(node.id, spec))
    if spec.timeout_seconds is not None:
        step.wait_until(node, step.now + spec.timeout_seconds)


def approve(step: Step, node: Node, *, by: str | None, at: str, comment: str) -> None:
    step.complete(node, {"approved_by": by, "at": at, "comment": comment})


def reject(step: Step, node: Node, *, by: str, at: str, comment: str) -> None:
    reason = f": {comment}" if comment else ""
    step.fail(node, failure("rejected", f"rejected by {by}{reason}", rejected_by=by, at=at, comment=comment))


def wait_for_signal(step: Step, node: Node, spec: WaitSpec) -> None:
    """Wait for a signal, or consume the one that arrived before the node was ready."""
    name = spec.signal or ""
    if name in step.job.signals:
        step.complete(node, step.job.signals.pop(name))
        return
    step.move(node, Move.WAIT)
    if spec.timeout_seconds is not None:
        step.wait_until(node, step.now + spec.timeout_seconds)


def wait_for_time(step: Step, node: Node, spec: WaitSpec, scope: Mapping[str, JsonValue]) -> None:
    """Wait until the time that `seconds` or `until` specifies."""
    try:
        at = _resolve_time(spec, scope, step.now)
    except EvaluationFailed as error:
        step.fail(node, failure("expression", str(error), path=error.path))
        return
    step.move(node, Move.WAIT)
    step.wait_until(node, at)


def receive_signal(step: Step, name: str, payload: JsonValue) -> None:
    """Deliver a signal to every node that waits for it; else keep the newest for the next node that will."""
    job = step.job
    waits = job.graph.wiring.waits.get(name, ())
    unfinished = [node for node_id in waits if not (node := job.nodes[node_id]).is_terminal]
    waiting = [node for node in unfinished if node.status is NodeStatus.WAITING]
    if waiting:
        for node in waiting:
            step.complete(node, payload)
    elif unfinished:
        step.job.signals[name] = payload
    else:
        step.ignore(f"no open node waits for signal {name!r}")


def on_timer(step: Step, node: Node) -> None:
    """Apply the timeout of an approval or a signal, or complete a wait for a time."""
    spec = node.spec
    if isinstance(spec, ApprovalSpec):
        if spec.on_timeout is OnTimeout.APPROVE:
            approve(step, node, by=None, at=format_rfc3339(step.now), comment="approved by timeout")
        else:
            message = f"no answer within {spec.timeout_seconds:g} s"
            step.fail(node, failure("approval_timeout", message))
    elif isinstance(spec, WaitSpec):
        if spec.signal is None:
            step.complete(node, {"waited_until": format_rfc3339(step.now)})
        elif spec.on_timeout is OnTimeout.GO_ON:
            step.complete(node, None)
        else:
            message = f"no signal {spec.signal!r} within {spec.timeout_seconds:g} s"
            step.fail(node, failure("signal_timeout", message))


def _resolve_time(spec: WaitSpec, scope: Mapping[str, JsonValue], now: float) -> float:
    if spec.seconds is not None:
        seconds = spec.seconds.resolve(scope)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
            raise EvaluationFailed(f"seconds must be a number, not {preview(seconds)}", path="seconds")
        if not 0 <= seconds <= MAX_WAIT_SECONDS:
            raise EvaluationFailed(
                f"seconds must be between 0 and {MAX_WAIT_SECONDS}, not {seconds}", path="seconds"
            )
        return now + seconds
    until = spec.until.resolve(scope) if spec.until is not None else None
    try:
        moment = datetime.fromisoformat(until) if isinstance(until, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        message = (
            f"until must be a date-time with a time zone, such as 2026-01-31T06:00:00Z, not {preview(until)}"
        )
        raise EvaluationFailed(message, path="until")
    return moment.timestamp()

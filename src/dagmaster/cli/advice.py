"""What to type about a reason, if something can be done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.diagnosis.reasons import ReasonCode

if TYPE_CHECKING:
    from dagmaster.engine.diagnosis.reasons import Reason


def advice(job_id: str, reason: Reason, node_id: str | None) -> str:  # noqa: PLR0911 - a command for each code
    """A command, or nothing."""
    data = reason.data
    match reason.code:
        case ReasonCode.NO_ORCHESTRATOR:
            return "dagmaster orchestrator"
        case ReasonCode.NO_WORKER:
            return f"dagmaster worker --queue {data['queue']}"
        case ReasonCode.APPROVAL:
            return f"dagmaster jobs approve {job_id} {node_id}"
        case ReasonCode.SIGNAL:
            return f"dagmaster jobs signal {job_id} {data['signal']}"
        case ReasonCode.RETRY:
            return f"dagmaster jobs retry {job_id} {node_id}"
        case ReasonCode.CHILD_JOB:
            return f"dagmaster jobs why {data['job_id']}"
        case ReasonCode.FAILED | ReasonCode.LOST:
            return f"dagmaster jobs logs {job_id} {node_id}"
        case ReasonCode.JOB_FAILED if data.get("root") is not None:
            return f"dagmaster jobs show {job_id} {data['root']}"
        case ReasonCode.ADVANCE_FAILED:
            return f"dagmaster jobs events {job_id}"
        case _:
            return ""

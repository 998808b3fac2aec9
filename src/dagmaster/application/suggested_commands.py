"""The command to type about a reason, if something can be done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.diagnosis.reasons import ReasonCode

if TYPE_CHECKING:
    from dagmaster.engine.diagnosis.reasons import Reason


def suggest_command(job_id: str, reason: Reason, node_id: str | None) -> str | None:  # noqa: PLR0911 - one for each code
    """Return a command line for a reason, or None."""
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
            return f"dagmaster jobs why {data['job_id']}" if "job_id" in data else None
        case ReasonCode.FAILED | ReasonCode.LOST:
            return f"dagmaster jobs logs {job_id} {node_id}"
        case ReasonCode.JOB_FAILED if data.get("root") is not None:
            return f"dagmaster jobs show {job_id} {data['root']}"
        case ReasonCode.ADVANCE_FAILED:
            return f"dagmaster jobs events {job_id}"
        case _:
            return None

"""The command to type about a reason, if something can be done about it, or about an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.application.views import ReasonCode
from dagmaster.errors import (
    ApiKeyRejected,
    HandlerTrustRejected,
    JobNotFinished,
    JobNotFound,
    NothingToResume,
    SecretInputsMissing,
    WorkflowNotFound,
    WorkflowVersionConflict,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.views import BlockingReasonView, JobDetailView
    from dagmaster.errors import DagmasterError
    from dagmaster.json_types import JsonObject

_REMEDIES: Final[Mapping[str, str]] = {
    ApiKeyRejected.code: "To use a key: DAGMASTER_KEY. To create one, on a machine with the database:"
    " dagmaster keys create NAME --scope read",
    JobNotFound.code: "To list the jobs: dagmaster jobs list (`last` is the newest). To submit one:"
    " dagmaster submit",
    JobNotFinished.code: "To end the job: dagmaster jobs cancel",
    NothingToResume.code: "To name a node: --from NODE",
    HandlerTrustRejected.code: "To name the caller: --caller NAME. To see whose changes wait:"
    " dagmaster handlers show NAME --published",
    SecretInputsMissing.code: "To give them in a file, not on the command line: -I FILE",
    WorkflowNotFound.code: "To list the published workflows: dagmaster workflows list. To publish one:"
    " dagmaster workflows push FILE (`dagmaster dev` publishes the folder ./workflows). To run a file:"
    " dagmaster run FILE",
    WorkflowVersionConflict.code: "To replace a version while you develop it: --replace",
}


def suggest_remedy(error: DagmasterError) -> str | None:
    return _REMEDIES.get(error.code)


def format_blocking_reasons(job: JobDetailView) -> list[str]:
    """Return a sentence for each thing that a job waits for, with the command to type if there is one."""
    return [format_blocking_reason(job.job_id, reason) for reason in job.blocking_reasons]


def format_blocking_reason(job_id: str, reason: BlockingReasonView) -> str:
    command = (
        None if reason.code is None else suggest_command(job_id, reason.code, reason.data, reason.node_id)
    )
    return reason.sentence if command is None else f"{reason.sentence} → {command}"


def suggest_command(  # noqa: PLR0911 - one for each code
    job_id: str, code: ReasonCode, data: JsonObject, node_id: str | None
) -> str | None:
    match code:
        case ReasonCode.NO_ORCHESTRATOR:
            return "dagmaster orchestrator"
        case ReasonCode.NO_WORKER if data.get("drained_worker") is not None:
            return f"dagmaster fleet undrain {data['drained_worker']}"
        case ReasonCode.NO_WORKER:
            return f"dagmaster worker --queue {data['queue']}"
        case ReasonCode.HANDLER_UNTRUSTED:
            return f"dagmaster handlers trust {data['handler']} --caller {data['caller']}"
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

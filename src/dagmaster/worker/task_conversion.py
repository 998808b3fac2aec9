"""Claimed tasks as messages, with secrets filled in; outcomes as reports, with large outputs stored."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dagmaster.engine.expressions.secret_parts import SecretInput, attach_secrets, fill_secrets, names_in
from dagmaster.engine.status import AttemptStatus
from dagmaster.errors import DagmasterError, PermanentError, SecretsKeyMissing, SecretUnreadable
from dagmaster.ports.handler_reports import Checkpoint
from dagmaster.ports.json_text import MAX_INLINE, JsonText
from dagmaster.ports.output_names import OutputName
from dagmaster.ports.secret_vault import readable_inputs
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded, TaskMessage
from dagmaster.redaction import texts_of
from dagmaster.worker.task_outcomes import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.remote_workers import HeldTask
    from dagmaster.ports.secret_vault import SecretVault
    from dagmaster.ports.task_source import ClaimedTask


def make_message(
    task: ClaimedTask,
    secrets: Callable[[str], str | None],
    hidden: set[str],
    *,
    vault: SecretVault,
    place: str = "worker",
) -> TaskMessage:
    """Return the message of a task; add the values to redact to `hidden`.

    `place`: the process that has the secrets.

    Raise `PermanentError` of kind `secret_missing` if it needs a secret that is not there, of kind
    `secret_unreadable` if it needs a secret input that cannot be decrypted.
    """
    params: Any = json.loads(task.params)
    code_fingerprint = None
    if task.secrets is not None:
        references = json.loads(task.secrets)
        hidden.update(references["hide"])
        code_fingerprint = references.get("code_fingerprint")

        def secret(name: str) -> str:
            value = secrets(name)
            if value is None:
                message = f"there is no secret {name!r}: set DAGMASTER_SECRET_{name} where the {place} runs"
                raise PermanentError(message, kind="secret_missing")
            hidden.add(value)
            return value

        def open_input(used: SecretInput) -> Any:
            try:
                return vault.open(task.job_id, used.name, used.stored)
            except (SecretUnreadable, SecretsKeyMissing) as error:
                raise PermanentError(str(error), kind=SecretUnreadable.code) from error

        inputs = references.get("inputs", {})
        if references["places"]:
            params = fill_secrets(attach_secrets(params, references["places"], inputs), secret, open_input)
        hidden.update(_texts_of_inputs(task.job_id, inputs, vault))
    return TaskMessage(
        task_id=task.task_id,
        job_id=task.job_id,
        node_id=task.node_id,
        handler=task.handler,
        params=params,
        timeout_seconds=task.timeout_seconds,
        attempt=task.attempt,
        checkpoint=None if task.checkpoint is None else Checkpoint.from_stored(json.loads(task.checkpoint)),
        dispatched_at=task.dispatched_at,
        trace_parent=task.trace_parent,
        workflow=task.workflow,
        fencing_token=task.fencing_token,
        lease_token=task.token,
        own_params=True,
        isolation=task.isolation,
        queue=task.queue,
        code_fingerprint=code_fingerprint,
    )


def graph_task_id(references: str | None) -> int | None:
    """Return the id of the `Task` in code that a task executes, by what is stored with it."""
    number = None if references is None else json.loads(references).get("graph_task_id")
    return number if isinstance(number, int) else None


class SecretReplaced(Exception):
    """A task got a value of a secret that is not known any more: its report cannot be redacted."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the secret {name!r} was replaced while the task ran: what its worker reported could not be"
            " redacted, and"
            f" was dropped. Keep the old value as DAGMASTER_SECRET_{name}_PREVIOUS where the servers run"
            " until such"
            " tasks have ended"
        )


def fingerprint_secrets(references: str | None, secrets: Callable[[str], str | None]) -> dict[str, str]:
    """Return the fingerprints of the secrets that a task gets, by name; `secret_values` compares them."""
    values = {name: secrets(name) for name in _secret_names(references)}
    return {name: _fingerprint(name, value) for name, value in values.items() if value is not None}


def secret_values(
    job_id: str, references: str | None, secrets: Callable[[str], str | None], vault: SecretVault
) -> set[str]:
    """Return the values to redact in what is reported of a task: those that its params have.

    Raise `SecretReplaced` if one of them is neither the current nor the previous value of its secret.
    """
    if references is None:
        return set()
    document = json.loads(references)
    fingerprints = document.get("fingerprints", {})
    hidden = {*document["hide"], *_texts_of_inputs(job_id, document.get("inputs", {}), vault)}
    for name in _secret_names(references):
        values = {value for value in (secrets(name), secrets(f"{name}_PREVIOUS")) if value is not None}
        hidden |= values
        if name in fingerprints and fingerprints[name] not in {_fingerprint(name, value) for value in values}:
            raise SecretReplaced(name)
    return hidden


def _secret_names(references: str | None) -> set[str]:
    places = [] if references is None else json.loads(references)["places"]
    return names_in(places)[0]


def _texts_of_inputs(job_id: str, inputs: Mapping[str, Any], vault: SecretVault) -> Iterator[str]:
    """Yield the texts to redact of the secret inputs of a job, as far as they can be decrypted."""
    for value in readable_inputs(vault, job_id, frozenset(inputs), inputs).values():
        yield from texts_of(value)


@lru_cache(maxsize=1_000)
def _fingerprint(name: str, value: str) -> str:
    # It is stored next to the task: slow (40 ms, once a value), so that a short secret cannot be guessed from
    # it.
    salt = f"dagmaster {name}".encode()
    return hashlib.scrypt(value.encode(errors="surrogateescape"), salt=salt, n=2**14, r=8, p=1, dklen=8).hex()


async def make_report(
    task: ClaimedTask | HeldTask, outcome: Outcome, blobs: OutputBlobs, version: str | None
) -> TaskReport:
    """Return the report of an outcome. `version`: that of the handler, which is stored with a success."""
    match outcome:
        case Succeeded():
            text = json.dumps(outcome.output)
            if len(text) > MAX_INLINE:
                return await _report_large(task, outcome, text, blobs, version)
            return _success(task, outcome, JsonText(text), version)
        case Failed():
            error = json.dumps(outcome.error)
            return TaskReport(
                task.task_id, task.token, AttemptStatus.FAILED, permanent=outcome.permanent, error=error,
                running_seconds=outcome.running_seconds,
            )  # fmt: skip
        case Released():
            return TaskReport(
                task.task_id, task.token, AttemptStatus.RELEASED, running_seconds=outcome.running_seconds
            )


def _success(
    task: ClaimedTask | HeldTask, outcome: Succeeded, output: JsonText, version: str | None
) -> TaskReport:
    metrics = json.dumps(outcome.metrics) if outcome.metrics else None
    report = TaskReport(
        task.task_id, task.token, AttemptStatus.COMPLETED, output=output, metrics=metrics,
        handler_version=version,
        running_seconds=outcome.running_seconds,
    )  # fmt: skip
    if outcome.added is not None:
        report.added_rows = outcome.added.to_rows
    return report


async def _report_large(
    task: ClaimedTask | HeldTask, outcome: Succeeded, text: str, blobs: OutputBlobs, version: str | None
) -> TaskReport:
    # Named by the claim: the blob of a rejected report is unreferenced.
    name = str(OutputName(task.job_id, task.node_id, task.attempt, task.token))
    try:
        await blobs.write(name, text.encode())
    except DagmasterError as error:
        problem = failed("blobs_unavailable", f"the output could not be stored: {error}")
        return TaskReport(
            task.task_id, task.token, AttemptStatus.FAILED, error=json.dumps(problem.error),
            running_seconds=outcome.running_seconds,
        )  # fmt: skip
    return _success(task, outcome, JsonText(ref=name), version)

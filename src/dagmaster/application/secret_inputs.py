"""Redact secret inputs before anything leaves `application`.

Secret inputs are *** by their names. What handlers return was redacted when it was written. Here it is done
again with the values that are known without a key: those in clear, and those of queued tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from dagmaster.engine.expressions.secret_parts import REDACTED, secret_names
from dagmaster.ports.secret_vault import ClosedVault, readable_inputs
from dagmaster.records.jobs import JobRecord
from dagmaster.records.nodes import NodeRecord
from dagmaster.records.redacted import has_secrets, redacted
from dagmaster.records.tasks import AttemptRecord, TaskRecord
from dagmaster.redaction import redactor, secret_texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from dagmaster.application.context import Application
    from dagmaster.json_types import JsonObject, JsonValue

_CLOSED: Final = ClosedVault()
R = TypeVar("R", JobRecord, NodeRecord, TaskRecord, AttemptRecord)


class JobRedactor:
    """Redacts the values of one job."""

    __slots__ = ("_declarations", "_redact", "secrets")

    def __init__(self, declarations: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
        self._declarations = declarations
        self.secrets = secret_texts(declarations, inputs)
        self._redact = redactor(self.secrets)

    def __call__(self, value: Any) -> Any:
        return self._redact(value)

    def inputs(self, inputs: Mapping[str, JsonValue]) -> JsonObject:
        """Return inputs with secret ones as ***, whatever their type."""
        declared = self._declarations
        return {
            name: REDACTED if (declared.get(name) or {}).get("secret") else self._redact(value)
            for name, value in inputs.items()
        }

    def with_secrets(self, more: Collection[str]) -> JobRedactor:
        if not more:
            return self
        wider = JobRedactor(self._declarations, {})
        wider.secrets = [*self.secrets, *more]
        wider._redact = redactor(wider.secrets)
        return wider


def redact_definition(definition: Mapping[str, Any]) -> dict[str, Any]:
    inputs = definition.get("inputs") or {}
    secret_defaults = {
        name: {**declared, "default": REDACTED}
        for name, declared in inputs.items()
        if declared and declared.get("secret") and "default" in declared
    }
    return {**definition, "inputs": {**inputs, **secret_defaults}} if secret_defaults else dict(definition)


async def job_redactor(app: Application, job: JobRecord) -> JobRedactor:
    """Return the redactor of a job that was loaded with its inputs."""
    return redactor_of(await _declarations(app, job.content_hash), job)


def redactor_of(declarations: Mapping[str, Any], job: JobRecord) -> JobRedactor:
    """Return the redactor of a job with these declared inputs.

    It decrypts nothing: what came from a handler was redacted by the process that had the values, and a
    redacted guess in what people wrote would say that it is right. It knows values that are stored in clear:
    the params of their tasks have them.
    """
    names = secret_names(declarations)
    return JobRedactor(declarations, readable_inputs(_CLOSED, job.job_id, names, job.inputs))


class RedactorCache:
    """Redactors of several jobs, for lists across jobs.

    A job without secret inputs costs one read of its graph.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self._declarations: dict[str, Mapping[str, Any]] = {}
        self._redactors: dict[str, JobRedactor] = {}

    async def get(self, job_id: str, content_hash: str | None = None) -> JobRedactor:
        """Return the redactor of a job. Without its content hash the job is read first."""
        redact = self._redactors.get(job_id)
        if redact is None:
            redact = self._redactors[job_id] = await self._load(job_id, content_hash)
        return redact

    async def redacted(self, records: Iterable[R]) -> tuple[R, ...]:
        """Return records of jobs as they may be shown. Jobs are read only where a value may be secret."""
        return tuple(
            [
                redacted(record, await self.get(record.job_id, getattr(record, "content_hash", None)))
                if has_secrets(record)
                else record
                for record in records
            ]
        )

    async def _load(self, job_id: str, content_hash: str | None) -> JobRedactor:
        job = None
        if content_hash is None:
            job = await self._app.read.job(job_id)
            if job is None:
                return JobRedactor({}, {})
            content_hash = job.content_hash
        declarations = self._declarations.get(content_hash)
        if declarations is None:
            declarations = self._declarations[content_hash] = await _declarations(self._app, content_hash)
        if job is None and any((declared or {}).get("secret") for declared in declarations.values()):
            job = await self._app.read.job(job_id)
        return JobRedactor(declarations, {}) if job is None else redactor_of(declarations, job)


async def _declarations(app: Application, content_hash: str) -> Mapping[str, Any]:
    """Return the declared inputs of a graph. It is not compiled: the definition says which are secret."""
    definition = await app.read.definition(content_hash) or {}
    declared: Mapping[str, JsonValue] = definition.get("inputs") or {}
    return declared

"""Submit jobs: check a request, make the job, store it once for each idempotency key.

`submit_job` and `submit_jobs` are for interfaces. `JobSubmitter` is what they share with runners that have a
graph and a store, and no `Application`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.application.access import check_workflow
from dagmaster.application.callback_addresses import check_callback_url
from dagmaster.application.checks import accept_slowly
from dagmaster.application.views.results import SubmitOutcome, SubmitResult
from dagmaster.application.workflow_lookup import find_published_graph
from dagmaster.authoring.check_budget import QUICK_BATCH_STEPS, QUICK_STEPS, CheckBudget, CheckStopped
from dagmaster.authoring.inputs import accept_inputs, parse_inputs
from dagmaster.engine.expressions.secret_parts import secret_names
from dagmaster.errors import (
    Category,
    DagmasterError,
    IdempotencyConflict,
    JobQuotaExceeded,
    SubmissionRejected,
)
from dagmaster.ports.job_options import (
    DEFAULTS,
    MAX_PRIORITY,
    MAX_SUBMITTER,
    OPTION_NAMES,
    SUBMITTER_OPTIONS,
    JobOptions,
)
from dagmaster.ports.job_records import NewJob
from dagmaster.ports.secret_vault import (
    ClosedVault,
    InputOwner,
    earlier_identities,
    identity_of,
    seal_inputs,
)
from dagmaster.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.api_keys import Caller
    from dagmaster.ports.audit_trail import AuditEntry, ChangeOrigin
    from dagmaster.ports.client_store import ClientStore
    from dagmaster.ports.ids import Ids
    from dagmaster.ports.job_records import Accepted
    from dagmaster.ports.secret_vault import SecretVault

MAX_BATCH: Final = 100
# Neither id is all zeros; version ff is not allowed, later ones may have more fields.
_TRACE_PARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_option_values = attrgetter(*OPTION_NAMES)
# Of the options that are text: the shortest and the longest.
_LENGTHS: Final = {
    **{name: (o.min_length or 0, o.max_length) for name, o in SUBMITTER_OPTIONS.items() if o.max_length},
    "submitted_by": (0, MAX_SUBMITTER),
}
_texts_of = attrgetter(*_LENGTHS)
_NO_TEXTS: Final = tuple(DEFAULTS[name] for name in _LENGTHS)
Order = tuple["JobRequest", "ChangeOrigin | None", "Caller | None"]
# The caller can do nothing about these: they end a batch of one caller, before any of it is stored.
_FATAL: Final = frozenset({Category.UNAVAILABLE, Category.INTERNAL})


@dataclass(slots=True, kw_only=True)
class JobRequest(JobOptions):
    """A requested job: of a published workflow (`workflow_id`, `version`), or of a compiled `graph`."""

    workflow_id: str = ""
    version: int | None = None
    graph: Graph | None = None
    child_graphs: Sequence[Graph] = ()
    """Graphs that the job uses for its child jobs instead of published ones."""
    inputs: Mapping[str, JsonValue] = field(default_factory=dict)
    input_texts: Mapping[str, str] = field(default_factory=dict)
    """Inputs as text, parsed as the workflow declares them. They win over `inputs`."""
    workflows: Mapping[str, str] = field(default_factory=dict)
    """Stored graphs that the job uses for its child jobs: content hashes by workflow id."""
    accepted: tuple[str, JsonObject] | None = None
    """Inputs that were accepted before, and the content hash of the graph that declares them."""

    def accepted_inputs(self, graph: Graph, budget: CheckBudget | None = None) -> JsonObject:
        """Return the inputs with defaults, as this graph declares them; raise `InputsInvalid`."""
        if self.accepted is not None and self.accepted[0] == graph.content_hash:
            return self.accepted[1]
        return accept_inputs(graph, self.values_for(graph), budget)

    def values_for(self, graph: Graph) -> dict[str, JsonValue]:
        """Return the inputs with those that are text parsed."""
        if not self.input_texts:
            return dict(self.inputs)
        return {**self.inputs, **parse_inputs(graph, self.input_texts)}

    def child_workflows(self) -> Mapping[str, str]:
        """Return the content hashes of the graphs for child jobs, by workflow id."""
        return {**self.workflows, **{child.workflow_id: child.content_hash for child in self.child_graphs}}


async def submit_job(app: Application, request: JobRequest) -> SubmitResult:
    """Store one job; return the existing one if its idempotency key was used for the same request before."""
    with traces.span("submit", jobs=1):
        (answer,) = await store(app, await prepare_all(app, [(in_trace(request), app.origin, app.caller)]))
    if isinstance(answer, Exception):
        raise answer
    return answer


async def submit_jobs(app: Application, requests: Sequence[JobRequest]) -> list[SubmitResult]:
    """Store up to 100 jobs in one statement; return an outcome for each: an invalid one stops no other.

    An unavailable database raises: then a caller that sent idempotency keys sends the batch again.
    """
    if len(requests) > MAX_BATCH:
        raise SubmissionRejected(f"a batch has at most {MAX_BATCH} jobs, not {len(requests)}")
    with traces.span("submit", jobs=len(requests)):
        prepared = await prepare_all(
            app, [(in_trace(request), app.origin, app.caller) for request in requests]
        )
        for one in prepared:
            if isinstance(one, Exception):
                _raise_fatal(one)
        answers = await store_within_quota(app, prepared)
    return [_to_result(request, answer) for request, answer in zip(requests, answers, strict=True)]


def in_trace(request: JobRequest) -> JobRequest:
    """Return a request of the current trace: the span of this process continues that of the caller."""
    trace_parent = traces.current_trace_parent()
    return request if trace_parent is None else replace(request, trace_parent=trace_parent)


class PreparedJob(NamedTuple):
    """A job to store, whose graph is stored, with its entries for the audit trail."""

    job: NewJob
    entries: list[AuditEntry]


async def prepare_all(app: Application, orders: Sequence[Order]) -> list[PreparedJob | Exception]:
    """Make the jobs of orders, also of those whose inputs take long to check."""
    prepared = await prepare(app, orders)
    for position, one in enumerate(prepared):
        if isinstance(one, CheckStopped):
            request, origin, caller = orders[position]
            try:
                (prepared[position],) = await prepare(
                    app, [(await accept_apart(app, request), origin, caller)]
                )
            except DagmasterError as error:
                if error.category is Category.UNAVAILABLE:
                    raise
                prepared[position] = error
    return prepared


async def accept_apart(app: Application, request: JobRequest) -> JobRequest:
    """Return a request whose inputs are checked, where a check can be stopped; raise `InputsInvalid`."""
    graph = request.graph or await find_published_graph(app, request.workflow_id, request.version)
    inputs = await accept_slowly(app.checks, graph, request.values_for(graph))
    return replace(request, accepted=(graph.content_hash, inputs))


async def prepare(app: Application, orders: Sequence[Order]) -> list[PreparedJob | Exception]:
    """Make the jobs of orders.

    An error of one is its answer, and so is that its check takes longer than the event loop has time for;
    that the database is unavailable concerns them all.
    """
    submitter = JobSubmitter(app.client, await app.client.lease_ids(), env=app.env, vault=app.vault)
    published = _PublishedGraphs(app)
    prepared: list[PreparedJob | Exception] = []
    steps_left = QUICK_BATCH_STEPS
    for request, origin, caller in orders:
        budget = CheckBudget(min(QUICK_STEPS, steps_left))
        try:
            check_workflow(caller, request.workflow_id if request.graph is None else "")
            check_callback_url(app, request.callback_url)
            graph = request.graph or await published.get(request.workflow_id, request.version)
            job = await submitter.make_job(_of_caller(request, caller), graph, budget)
            for stored in () if request.graph is None else (request.graph, *request.child_graphs):
                await submitter.store_graph(stored)
            prepared.append(PreparedJob(job, audit_entries([job], origin)))
        except Exception as error:
            if isinstance(error, DagmasterError) and error.category is Category.UNAVAILABLE:
                raise
            prepared.append(error)
        steps_left -= budget.limit - max(budget.left, 0)
    return prepared


async def store_within_quota(
    app: Application, prepared: Sequence[PreparedJob | Exception]
) -> list[SubmitResult | Exception]:
    try:
        return await store(app, prepared)
    except JobQuotaExceeded:
        return await store_each(app, prepared)


async def store_each(
    app: Application, prepared: Sequence[PreparedJob | Exception]
) -> list[SubmitResult | Exception]:
    """Store jobs one by one: nothing of them was stored, and only those that are rejected shall fail."""
    return [one if isinstance(one, Exception) else await _store_alone(app, one) for one in prepared]


async def _store_alone(app: Application, one: PreparedJob) -> SubmitResult | Exception:
    try:
        return (await store(app, [one]))[0]
    except Exception as error:  # noqa: BLE001 - it is raised to its caller; those before are stored
        return error


def _of_caller(request: JobRequest, caller: Caller | None) -> JobRequest:
    """Return a request for a job of the caller's tenant."""
    if caller is None or caller.tenant == request.tenant:
        return request
    return replace(request, tenant=caller.tenant)


async def store(
    app: Application, prepared: Sequence[PreparedJob | Exception]
) -> list[SubmitResult | Exception]:
    """Store the jobs in one statement; return an answer for each."""
    valid = [one for one in prepared if isinstance(one, PreparedJob)]
    entries = [entry for one in valid for entry in one.entries]
    accepted = iter(await app.client.submit([one.job for one in valid], audit=entries))
    return [_to_answer(one.job, next(accepted)) if isinstance(one, PreparedJob) else one for one in prepared]


def _raise_fatal(error: Exception) -> None:
    if not isinstance(error, DagmasterError) or error.category in _FATAL:
        raise error


class _PublishedGraphs:
    """Looks each version of a workflow up once for all requests of a batch."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._graphs: dict[tuple[str, int | None], Graph | DagmasterError] = {}

    async def get(self, workflow_id: str, version: int | None) -> Graph:
        """Return the graph of a version, the active one if none is named; raise `WorkflowNotFound`."""
        key = workflow_id, version
        if key not in self._graphs:
            try:
                self._graphs[key] = await find_published_graph(self._app, workflow_id, version)
            except DagmasterError as error:
                self._graphs[key] = error
        graph = self._graphs[key]
        if isinstance(graph, DagmasterError):
            raise graph
        return graph


def _to_answer(job: NewJob, accepted: Accepted) -> SubmitResult | Exception:
    if not accepted.same:
        return _idempotency_conflict(accepted)
    return accepted_result(job, accepted)


def accepted_result(job: NewJob, accepted: Accepted) -> SubmitResult:
    return SubmitResult(
        outcome=SubmitOutcome.ACCEPTED if accepted.is_new else SubmitOutcome.EXISTING,
        job_id=accepted.job_id,
        workflow_id=job.workflow_id,
        version=job.version,
        is_new=accepted.is_new,
        resumed_from=job.resumed_from,
    )


def _to_result(request: JobRequest, answer: SubmitResult | Exception) -> SubmitResult:
    if isinstance(answer, SubmitResult):
        return answer
    if not isinstance(answer, DagmasterError):
        raise answer
    workflow_id = request.workflow_id if request.graph is None else request.graph.workflow_id
    return SubmitResult(
        outcome=SubmitOutcome.ERROR,
        job_id=None,
        workflow_id=workflow_id,
        version=request.version,
        is_new=False,
        error=answer.to_dict(),
    )


# ── Jobs from graphs ────────────────────────────────────────────────────────────────────────────────────────


class JobSubmitter:
    """Makes jobs and stores them, once for each idempotency key; with an origin, also in the audit trail."""

    def __init__(
        self,
        store: ClientStore,
        ids: Ids,
        origin: ChangeOrigin | None = None,
        *,
        env: Mapping[str, str] | None = None,
        vault: SecretVault | None = None,
    ) -> None:
        self._store = store
        self._vault = vault or ClosedVault()
        self._ids = ids
        self._origin = origin
        self._env = _dump(env or {})
        self._stored: set[str] = set()

    async def submit(self, graph: Graph, *requests: JobRequest) -> list[Accepted]:
        """Store jobs of a graph, all or none; raise `InputsInvalid` or `SubmissionRejected`."""
        jobs = [await self.make_job(in_trace(request), graph) for request in requests]
        if len(jobs) > 1:
            _check_conflicts(await self._store.find_duplicates(jobs))
        await self.store_graph(graph)
        accepted = await self._store.submit(jobs, audit=audit_entries(jobs, self._origin))
        _check_conflicts(accepted)
        return accepted

    async def store_graph(self, graph: Graph) -> None:
        """Store a graph, unless this submitter has stored it."""
        if graph.content_hash not in self._stored:
            await self._store.put_graph(graph.content_hash, json.dumps(graph.definition))
            self._stored.add(graph.content_hash)

    async def make_job(self, request: JobRequest, graph: Graph, budget: CheckBudget | None = None) -> NewJob:
        """Check a request and return the job to store, with its secret inputs encrypted.

        Raise `CheckStopped` at the end of a given budget.
        """
        check_options(request)
        job_id, accepted = self._ids.new(), request.accepted_inputs(graph, budget)
        stored = accepted
        earlier: tuple[str, ...] = ()
        if graph.inputs:
            owner = InputOwner(job_id=job_id, workflow_id=graph.workflow_id)
            names = secret_names(graph.inputs)
            stored = await seal_inputs(self._vault, owner, names, accepted)
            if names and request.idempotency_key is not None:
                # A request that is sent again after a rotation, or after the first key, is the same one.
                others = earlier_identities(self._vault, owner, names, accepted)
                earlier = tuple(_hash_request(request, graph, other) for other in others)
        options = dict(zip(OPTION_NAMES, _option_values(request), strict=True))
        if request.trace_parent is not None and not _TRACE_PARENT.fullmatch(request.trace_parent):
            options["trace_parent"] = None
        return NewJob(
            **options,
            id=job_id,
            workflow_id=graph.workflow_id,
            version=graph.version,
            content_hash=graph.content_hash,
            inputs=_dump(stored),
            env=self._env,
            body_hash=None
            if request.idempotency_key is None
            else _hash_request(request, graph, _identities(stored)),
            earlier_hashes=earlier,
            workflows=_dump(request.child_workflows()),
        )


def _dump(values: Mapping[str, JsonValue]) -> str:
    # Most are empty, and the encoder takes a microsecond for nothing.
    return json.dumps(dict(values)) if values else "{}"


def _identities(stored: JsonObject) -> JsonObject:
    """Return stored inputs for a digest: of a secret one the print, which only the key can compute."""
    return {name: identity_of(value) for name, value in stored.items()}


def _hash_request(request: JobRequest, graph: Graph, inputs: JsonObject) -> str:
    """Return a digest of what an idempotency key stands for: fields that have their default are left out."""
    source = []
    if request.resumed_from is not None:
        source = [request.resumed_from, graph.content_hash, *sorted(request.redo)]
    options: JsonObject = {} if request.version is None else {"requested_version": request.version}
    for name, option in SUBMITTER_OPTIONS.items():
        value = getattr(request, name)
        if option.is_identity and value != DEFAULTS[name]:
            options[name] = value
    body = [graph.workflow_id, inputs, *source, *([options] if options else [])]
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def audit_entries(jobs: Sequence[NewJob], origin: ChangeOrigin | None) -> list[AuditEntry]:
    """Return the entries of jobs for the audit trail; none if their submitter is not recorded there."""
    if origin is None:
        return []
    return [origin.entry("job.submit", "job", job.id, _audited(job), actor=job.submitted_by) for job in jobs]


def _audited(job: NewJob) -> dict[str, JsonValue]:
    resumed: dict[str, JsonValue] = {} if job.resumed_from is None else {"resumed_from": job.resumed_from}
    return {"workflow_id": job.workflow_id, "version": job.version, **resumed}


def check_options(options: JobOptions) -> None:
    """Raise `SubmissionRejected` about the first option that is not valid."""
    if not 0 <= options.priority <= MAX_PRIORITY:
        raise SubmissionRejected(f"priority must be between 0 and 10 (most urgent), not {options.priority}")
    texts = _texts_of(options)
    if texts == _NO_TEXTS:
        return
    for (name, (min_length, max_length)), text in zip(_LENGTHS.items(), texts, strict=True):
        if text is None or (min_length <= len(text) <= max_length and text.isprintable()):
            continue
        bounds = f"{min_length} to {max_length}" if min_length else f"at most {max_length}"
        raise SubmissionRejected(f"{name} must have {bounds} printable characters, not {text[:40]!r}")


def _check_conflicts(answers: Sequence[Accepted]) -> None:
    for accepted in answers:
        if not accepted.same:
            raise _idempotency_conflict(accepted)


def _idempotency_conflict(accepted: Accepted) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"this idempotency key was used for another job, {accepted.job_id}, by a request that differs in its"
        " workflow, inputs or options: use a new key for a new job"
    )

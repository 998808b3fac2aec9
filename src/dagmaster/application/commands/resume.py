"""Resume a finished job: as a new run of it, or as a new job that reuses its results where they fit.

With the same inputs and version it is a new run: what failed, was cancelled, or was skipped because of it
runs again, and so do the nodes that are named and all that follow them. With other inputs or another version
it is a new job. `plan_resume` and `plan_retry` are the dry runs: they return what would be reused and what
redone, and change nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dagmaster.application.access import check_scope, check_workflow
from dagmaster.application.checks import accept_inputs_apart
from dagmaster.application.commands.control import find_retriable_nodes
from dagmaster.application.commands.resumed_secrets import check_given_again, kept_secrets
from dagmaster.application.commands.sending import WAIT_SECONDS, OutgoingCommand, check_sender, send_command
from dagmaster.application.job_lookup import find_job
from dagmaster.application.node_lookup import find_node
from dagmaster.application.secret_inputs import JobRedactor, redactor_of
from dagmaster.application.submission import JobRequest, JobSubmitter, accepted_result
from dagmaster.application.views.results import PlannedChildrenView, PlannedNodeView, ResumePlanView
from dagmaster.application.workflow_lookup import find_published_graph
from dagmaster.authoring.added_nodes import PYTHON_WORKFLOW
from dagmaster.authoring.inputs import check_types, parse_inputs
from dagmaster.engine.events import ResumeRequested, RetryRequested
from dagmaster.engine.expressions.secret_parts import secret_names
from dagmaster.engine.fingerprints import digest
from dagmaster.engine.graph import WaitSpec, is_hold
from dagmaster.engine.model import Job
from dagmaster.engine.node_values import nodes_with_inputs
from dagmaster.engine.resume_plan import ResumeContext, ReuseKind, plan_new_job, plan_nothing, plan_rerun
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.errors import (
    CommandInvalid,
    CommandRejected,
    JobNotFinished,
    JobNotFound,
    NodeNotFound,
    NothingToResume,
)
from dagmaster.orchestrator.dry_run import dry_run_job
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_options import MAX_CORRELATION_ID
from dagmaster.ports.secret_vault import (
    InputOwner,
    earlier_identities,
    identity_of,
    open_inputs,
    readable_inputs,
    seal_inputs,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.application.views.results import CommandResult, SubmitResult
    from dagmaster.engine.graph import Graph
    from dagmaster.engine.resume_plan import ReuseDecision
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.records.jobs import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest:
    """What to resume a job with. What is not named stays as it was."""

    sent_by: str
    from_nodes: tuple[str, ...] = ()
    """Nodes to run again, with everything that follow them, even if they completed."""
    inputs: Mapping[str, JsonValue] = field(default_factory=dict)
    input_texts: Mapping[str, str] = field(default_factory=dict)
    """Inputs as text, parsed as the workflow declares them."""
    version: int | None = None
    idempotency_key: str | None = None

    @property
    def named_inputs(self) -> frozenset[str]:
        return frozenset({*self.inputs, *self.input_texts})

    @property
    def has_changes(self) -> bool:
        """Return whether an input or a version is named, even if it is the one that the job had."""
        return bool(self.named_inputs) or self.version is not None


async def resume_job(
    app: Application, job_id: str | None, request: ResumeRequest, *, wait_seconds: float = WAIT_SECONDS
) -> CommandResult | SubmitResult:
    """Resume a finished job; return the result of the command, or of the submission for a new job."""
    resume = await _check_request(app, job_id, request)
    if resume.is_new_job:
        return await _submit(app, resume)
    if resume.is_noop:
        same = " with these inputs and this version" if request.has_changes else ""
        raise NothingToResume(f"job {resume.job.job_id} completed{same}: name the nodes to run again")
    command = OutgoingCommand(
        kind=CommandKind.RESUME,
        sent_by=request.sent_by,
        effects=frozenset({EventType.JOB_RESUMED}),
        body={"nodes": list(request.from_nodes)},
    )
    result = await send_command(app, resume.job, command, wait_seconds=wait_seconds)
    await _release_holds(app, resume)
    return result


async def plan_resume(app: Application, job_id: str | None, request: ResumeRequest) -> ResumePlanView:
    """Return what a resume would do, and change nothing; raise what `resume_job` would raise.

    Nothing to do is also a plan, where `resume_job` raises `NothingToResume`.
    """
    resume = await _check_request(app, job_id, request)
    if resume.is_new_job:
        return await _plan_new_job(app, resume)
    if resume.is_noop:
        return await _plan_nothing(app, resume)
    named = frozenset(request.from_nodes)
    return await _plan_run(app, resume.job, resume.graph, ResumeRequested(request.from_nodes), named)


async def plan_retry(app: Application, job_id: str | None, node_id: str) -> ResumePlanView:
    """Return what a retry of a node would do, and change nothing; raise what `retry_node` would raise."""
    return await plan_retry_nodes(app, job_id, [node_id])


async def plan_retry_nodes(app: Application, job_id: str | None, node_ids: Sequence[str]) -> ResumePlanView:
    """Return what a retry of nodes would do, and change nothing; raise what `retry_nodes` would raise."""
    job, nodes = await find_retriable_nodes(app, job_id, node_ids)
    graph = await app.graphs.of_job(job)
    # A node that failed or was cancelled is redone because of that, not because it is named.
    named = frozenset(node.node_id for node in nodes if node.status is NodeStatus.READY)
    return await _plan_run(app, job, graph, RetryRequested(tuple(node.node_id for node in nodes)), named)


async def _release_holds(app: Application, resume: _Resume) -> None:
    """Release the holds of the contexts that made the job: it has finished, so they have exited."""
    if resume.job.workflow_id != PYTHON_WORKFLOW:
        return
    specs = resume.graph.specs.values()
    signals = {spec.id: spec.signal for spec in specs if isinstance(spec, WaitSpec) and is_hold(spec.id)}
    for node in await app.read.nodes(resume.job.job_id, list(signals)):
        if node.status != NodeStatus.COMPLETED:
            body: JsonObject = {"name": signals[node.node_id], "payload": None}
            await app.client.send(resume.job.job_id, CommandKind.SIGNAL, body, resume.request.sent_by)


# ── Preconditions ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resume:
    """A request that passed its checks: the job, its graph, and the graph and inputs to resume it with."""

    job: JobRecord
    source_graph: Graph
    graph: Graph
    inputs: JsonObject
    request: ResumeRequest
    changed: frozenset[str] = frozenset()
    """The inputs that a new job would change."""
    prints: JsonObject = field(default_factory=dict)
    """The inputs of a new job as its idempotency key has them: of a secret one, the print."""
    earlier_prints: tuple[JsonObject, ...] = ()
    """The same as before a rotation."""

    @property
    def is_new_job(self) -> bool:
        """Return whether the graph or an input differs. A secret input that is named counts as changed."""
        return self.graph.content_hash != self.source_graph.content_hash or bool(self.changed)

    @property
    def given_again(self) -> frozenset[str]:
        """Return the nodes that depend on secret inputs that are named: their results are never reused.

        Else which of them a new job reuses would say whether a guess of a secret is right.
        """
        return nodes_with_inputs(self.graph, secret_names(self.graph.inputs) & self.request.named_inputs)

    @property
    def redo(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.request.from_nodes, *sorted(self.given_again))))

    @property
    def is_noop(self) -> bool:
        """Return whether every node keeps its result: the job completed, and nothing is named or changed."""
        return not self.is_new_job and self.job.status is JobStatus.COMPLETED and not self.request.from_nodes

    @property
    def idempotency_key(self) -> str:
        """Return the key of the new job; by default the same resume, sent twice, is one job."""
        named = self.request.idempotency_key
        return self._default_key(self.prints) if named is None else named

    @property
    def earlier_keys(self) -> list[str]:
        """Return the keys that the same resume had before a rotation."""
        is_default = self.request.idempotency_key is None
        return [self._default_key(prints) for prints in self.earlier_prints if is_default]

    def _default_key(self, prints: JsonObject) -> str:
        body = json.dumps([self.graph.content_hash, prints, sorted(self.request.from_nodes)], sort_keys=True)
        return f"resume:{self.job.job_id}:{digest(body).hex()}"


async def _check_request(app: Application, job_id: str | None, request: ResumeRequest) -> _Resume:
    check_sender(request.sent_by)
    job = await find_job(app, job_id)
    if not job.is_finished:
        raise JobNotFinished(f"job {job.job_id} is {job.status}: only a finished job can be resumed")
    if request.has_changes:
        # It may be a submission, with what was submitted before. Whether it is one says whether the inputs
        # are the same: who may not submit is not told.
        check_scope(app.caller, Scope.SUBMIT)
        check_workflow(app.caller, job.workflow_id)
    source_graph = await app.graphs.of_job(job)
    graph = source_graph
    if request.version is not None:
        graph = await find_published_graph(app, job.workflow_id, request.version)
    resume = _Resume(
        job=job, source_graph=source_graph, graph=graph, inputs=dict(job.inputs), request=request
    )
    if graph is not source_graph or request.named_inputs:
        resume = await _with_inputs(app, resume)
    if resume.changed:
        check_given_again(resume.graph, resume.inputs, request.named_inputs)
    for node_id in request.from_nodes:
        await _check_node(app, resume, node_id)
    if not resume.is_new_job and request.idempotency_key is not None:
        raise CommandInvalid(
            "a new run of the same job has no idempotency key; a key is for a new job (other inputs or"
            " version)"
        )
    return resume


async def _with_inputs(app: Application, resume: _Resume) -> _Resume:
    """Return a resume with the inputs of a new job: the changes of the request are applied."""
    request, graph = resume.request, resume.graph
    texts = parse_inputs(graph, request.input_texts)
    before = _values_before(app, resume, replaced={*request.inputs, *texts})
    kept = {name: value for name, value in before.items() if name in graph.inputs}
    secrets = kept_secrets(resume.source_graph, graph, kept, request.named_inputs)
    check_types(graph.inputs, secrets)
    sent = {name: value for name, value in kept.items() if name not in secrets}
    sent.update(request.inputs)
    sent.update(texts)
    definitions = {name: graph.inputs[name] for name in graph.inputs if name not in secrets}
    accepted = await accept_inputs_apart(app.checks, replace(graph, inputs=definitions), sent)
    inputs = {**accepted, **secrets}
    owner = InputOwner(job_id="", workflow_id=graph.workflow_id)
    names = secret_names(graph.inputs)
    sealed = await seal_inputs(app.vault, owner, names, inputs)
    return replace(
        resume,
        inputs=inputs,
        changed=changed_names(before, inputs) | (request.named_inputs & names),
        prints={name: identity_of(value) for name, value in sealed.items()},
        earlier_prints=tuple(earlier_identities(app.vault, owner, names, inputs)) if names else (),
    )


def _values_before(app: Application, resume: _Resume, replaced: set[str]) -> JsonObject:
    """Return the inputs of the job; raise `SecretUnreadable` about a secret one that is needed."""
    job, names = resume.job, secret_names(resume.source_graph.inputs)
    needed = {name for name in job.inputs if name in resume.graph.inputs and name not in replaced}
    kept = {name: value for name, value in job.inputs.items() if name in needed}
    return {
        **readable_inputs(app.vault, job.job_id, names, job.inputs),
        **open_inputs(app.vault, job.job_id, names, kept),
    }


async def _check_node(app: Application, resume: _Resume, node_id: str) -> None:
    graph = resume.graph
    if node_id in graph.specs:
        return
    if resume.is_new_job and node_id in resume.source_graph.specs:
        raise NodeNotFound(f"version {graph.version} of {graph.workflow_id} has no node {node_id!r}")
    fan_out = node_id.partition("__")[0]
    if resume.is_new_job and fan_out in graph.specs:
        raise CommandInvalid(
            f"a new job creates its children from scratch: name their fan-out, {fan_out}, instead"
        )
    await find_node(app, resume.job, graph, node_id)


def changed_names(before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> frozenset[str]:
    """Return the names whose JSON differs. A handler can tell true, 1 and 1.0 apart."""
    texts = [
        {name: json.dumps(value, sort_keys=True) for name, value in values.items()}
        for values in (before, after)
    ]
    return frozenset(name for name in {*before, *after} if texts[0].get(name) != texts[1].get(name))


# ── A new job ───────────────────────────────────────────────────────────────────────────────────────────────


async def _submit(app: Application, resume: _Resume) -> SubmitResult:
    job = resume.job
    source = await _load_job(app, job.job_id)
    request = JobRequest(
        accepted=(resume.graph.content_hash, resume.inputs),
        name="" if job.name == job.workflow_id else job.name,
        priority=job.priority,
        idempotency_key=resume.idempotency_key,
        submitted_by=resume.request.sent_by,
        tenant=job.tenant,
        # Jobs of the first versions could have longer ones.
        correlation_id=None if job.correlation_id is None else job.correlation_id[:MAX_CORRELATION_ID],
        callback_url=source.new.callback_url,
        workflows=source.workflows,
        resumed_from=job.job_id,
        redo=resume.redo,
    )
    submitter = JobSubmitter(
        app.client, await app.client.lease_ids(), app.origin, env=app.env, vault=app.vault
    )
    for key in resume.earlier_keys:
        earlier = await submitter.make_job(replace(request, idempotency_key=key), resume.graph)
        if duplicates := await app.client.find_duplicates([earlier]):
            return accepted_result(earlier, duplicates[0])
    (accepted,) = await submitter.submit(resume.graph, request)
    return accepted_result(await submitter.make_job(request, resume.graph), accepted)


async def _load_job(app: Application, job_id: str) -> ClaimedJob:
    job = await app.results.load_job(job_id)
    if job is None:
        raise JobNotFound(f"there is no job {job_id!r}")
    return job


# ── Dry runs ────────────────────────────────────────────────────────────────────────────────────────────────


async def _plan_run(
    app: Application,
    job: JobRecord,
    graph: Graph,
    event: ResumeRequested | RetryRequested,
    named: frozenset[str],
) -> ResumePlanView:
    stored = await _load_job(app, job.job_id)
    context = await _resume_context(app, named=named)
    rebuilt = Job.rebuild(graph, stored.row, stored.nodes)
    decisions = plan_rerun(rebuilt, event, job.read_at, context)
    if isinstance(decisions, str):
        raise CommandRejected(decisions)
    redact = redactor_of(graph.inputs, job)
    return _plan_view(job, graph, decisions, context, redact=redact, run=rebuilt.run)


async def _plan_nothing(app: Application, resume: _Resume) -> ResumePlanView:
    job, graph = resume.job, resume.graph
    stored = await _load_job(app, job.job_id)
    context = await _resume_context(app)
    decisions = plan_nothing(Job.rebuild(graph, stored.row, stored.nodes), context)
    return _plan_view(job, graph, decisions, context, redact=redactor_of(graph.inputs, job))


async def _plan_new_job(app: Application, resume: _Resume) -> ResumePlanView:
    job = resume.job
    stored = await _load_job(app, job.job_id)
    context = await _resume_context(
        app,
        named=frozenset(resume.request.from_nodes),
        given_again=resume.given_again,
        inputs=resume.changed,
        env=changed_names(stored.env, app.env),
    )
    planned = await dry_run_job(
        app.results,
        resume.graph,
        inputs=resume.inputs,
        env=app.env,
        workflows=stored.workflows,
        source=await app.results.load_source_job(job.job_id),
        redo=resume.redo,
        now=job.read_at,
        vault=app.vault,
    )
    decisions = plan_new_job(planned, Job.rebuild(resume.source_graph, stored.row, stored.nodes), context)
    before = redactor_of(resume.source_graph.inputs, job)
    redact = JobRedactor(resume.graph.inputs, resume.inputs).with_secrets(before.secrets)
    return _plan_view(job, resume.graph, decisions, context, redact=redact, is_new_job=True)


async def _resume_context(app: Application, **changes: frozenset[str]) -> ResumeContext:
    handlers = await app.results.known_handlers()
    has_workers = (await app.read.fleet_counts()).workers > 0
    return ResumeContext(
        versions=handlers.versions, served=handlers.served if has_workers else None, **changes
    )


def _plan_view(
    job: JobRecord,
    graph: Graph,
    decisions: Sequence[ReuseDecision],
    context: ResumeContext,
    *,
    redact: JobRedactor,
    is_new_job: bool = False,
    run: int | None = None,
) -> ResumePlanView:

    def nodes(kind: ReuseKind) -> tuple[PlannedNodeView, ...]:
        return tuple(_node_view(decision, redact) for decision in decisions if decision.kind is kind)

    return ResumePlanView(
        job_id=job.job_id,
        workflow_id=graph.workflow_id,
        version=graph.version,
        is_new_job=is_new_job,
        run=run,
        has_workers=context.served is not None,
        reused=nodes(ReuseKind.REUSED),
        redone=nodes(ReuseKind.REDONE),
        impossible=nodes(ReuseKind.IMPOSSIBLE),
    )


def _node_view(decision: ReuseDecision, redact: JobRedactor) -> PlannedNodeView:
    children = None if decision.children is None else PlannedChildrenView(*decision.children)
    reason = str(redact(decision.reason))
    return PlannedNodeView(
        node=decision.node, reason=reason, children=children, is_added_again=decision.is_added_again
    )

"""Publish workflow versions, and choose the version that new jobs get.

A published version does not change, so that the same request means the same job; `replace` is for
development. Jobs keep the graph that they were submitted with.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.views.results import ActivateResult, PublishOutcome, PublishResult
from dagmaster.application.workflow_lookup import find_version, load_versions
from dagmaster.authoring.compiler.node_specs import retry_definition
from dagmaster.engine.expressions.secret_parts import REDACTED
from dagmaster.engine.retry import RetryPolicy
from dagmaster.errors import Problem, WorkflowChanged, WorkflowInvalid, WorkflowVersionConflict
from dagmaster.ports.job_records import StoredWorkflow
from dagmaster.records.workflows import state_of, state_tag
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.audit_trail import AuditEntry, ChangeOrigin
    from dagmaster.records.workflows import VersionRecord

ANY_STATE: Final = "*"
"""Stands for every state of a workflow that is published."""
UNPUBLISHED: Final = state_tag(())
"""The state of a workflow of which nothing is published."""


@dataclass(frozen=True, slots=True)
class WorkflowSource:
    """A compiled workflow, and the file that it comes from."""

    graph: Graph
    file: str = ""


async def publish_workflows(
    app: Application,
    sources: Sequence[WorkflowSource],
    *,
    replace: bool = False,
    activate: bool = True,
    expected: Mapping[str, Collection[str]] | None = None,
) -> list[PublishResult]:
    """Publish versions, all or none; raise `WorkflowVersionConflict` about those with other content.

    `expected`: the states (`WorkflowDetailView.state`) of which a workflow must have one, by its id. Raise
    `WorkflowChanged` if another caller has changed it.
    """
    _check_secret_defaults(sources)
    conflicts = _conflicts_among(sources)
    results: list[PublishResult] = []
    states: dict[str, str] = {}
    entries: list[AuditEntry] = []
    for source in sources:
        records = await app.read.versions(source.graph.workflow_id, is_own=True)
        states |= _check_state(source.graph.workflow_id, records, expected)
        versions = {record.version: record for record in records}
        outcome = await _outcome(app, source.graph, versions, replace=replace)
        if outcome is None:
            conflicts.append(_conflict(source, versions))
            continue
        was_active = source.graph.version in versions and versions[source.graph.version].is_active
        results.append(_result(source, outcome, is_active=activate or was_active))
        is_change = outcome is not PublishOutcome.UNCHANGED or (activate and not was_active)
        if app.origin is not None and is_change:
            entries.append(_audit_entry(app.origin, results[-1]))
    if conflicts:
        raise WorkflowVersionConflict("\n".join([*conflicts, "nothing was published"]))
    graphs = [source.graph for source in sources]
    workflows = await _store_graphs(app, graphs)
    if not await app.client.publish(*workflows, activate=activate, expected=states, audit=entries):
        raise await _changed_meanwhile(app, [graph.workflow_id for graph in graphs], expected)
    return results


async def _store_graphs(app: Application, graphs: Sequence[Graph]) -> list[StoredWorkflow]:
    for graph in graphs:
        await app.client.put_graph(graph.content_hash, json.dumps(graph.definition))
    return [StoredWorkflow(graph.workflow_id, graph.version, graph.content_hash) for graph in graphs]


async def _changed_meanwhile(
    app: Application, workflow_ids: Sequence[str], expected: Mapping[str, Collection[str]] | None
) -> WorkflowChanged:
    """Return the error about workflows that were changed between the check and the transaction."""
    try:
        for workflow_id in workflow_ids:
            _check_state(workflow_id, await app.read.versions(workflow_id, is_own=True), expected)
    except WorkflowChanged as error:
        return error
    return WorkflowChanged("another caller changes the workflow at the same time: read it again")


def _check_secret_defaults(sources: Sequence[WorkflowSource]) -> None:
    """Raise `WorkflowInvalid` about a definition as it is shown: jobs would get *** instead of the secret."""
    problems = [
        Problem(
            message=f"the default of secret input {name!r} is {REDACTED}:"
            " that stands for a value that is not shown",
            file=source.file,
            path=f"inputs.{name}.default",
            hint="write the secret again, or leave the default out",
        )
        for source in sources
        for name, declared in (source.graph.definition.get("inputs") or {}).items()
        if declared and declared.get("secret") and declared.get("default") == REDACTED
    ]
    if problems:
        raise WorkflowInvalid(problems)


async def activate_version(
    app: Application, workflow_id: str, version: int, *, expected: Collection[str] | None = None
) -> ActivateResult:
    """Make a published version the one that new jobs get; raise `WorkflowNotFound` if it is not published.

    `expected`: the states of which the workflow must have one, as of `publish_workflows`.
    """
    # A tenant does not change the installation's workflows.
    versions = await load_versions(app, workflow_id, is_own=True)
    by_id = None if expected is None else {workflow_id: expected}
    states = _check_state(workflow_id, versions, by_id)
    chosen = find_version(versions, version)
    previous = next((record.version for record in versions if record.is_active), None)
    change: dict[str, JsonValue] = {"version": version, "previous_version": previous}
    entries = (
        [] if app.origin is None else [app.origin.entry("workflow.activate", "workflow", workflow_id, change)]
    )
    if not await app.client.activate(workflow_id, version, expected=states, audit=entries):
        raise await _changed_meanwhile(app, [workflow_id], by_id)
    return ActivateResult(
        workflow_id=workflow_id, version=version, content_hash=chosen.content_hash, previous_version=previous
    )


def _check_state(
    workflow_id: str, versions: Sequence[VersionRecord], expected: Mapping[str, Collection[str]] | None
) -> dict[str, str]:
    """Return the state that a workflow must still have while it is changed; raise `WorkflowChanged`."""
    if expected is None or workflow_id not in expected:
        return {}
    tag, tags = state_tag(versions), expected[workflow_id]
    if tag in tags or (ANY_STATE in tags and versions):
        return {workflow_id: state_of(versions)}
    active = next((record.version for record in versions if record.is_active), None)
    numbers = format_list([f"v{record.version}" for record in versions])
    is_now = f"has {numbers}, and v{active} is active" if versions else "is not published"
    raise WorkflowChanged(
        f"workflow {workflow_id!r} {is_now}: that is not what this change is based on. Read it again",
        current={
            "workflow_id": workflow_id,
            "state": tag,
            "active_version": active,
            "versions": [record.version for record in versions],
        },
    )


def _audit_entry(origin: ChangeOrigin, result: PublishResult) -> AuditEntry:
    details: dict[str, JsonValue] = {
        "version": result.version,
        "outcome": result.outcome.value,
        "is_active": result.is_active,
        "content_hash": result.content_hash,
    }
    return origin.entry("workflow.publish", "workflow", result.workflow_id, details)


def _conflicts_among(sources: Sequence[WorkflowSource]) -> list[str]:
    return [
        f"{one.file} and {other.file} are the same version of it, with different content"
        for position, one in enumerate(sources)
        for other in sources[:position]
        if (one.graph.workflow_id, one.graph.version) == (other.graph.workflow_id, other.graph.version)
        and one.graph.content_hash != other.graph.content_hash
    ]


async def _outcome(
    app: Application, graph: Graph, versions: Mapping[int, VersionRecord], *, replace: bool
) -> PublishOutcome | None:
    """Return what publishing does; None if the version is published with other content, which stays."""
    published = versions.get(graph.version)
    if published is None:
        return PublishOutcome.PUBLISHED
    if published.content_hash == graph.content_hash:
        return PublishOutcome.UNCHANGED
    if replace or await _differs_in_default_retry(app, graph, published):
        return PublishOutcome.REPLACED
    return None


async def _differs_in_default_retry(app: Application, graph: Graph, published: VersionRecord) -> bool:
    """Return whether the published definition differs only in default retries that older versions wrote."""
    definition = await app.read.definition(published.content_hash)
    nodes = {node_id: _fill_retry(node) for node_id, node in graph.definition["nodes"].items()}
    return definition == {**graph.definition, "nodes": nodes}


def _fill_retry(node: Mapping[str, Any]) -> dict[str, Any]:
    task = {"task": _fill_retry(node["task"])} if "task" in node else {}
    return {**({"retry": retry_definition(RetryPolicy())} if "handler" in node else {}), **node, **task}


def _conflict(source: WorkflowSource, versions: Mapping[int, VersionRecord]) -> str:
    graph = source.graph
    return (
        f"{graph.workflow_id} v{graph.version} is published with other content: raise `version:` to"
        f" {max(versions) + 1} in {source.file or 'the file'}, or replace it while you develop it"
    )


def _result(source: WorkflowSource, outcome: PublishOutcome, *, is_active: bool) -> PublishResult:
    return PublishResult(
        file=source.file,
        workflow_id=source.graph.workflow_id,
        version=source.graph.version,
        content_hash=source.graph.content_hash,
        outcome=outcome,
        is_active=is_active,
    )

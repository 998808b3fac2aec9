"""A workflow: how its jobs do, its graph, its definition, its versions and what differs between two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import yaml

from dagmaster.text_format import format_count
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.charts import BarChart, duration_chart, history_chart
from dagmaster.ui.pages.job_rows import JobRow
from dagmaster.ui.pages.tabs import Tab
from dagmaster.ui.pages.times import Moment, format_optional, moment
from dagmaster.ui.pages.workflow_rows import (
    FailureRow,
    Numbers,
    SuccessRate,
    failure_rows,
    success_rate,
    workflow_numbers,
    workflow_path,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import (
        GraphView,
        JobRecord,
        NodeMetricsRecord,
        NodeMetricsReport,
        VersionDiffView,
        WorkflowDetailView,
        WorkflowHistoryReport,
        WorkflowMetricsRecord,
    )

MAX_LINES: Final = 5_000
"""How many lines of a definition are shown; the rest is downloaded."""
MAX_NODES: Final = 500
"""How many nodes the table next to a graph has."""
MAX_VALUE: Final = 4_000
"""How many characters of a changed value are shown."""
_HEAD_KEYS: Final = ("workflow_id", "version", "name", "description", "tags", "inputs")
_TABS: Final = (
    ("", "Summary", "pulse"),
    ("graph", "Graph", "graph"),
    ("definition", "Definition", "braces"),
    ("versions", "Versions", "stack"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowHead:
    """What all views of a workflow begin with. `version`: the one that is shown."""

    workflow_id: str
    name: str
    description: str
    tags: tuple[str, ...]
    version: int
    is_active: bool
    active_version: int | None
    active_href: str
    published: Moment | None
    content_hash: str
    tabs: tuple[Tab, ...]
    submit: str
    edit: str
    diagram: str
    graph: str
    document: str


@dataclass(frozen=True, slots=True)
class NodeLine:
    """How a node did in finished jobs. `share`: its p95 of the longest one, in percent."""

    node_id: str
    executions: str
    success: SuccessRate | None
    retries: str
    p50: str
    p95: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowPage:
    """One view of a workflow. `template`: that of the view."""

    template: ClassVar[str]
    head: WorkflowHead

    @property
    def title(self) -> str:
        return self.head.workflow_id


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSummaryPage(WorkflowPage):
    """How the jobs of a workflow do."""

    template = "workflow/summary.html"
    days: int
    numbers: Numbers
    counting: str
    finished: BarChart
    durations: BarChart
    nodes: tuple[NodeLine, ...]
    failures: tuple[FailureRow, ...]
    recent: tuple[JobRow, ...]
    all_jobs: str


@dataclass(frozen=True, slots=True)
class GraphLine:
    """A node of the graph, and the nodes that it comes after."""

    node_id: str
    kind: str
    action: str
    description: str
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowGraphPage(WorkflowPage):
    """The graph of a version, drawn and as a table. `left_out`: how many nodes the table does not have."""

    template = "workflow/graph.html"
    lines: tuple[GraphLine, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDefinitionPage(WorkflowPage):
    """The text of a version. `left_out`: how many lines are not shown."""

    template = "workflow/definition.html"
    lines: tuple[str, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A published version. `compare`: where it is compared with the one before."""

    version: int
    href: str
    is_active: bool
    published: Moment | None
    content_hash: str
    compare: str


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """A part of the definition that differs. `kind`: added, removed or changed."""

    path: str
    kind: str
    tone: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowVersionsPage(WorkflowPage):
    """All versions, newest first, and what differs between two of them."""

    template = "workflow/versions.html"
    versions: tuple[VersionLine, ...]
    before: int | None
    after: int | None
    changes: tuple[ChangeLine, ...]
    summary: str


def workflow_head(detail: WorkflowDetailView, tab: str, now: float) -> WorkflowHead:
    name, version = detail.workflow_id, detail.version
    active = next((one.version for one in detail.versions if one.is_active), None)
    shown = None if detail.is_active else version
    api = f"/api/v1{workflow_path(name).removeprefix('/ui')}"
    return WorkflowHead(
        workflow_id=name,
        name=_text(detail.definition.get("name")),
        description=_text(detail.definition.get("description")),
        tags=_texts(detail.definition.get("tags")),
        version=version,
        is_active=detail.is_active,
        active_version=active,
        active_href=workflow_path(name, *filter(None, [tab])),
        published=moment(detail.published_at, now),
        content_hash=detail.content_hash,
        tabs=tuple(
            Tab(label, icon, workflow_path(name, *filter(None, [path]), version=shown), path == tab)
            for path, label, icon in _TABS
        ),
        submit=with_query("/ui/submit", workflow_id=name, version=shown),
        edit=with_query("/ui/editor", workflow_id=name, version=version),
        diagram=f"{api}/diagram.svg?version={version}",
        graph=f"{api}/graph?version={version}",
        document=f"{api}?version={version}",
    )


def summary_page(
    head: WorkflowHead,
    *,
    days: int,
    metrics: WorkflowMetricsRecord | None,
    nodes: NodeMetricsReport,
    history: WorkflowHistoryReport,
    recent: Sequence[JobRecord],
) -> WorkflowSummaryPage:
    longest = max((node.p95_duration or 0.0 for node in nodes.nodes), default=0.0)
    pending = history.pending_jobs
    return WorkflowSummaryPage(
        head=head,
        days=days,
        numbers=workflow_numbers(metrics),
        counting=f"{format_count(pending, 'finished job is', 'finished jobs are')} counted within a minute."
        if pending
        else "",
        finished=history_chart(history),
        durations=duration_chart(history),
        nodes=tuple(_node_line(node, longest) for node in nodes.nodes),
        failures=() if metrics is None else failure_rows(metrics.common_failures, history.until),
        recent=tuple(map(JobRow, recent)),
        all_jobs=with_query("/ui/jobs", workflow_id=head.workflow_id),
    )


def graph_page(head: WorkflowHead, graph: GraphView) -> WorkflowGraphPage:
    needs: dict[str, list[str]] = {}
    for edge in graph.edges:
        branches = f" ({' or '.join(edge.branches)})" if edge.branches else ""
        needs.setdefault(edge.target, []).append(f"{edge.source}{branches}")
    lines = [
        GraphLine(
            node.node_id,
            node.kind.value.replace("_", " "),
            node.action,
            node.description or "",
            tuple(needs.get(node.node_id, ())),
        )
        for node in graph.nodes[:MAX_NODES]
    ]
    return WorkflowGraphPage(head=head, lines=tuple(lines), left_out=max(len(graph.nodes) - MAX_NODES, 0))


def definition_page(head: WorkflowHead, text: str) -> WorkflowDefinitionPage:
    lines = text.splitlines()
    return WorkflowDefinitionPage(
        head=head,
        lines=tuple(lines[:MAX_LINES]),
        left_out=max(len(lines) - MAX_LINES, 0),
    )


def versions_page(
    head: WorkflowHead, detail: WorkflowDetailView, diff: VersionDiffView | None, now: float
) -> WorkflowVersionsPage:
    changes = () if diff is None else tuple(map(_change_line, diff.changes))
    lines = []
    previous = None
    for one in detail.versions:
        compare = workflow_path(one.workflow_id, "versions", before=previous, after=one.version)
        lines.append(
            VersionLine(
                one.version,
                workflow_path(one.workflow_id, "definition", version=one.version),
                one.is_active,
                moment(one.published_at, now),
                one.content_hash,
                "" if previous is None else f"{compare}#difference",
            )
        )
        previous = one.version
    return WorkflowVersionsPage(
        head=head,
        versions=tuple(reversed(lines)),
        before=None if diff is None else diff.before,
        after=None if diff is None else diff.after,
        changes=changes,
        summary=format_count(len(changes), "change"),
    )


def choose_versions(
    detail: WorkflowDetailView, before: int | None, after: int | None
) -> tuple[int | None, int | None]:
    """Return the versions to compare: the named ones, else the last two; None if there is only one."""
    numbers = [one.version for one in detail.versions]
    if after is None:
        after = numbers[-1]
    if before is None:
        before = max((number for number in numbers if number < after), default=None)
    return (None, None) if before is None else (before, after)


def format_definition(definition: dict[str, Any]) -> str:
    """Return a definition as YAML, its head first: what is stored has its keys in order of the alphabet."""
    head = {key: definition[key] for key in _HEAD_KEYS if key in definition}
    return _format_yaml({**head, **definition})


def _format_yaml(value: Any) -> str:
    # The C library is several times as quick, and is there in usual installations.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


def _node_line(node: NodeMetricsRecord, longest: float) -> NodeLine:
    return NodeLine(
        node.node_id,
        f"{node.total_executions:,}",
        success_rate(node.success_rate),
        f"{node.total_retries:,}",
        format_optional(node.p50_duration),
        format_optional(node.p95_duration),
        round((node.p95_duration or 0.0) / longest * 100, 1) if longest else 0.0,
    )


def _change_line(change: Any) -> ChangeLine:
    kind = change.kind.value
    tone = {"added": "ok", "removed": "failed", "changed": "warning"}[kind]
    return ChangeLine(change.path or "everything", kind, tone, _value(change.before), _value(change.after))


def _value(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else _format_yaml(value).strip().removesuffix("\n...")
    return f"{text[:MAX_VALUE]}…" if len(text) > MAX_VALUE else text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()

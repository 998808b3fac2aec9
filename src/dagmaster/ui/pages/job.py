"""The page of a job: its head, which says why it is as it is, and the tabs below it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.diagnosis import is_failure, is_success
from dagmaster.application.node_lookup import is_written
from dagmaster.application.views import JobStatus, NodeStatus, Page, ReasonCode
from dagmaster.text_format import format_count
from dagmaster.ui.pages.addresses import page_hrefs, with_query
from dagmaster.ui.pages.job_rows import JobRow, job_path
from dagmaster.ui.pages.node_rows import NodeRow, node_path
from dagmaster.ui.pages.tabs import Tab
from dagmaster.ui.pages.times import Moment, format_seconds, moment
from dagmaster.ui.pages.workflow_rows import workflow_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import (
        EstimateView,
        EventView,
        JobDetailView,
        JobRecord,
        LogView,
        NodeRecord,
        ReasonView,
    )
    from dagmaster.application.views.footprints import FootprintsView

TABS: Final = (
    ("graph", "Graph", "graph"),
    ("timeline", "Timeline", "timeline"),
    ("nodes", "Nodes", "list"),
    ("events", "Events", "event"),
    ("values", "Inputs and outputs", "braces"),
    ("logs", "Logs", "log"),
    ("map", "Map", "map"),
)
"""The tabs of a job: the last part of the path, the label, the icon. The first is the job's own page."""
MAX_NAMES: Final = 3
"""How many nodes are named above their log; more are counted."""
_ELEMENTS: Final = {"graph": "dag-graph", "timeline": "job-timeline", "logs": "log-view", "map": "job-map"}
"""The custom element of a tab; its module has the same name."""
MAX_VALUE: Final = 64 * 1024
"""The most characters of a value that a page shows; the rest can be downloaded."""
MAX_NODES: Final = 200
MAX_SELECTED: Final = 200
"""How many nodes that are selected on the map a link names: addresses must not get too long."""


@dataclass(frozen=True, slots=True)
class Link:
    """Text that leads somewhere."""

    text: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHead:
    """What every tab of a job has on top. `why`: one sentence; `because`: the nodes that it follows from.

    `workflow_href`: empty if its workflow is not published, as of `run` or a graph in code.
    """

    job: JobRow
    workflow_href: str
    why: str
    tone: str
    because: tuple[Link, ...]
    first_failure: Link | None
    remaining: str
    counts: tuple[tuple[str, str], ...]
    owner: str
    started: Moment | None
    parent: Link | None
    can_cancel: bool
    can_resume: bool
    pending_commands: tuple[str, ...]
    tabs: tuple[Tab, ...]
    api: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """One tab of a job. `template`: the tab's; `element`: its custom element; `body`: what it shows."""

    head: JobHead
    tab: str
    template: str
    element: str
    body: Any
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesBody:
    """Nodes of a job in the order in which they can run. `open_id`: the fan-out whose children are shown."""

    rows: tuple[NodeRow, ...]
    choices: tuple[tuple[str, str, bool], ...]
    open_id: str
    children: tuple[NodeRow, ...]
    children_next: str
    first: str
    next: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """An event of the job."""

    record: EventView
    at: Moment | None
    tone: str
    node: Link | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsBody:
    """A page of the audit log of a job."""

    rows: tuple[EventRow, ...]
    first: str
    next: str
    with_children: bool
    toggle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A JSON value as text. `download`: where all of it is, if it was cut off."""

    text: str
    is_cut: bool
    download: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesBody:
    """The inputs and the result of a job."""

    inputs: Value
    result: Value | None
    error: Value | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsBody:
    """The log of a job, for readers without scripts, and where an element reads it."""

    src: str
    follows: bool
    text: str
    next: str
    of: str
    """The nodes whose log it is; empty: all of them."""
    all_href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MapBody:
    """Where the children of fan-outs are."""

    src: str
    rows: tuple[tuple[Link, str, str], ...]
    max_selected: int


def job_head(
    job: JobDetailView,
    *,
    tab: str,
    reason: ReasonView | None,
    successor: str,
    failed: Sequence[NodeRecord],
    estimate: EstimateView | None,
    is_published: bool,
) -> JobHead:
    """Return the head of a job's pages. `failed`: some nodes that failed."""
    sentence, tone = _why(job, reason)
    because = () if reason is None else reason.because[:3]
    return JobHead(
        job=JobRow(job, successor),
        workflow_href=workflow_path(job.workflow_id) if is_published else "",
        why=sentence,
        tone=tone,
        because=tuple(Link(node_id, node_path(job.job_id, node_id)) for node_id in because),
        first_failure=_first_failure(job, failed),
        remaining="" if estimate is None else f"about {format_seconds(estimate.remaining_seconds)} left",
        counts=tuple(
            (status.value, f"{job.counts[status]:,}") for status in NodeStatus if job.counts.get(status)
        ),
        owner="" if job.owner is None else f"{job.owner.host}:{job.owner.pid}",
        started=moment(job.started_at, job.read_at),
        parent=job_link(job.parent_job_id),
        can_cancel=not job.is_finished and not job.is_cancelling,
        can_resume=job.is_finished and job.status is not JobStatus.COMPLETED,
        pending_commands=tuple(f"{command.kind} by {command.sent_by}" for command in job.pending_commands),
        tabs=_tabs(job.job_id, tab),
        api=f"/api/v1/jobs/{job.job_id}",
    )


def _tabs(job_id: str, selected: str) -> tuple[Tab, ...]:
    (first, *_), *_ = TABS
    hrefs = {name: job_path(job_id, name) for name, _, _ in TABS} | {first: job_path(job_id)}
    return tuple(Tab(label, icon, hrefs[name], name == selected) for name, label, icon in TABS)


def job_link(job_id: str | None) -> Link | None:
    return None if job_id is None else Link(job_id, job_path(job_id))


def node_link(job_id: str, node_id: str | None) -> Link | None:
    return None if node_id is None else Link(node_id, node_path(job_id, node_id))


def _why(job: JobDetailView, reason: ReasonView | None) -> tuple[str, str]:
    if job.status is JobStatus.COMPLETED or reason is None:
        count = format_count(job.attempts, "attempt")
        return f"Completed: {format_count(job.nodes_finished, 'node')}, {count}.", "ok"
    text = reason.sentence[:1].upper() + reason.sentence[1:]
    return (text if text.endswith((".", "?", "!")) else f"{text}."), _tone(job.status, reason.code)


def _tone(status: JobStatus, code: ReasonCode) -> str:
    if status is JobStatus.CANCELLED:
        return "skipped"
    is_idle = status in (JobStatus.WAITING, JobStatus.PENDING)
    # An approval needs a person, and nothing has failed.
    if is_failure(code) and not (is_idle and code is ReasonCode.APPROVAL):
        return "failed"
    if is_idle:
        return status.value.lower()
    return "ok" if is_success(code) else "running"


def _first_failure(job: JobRecord, failed: Sequence[NodeRecord]) -> Link | None:
    """Return the node that failed first. A fan-out fails because of a child: then it is that child."""
    fan_outs = {node.parent_node_id for node in failed}
    causes = [node for node in failed if node.node_id not in fan_outs]
    if not causes:
        return None
    first = min(
        causes, key=lambda node: (node.finished_at or float("inf"), node.fan_out_index or 0, node.node_id)
    )
    return Link(first.node_id, node_path(job.job_id, first.node_id))


def job_page(head: JobHead, tab: str, body: Any) -> JobPage:
    label = next(label for name, label, _ in TABS if name == tab)
    name = head.job.record.name if tab == TABS[0][0] else f"{label} · {head.job.record.name}"
    return JobPage(
        head=head, tab=tab, template=f"tabs/{tab}.html", element=_ELEMENTS.get(tab, ""), body=body, title=name
    )


def nodes_of_graph(
    job: JobDetailView, after: str, *, open_id: str = "", children: Page[NodeRecord] | None = None
) -> NodesBody:
    """Return a page of the workflow's nodes in topological order, and the children of one fan-out."""
    order = list(job.dependencies)
    start = order.index(after) + 1 if after in job.dependencies else 0
    shown = order[start : start + MAX_NODES]
    base = job_path(job.job_id, "nodes")
    has_more = start + MAX_NODES < len(order)
    children = children or Page(items=())
    return NodesBody(
        rows=tuple(NodeRow(job.nodes[node_id], job.read_at, job.dependencies[node_id]) for node_id in shown),
        choices=_choices(job, ""),
        open_id=open_id,
        children=tuple(NodeRow(child, job.read_at) for child in children.items),
        children_next=page_hrefs(partial(with_query, base, open=open_id), None, children.next_cursor)["next"],
        first=base if start else "",
        next=with_query(base, after=shown[-1]) if has_more else "",
        summary=f"{format_count(len(order), 'node')} of the workflow",
    )


def nodes_by_status(job: JobDetailView, status: str, page: Page[NodeRecord], cursor: str | None) -> NodesBody:
    """Return nodes with a status, children of fan-outs among them."""
    base = job_path(job.job_id, "nodes")
    return NodesBody(
        rows=tuple(NodeRow(node, job.read_at) for node in page.items),
        choices=_choices(job, status),
        open_id="",
        children=(),
        children_next="",
        **page_hrefs(partial(with_query, base, status=status), cursor, page.next_cursor),
        summary=f"{format_count(len(page.items), 'node')} on this page",
    )


def _choices(job: JobDetailView, chosen: str) -> tuple[tuple[str, str, bool], ...]:
    return tuple(
        (status.value, f"{job.counts[status]:,}", status.value.lower() == chosen)
        for status in NodeStatus
        if job.counts.get(status)
    )


_EVENT_TONES: Final = {"success": "ok", "failure": "failed", "warning": "warning"}


def events_body(
    job: JobRecord, page: Page[EventView], *, cursor: str | None, with_children: bool
) -> EventsBody:
    base = job_path(job.job_id, "events")
    children = "1" if with_children else ""
    return EventsBody(
        rows=tuple(
            EventRow(
                record=event,
                at=moment(event.at, job.read_at),
                tone=_EVENT_TONES.get(event.event_status, "pending"),
                node=node_link(job.job_id, event.node_id),
            )
            for event in page.items
            if event.node_id is None or is_written(event.node_id)
        ),
        **page_hrefs(partial(with_query, base, children=children), cursor, page.next_cursor),
        with_children=with_children,
        toggle=base if with_children else with_query(base, children="1"),
    )


def values_body(job: JobDetailView) -> ValuesBody:
    download = f"/api/v1/jobs/{job.job_id}"
    return ValuesBody(
        inputs=json_value(job.inputs, download),
        result=optional_value(job.result, f"{download}/result"),
        error=optional_value(job.error, download),
    )


def json_value(value: Any, download: str) -> Value:
    """Return a value as indented JSON, cut off after 64 KB."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return Value(text=text[:MAX_VALUE], is_cut=len(text) > MAX_VALUE, download=download)


def optional_value(value: Any, download: str) -> Value | None:
    return None if value is None else json_value(value, download)


def logs_body(
    job: JobRecord, page: Page[LogView], *, node_ids: Sequence[str] = (), attempt: int | None = None
) -> LogsBody:
    """Return a page of the log as text: of all nodes, or of some of them."""
    chosen = [("node_id", node_id) for node_id in node_ids]
    path = job_path(job.job_id, "logs")
    hrefs = page_hrefs(partial(with_query, path, *chosen, attempt=attempt), None, page.next_cursor)
    return LogsBody(
        src=with_query(f"/api/v1/jobs/{job.job_id}/logs", *chosen, attempt=attempt),
        of=", ".join(node_ids) if len(node_ids) <= MAX_NAMES else format_count(len(node_ids), "node"),
        all_href=path,
        follows=not job.is_finished,
        text="".join(chunk.text for chunk in page.items),
        next=hrefs["next"],
    )


def map_body(job: JobRecord, footprints: FootprintsView) -> MapBody:
    """Return the footprints of children, some of them as a table."""
    return MapBody(
        src=f"/api/v1/jobs/{job.job_id}/footprints",
        max_selected=MAX_SELECTED,
        rows=tuple(
            (Link(item.node_id, node_path(job.job_id, item.node_id)), item.status.value, item.error or "")
            for item in footprints.features
        ),
    )

"""Frozen views: what queries return. `to_dict()` is what `--json` prints and what an HTTP route sends."""

from dagmaster.application.views.audit import AuditView, ViolationView
from dagmaster.application.views.events_and_logs import CommandView, EventCountsView, EventView, LogView
from dagmaster.application.views.fleet import FleetView, OrchestratorView, QueueView, WorkerView
from dagmaster.application.views.footprints import FootprintsView, FootprintView
from dagmaster.application.views.jobs import CountsView, JobDetailView, JobProgressView, JobView, OwnerView
from dagmaster.application.views.nodes import (
    AttemptView,
    ChildrenView,
    NodeDetailView,
    NodeView,
    ProgressView,
    TaskView,
)
from dagmaster.application.views.page import Page
from dagmaster.application.views.view import View
from dagmaster.application.views.why import (
    ChildJobWhyView,
    GroupView,
    JobWhyView,
    LinkView,
    NodeReasonView,
    NodeWhyView,
    ReasonView,
)
from dagmaster.application.views.workflows import VersionView, WorkflowDetailView, WorkflowView
from dagmaster.engine.status import TERMINAL_JOB, TERMINAL_NODE, AttemptStatus, JobStatus, NodeStatus

__all__ = [
    "TERMINAL_JOB",
    "TERMINAL_NODE",
    "AttemptStatus",
    "AttemptView",
    "AuditView",
    "ChildJobWhyView",
    "ChildrenView",
    "CommandView",
    "CountsView",
    "EventCountsView",
    "EventView",
    "FleetView",
    "FootprintView",
    "FootprintsView",
    "GroupView",
    "JobDetailView",
    "JobProgressView",
    "JobStatus",
    "JobView",
    "JobWhyView",
    "LinkView",
    "LogView",
    "NodeDetailView",
    "NodeReasonView",
    "NodeStatus",
    "NodeView",
    "NodeWhyView",
    "OrchestratorView",
    "OwnerView",
    "Page",
    "ProgressView",
    "QueueView",
    "ReasonView",
    "TaskView",
    "VersionView",
    "View",
    "ViolationView",
    "WorkerView",
    "WorkflowDetailView",
    "WorkflowView",
]

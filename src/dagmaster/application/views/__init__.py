"""Frozen views: what queries return. `to_dict()` is what `--json` prints and what an HTTP route sends."""

from dagmaster.application.views.api_keys import ApiKeyView, NewApiKeyView
from dagmaster.application.views.audit import AuditView, ViolationView
from dagmaster.application.views.events_and_logs import CommandView, EventCountsView, EventView, LogView
from dagmaster.application.views.fleet import (
    FleetView,
    LeftJobsView,
    LeftTasksView,
    OrchestratorView,
    QueueView,
    TaskNodeView,
    WorkerView,
)
from dagmaster.application.views.footprints import FootprintsView, FootprintView
from dagmaster.application.views.jobs import (
    BlockingReasonView,
    CountsView,
    JobDetailView,
    JobProgressView,
    JobView,
    OwnerView,
)
from dagmaster.application.views.nodes import (
    AttemptView,
    ChildrenView,
    NodeDetailView,
    NodeView,
    ProgressView,
    TaskView,
)
from dagmaster.application.views.page import Page
from dagmaster.application.views.results import (
    ActivateResult,
    CommandResult,
    PlannedChildrenView,
    PlannedNodeView,
    PublishOutcome,
    PublishResult,
    ResumePlanView,
    SubmitOutcome,
    SubmitResult,
    ValidationResult,
)
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
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.graph import Kind
from dagmaster.engine.status import TERMINAL_JOB, TERMINAL_NODE, AttemptStatus, JobStatus, NodeStatus, SkipReason
from dagmaster.errors import Problem
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind

__all__ = [
    "TERMINAL_JOB",
    "TERMINAL_NODE",
    "ActivateResult",
    "ApiKeyView",
    "AttemptStatus",
    "AttemptView",
    "AuditView",
    "BlockingReasonView",
    "ChildJobWhyView",
    "ChildrenView",
    "CommandKind",
    "CommandResult",
    "CommandView",
    "CountsView",
    "EventCountsView",
    "EventType",
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
    "Kind",
    "LeftJobsView",
    "LeftTasksView",
    "LinkView",
    "LogView",
    "NewApiKeyView",
    "NodeDetailView",
    "NodeReasonView",
    "NodeStatus",
    "NodeView",
    "NodeWhyView",
    "OrchestratorView",
    "OwnerView",
    "Page",
    "PlannedChildrenView",
    "PlannedNodeView",
    "Problem",
    "ProgressView",
    "PublishOutcome",
    "PublishResult",
    "QueueView",
    "ReasonCode",
    "ReasonView",
    "ResumePlanView",
    "SkipReason",
    "SubmitOutcome",
    "SubmitResult",
    "TaskNodeView",
    "TaskView",
    "ValidationResult",
    "VersionView",
    "View",
    "ViolationView",
    "WorkerView",
    "WorkflowDetailView",
    "WorkflowView",
]

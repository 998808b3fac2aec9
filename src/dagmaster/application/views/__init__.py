"""Frozen views: what queries return. `to_dict()` is what `--json` prints and what an HTTP route sends."""

from dagmaster.application.views.api_keys import ApiKeyView, BrowserSessionView, NewApiKeyView
from dagmaster.application.views.audit import AuditBatchView, AuditView, OutputAuditView
from dagmaster.application.views.callbacks import (
    CallbackChangeResult,
    NewSigningSecretView,
    PublicKeysView,
    PublicKeyView,
)
from dagmaster.application.views.events_and_logs import (
    CommandView,
    EventCountsView,
    EventView,
    LogLineView,
    LogView,
)
from dagmaster.application.views.fleet import OrchestratorStatusView
from dagmaster.application.views.footprints import FootprintsView, FootprintView
from dagmaster.application.views.graph_tasks import (
    AddedNodesView,
    GraphDependencyView,
    GraphTaskView,
    ReleasedHoldView,
)
from dagmaster.application.views.graphs import GraphEdgeView, GraphNodeView, GraphView
from dagmaster.application.views.handlers import HandlerTestView, HandlerTrustView
from dagmaster.application.views.health import (
    HealthPartView,
    HealthState,
    HealthView,
    ReadinessView,
    SchemaVersionView,
    SchemaView,
)
from dagmaster.application.views.jobs import (
    BlockingReasonView,
    CountsView,
    CurrentTaskView,
    EstimateView,
    JobDetailView,
    JobProgressReportView,
    JobProgressView,
    NodeProgressReportView,
)
from dagmaster.application.views.metrics import (
    DurationBucketView,
    DurationReport,
    FailureReport,
    MetricRebuildView,
    NodeMetricsReport,
    ThroughputReport,
    WorkflowHistoryReport,
    WorkflowMetricsReport,
)
from dagmaster.application.views.nodes import NodeDetailView
from dagmaster.application.views.remote_tasks import (
    ClaimedTasksView,
    DeregistrationView,
    HeartbeatView,
    RegistrationView,
    TaskProgressView,
    TaskResultView,
)
from dagmaster.application.views.results import (
    ActivateResult,
    CommandResult,
    DrainResult,
    JobOutcomeView,
    JobSelectionView,
    PlannedChildrenView,
    PlannedNodeView,
    PlannedQueueView,
    PlannedStepView,
    PublishOutcome,
    PublishResult,
    RequestOutcome,
    RequestResult,
    ResumePlanView,
    SelectionResult,
    SubmissionPlanView,
    SubmitOutcome,
    SubmitResult,
    ValidationResult,
)
from dagmaster.application.views.timeline import TimelineView
from dagmaster.application.views.why import (
    ChildJobWhyView,
    GroupView,
    JobWhyView,
    LinkView,
    NodeReasonView,
    NodeWhyView,
    ReasonView,
)
from dagmaster.application.views.workflows import (
    ChangeKind,
    DefinitionChangeView,
    VersionDiffView,
    WorkflowDetailView,
)
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.graph import Kind
from dagmaster.engine.status import (
    TERMINAL_JOB,
    TERMINAL_NODE,
    AttemptStatus,
    JobStatus,
    NodeStatus,
    SkipReason,
)
from dagmaster.errors import Problem
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.audit_trail import AuditRecord
from dagmaster.ports.callbacks import CallbackFilter
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.invariant_audit import Violation
from dagmaster.records.callbacks import (
    CallbackRecord,
    DeliveryStatus,
    EndpointRecord,
    SecretKind,
    SigningSecretRecord,
)
from dagmaster.records.fleet import (
    DrainRecord,
    FleetRecord,
    LeftJobsRecord,
    LeftTasksRecord,
    OrchestratorRecord,
    QueueRecord,
    TaskNodeRecord,
    WorkerRecord,
)
from dagmaster.records.handlers import HandlerChange, HandlerRecord
from dagmaster.records.jobs import JobRecord, OwnerRecord
from dagmaster.records.metrics import (
    FailureRecord,
    NodeMetricsRecord,
    Percentiles,
    PeriodRecord,
    ThroughputBucketRecord,
    WorkflowMetricsRecord,
)
from dagmaster.records.nodes import ChildrenRecord, NodeCountsRecord, NodeRecord, ProgressRecord
from dagmaster.records.page import Page
from dagmaster.records.record import Record
from dagmaster.records.requests import (
    PlatformRecord,
    RequestProgressRecord,
    RequestRecord,
    RequestStatus,
    RequestStatusRecord,
)
from dagmaster.records.system import SystemRecord
from dagmaster.records.tasks import AttemptRecord, TaskRecord
from dagmaster.records.tenants import TenantRecord
from dagmaster.records.workflows import VersionRecord, WorkflowRecord

__all__ = [
    "TERMINAL_JOB",
    "TERMINAL_NODE",
    "ActivateResult",
    "AddedNodesView",
    "ApiKeyView",
    "AttemptRecord",
    "AttemptStatus",
    "AuditBatchView",
    "AuditRecord",
    "AuditView",
    "BlockingReasonView",
    "BrowserSessionView",
    "CallbackChangeResult",
    "CallbackFilter",
    "CallbackRecord",
    "ChangeKind",
    "ChildJobWhyView",
    "ChildrenRecord",
    "ClaimedTasksView",
    "CommandKind",
    "CommandResult",
    "CommandView",
    "CountsView",
    "CurrentTaskView",
    "DefinitionChangeView",
    "DeliveryStatus",
    "DeregistrationView",
    "DrainRecord",
    "DrainResult",
    "DurationBucketView",
    "DurationReport",
    "EndpointRecord",
    "EstimateView",
    "EventCountsView",
    "EventType",
    "EventView",
    "FailureRecord",
    "FailureReport",
    "FleetRecord",
    "FootprintView",
    "FootprintsView",
    "GraphDependencyView",
    "GraphEdgeView",
    "GraphNodeView",
    "GraphTaskView",
    "GraphView",
    "GroupView",
    "HandlerChange",
    "HandlerRecord",
    "HandlerTestView",
    "HandlerTrustView",
    "HealthPartView",
    "HealthState",
    "HealthView",
    "HeartbeatView",
    "JobDetailView",
    "JobOutcomeView",
    "JobProgressReportView",
    "JobProgressView",
    "JobRecord",
    "JobSelectionView",
    "JobStatus",
    "JobWhyView",
    "Kind",
    "LeftJobsRecord",
    "LeftTasksRecord",
    "LinkView",
    "LogLineView",
    "LogView",
    "MetricRebuildView",
    "NewApiKeyView",
    "NewSigningSecretView",
    "NodeCountsRecord",
    "NodeDetailView",
    "NodeMetricsRecord",
    "NodeMetricsReport",
    "NodeProgressReportView",
    "NodeReasonView",
    "NodeRecord",
    "NodeStatus",
    "NodeWhyView",
    "OrchestratorRecord",
    "OrchestratorStatusView",
    "OutputAuditView",
    "OwnerRecord",
    "Page",
    "Percentiles",
    "PeriodRecord",
    "PlannedChildrenView",
    "PlannedNodeView",
    "PlannedQueueView",
    "PlannedStepView",
    "PlatformRecord",
    "Problem",
    "ProgressRecord",
    "PublicKeyView",
    "PublicKeysView",
    "PublishOutcome",
    "PublishResult",
    "QueueRecord",
    "ReadinessView",
    "ReasonCode",
    "ReasonView",
    "Record",
    "RegistrationView",
    "ReleasedHoldView",
    "RequestOutcome",
    "RequestProgressRecord",
    "RequestRecord",
    "RequestResult",
    "RequestStatus",
    "RequestStatusRecord",
    "ResumePlanView",
    "SchemaVersionView",
    "SchemaView",
    "SecretKind",
    "SelectionResult",
    "SigningSecretRecord",
    "SkipReason",
    "SubmissionPlanView",
    "SubmitOutcome",
    "SubmitResult",
    "SystemRecord",
    "TaskNodeRecord",
    "TaskProgressView",
    "TaskRecord",
    "TaskResultView",
    "TenantRecord",
    "ThroughputBucketRecord",
    "ThroughputReport",
    "TimelineView",
    "ValidationResult",
    "VersionDiffView",
    "VersionRecord",
    "Violation",
    "WorkerRecord",
    "WorkflowDetailView",
    "WorkflowHistoryReport",
    "WorkflowMetricsRecord",
    "WorkflowMetricsReport",
    "WorkflowRecord",
]

"""Every view that a query returns validates against its JSON Schema."""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from dagmaster.application import api_keys, browser_sessions, progress, submission, submission_plan, views
from dagmaster.application.audit_trail import list_changes
from dagmaster.application.commands import control, publication, resume, validation
from dagmaster.application.commands.job_selection import JobAction, change_jobs, select_jobs
from dagmaster.application.commands.validation import validate_text
from dagmaster.application.diagnosis import why_job, why_node
from dagmaster.application.health import HealthMonitor
from dagmaster.application.queries import (
    events_and_logs,
    fleet,
    graphs,
    handlers,
    job_detail,
    jobs,
    log_lines,
    metrics,
    nodes,
    timeline,
    workflows,
)
from dagmaster.application.views.json_schema import view_schemas
from dagmaster.engine.status import AttemptStatus, Isolation, JobStatus, NodeStatus, SkipReason
from dagmaster.errors import JobNotFound
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.audit_trail import AuditEntry, AuditFilter, ChangeOrigin
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.handler_reports import Checkpoint
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ports.read_store import FootprintRecord, LogRecord, PendingCommand
from dagmaster.ports.task_messages import TaskMessage
from dagmaster.ports.timelines import TimelineRecord
from dagmaster.records.fleet import (
    FleetRecord,
    LeftJobsRecord,
    LeftTasksRecord,
    OrchestratorRecord,
    QueueRecord,
    TaskNodeRecord,
)
from dagmaster.records.handlers import HandlerRecord
from dagmaster.records.nodes import ChildCounts, NodeRecord, ProgressRecord
from dagmaster.records.tasks import AttemptRecord, TaskRecord
from dagmaster.sdk.handler_definitions import describe_handler
from dagmaster.sdk.handler_registry import Registry, handler, spec_of
from dagmaster.store.memory.api_key_store import MemoryApiKeyStore
from dagmaster.store.memory.audit_trail import MemoryAuditTrail
from dagmaster.store.memory.schema_admin import MemorySchemaAdmin
from tests.unit.application.queries.test_fleet import a_worker
from tests.unit.application.queries.test_workflows import a_version, a_workflow
from tests.unit.application.test_diagnosis import in_queue
from tests.unit.application.world import (
    DONE,
    TILES,
    FakeReadStore,
    FakeTimelines,
    a_record,
    an_application,
    an_event,
    run,
)

if TYPE_CHECKING:
    from dagmaster.application.context import Application

SCHEMAS = view_schemas()
LEFT_JOBS = LeftJobsRecord(jobs=2, owned_again=1, unowned=0, not_reclaimed=1, reassigned=0)
LEFT_TASKS = LeftTasksRecord(
    tasks=1,
    not_reclaimed=0,
    now={"ready": 1},
    alone_with=TaskNodeRecord(job_id="7", node_id="fetch"),
)


def app() -> Application:
    child = NodeRecord(
        node_id="tiles__0", status=NodeStatus.FAILED, job_id="7", parent_node_id="tiles", fan_out_index=0,
        error={"message": "no"}, progress=ProgressRecord(current=1, total=None, message="half"), wake_at=120.0,
    )  # fmt: skip
    attempt = AttemptRecord(
        job_id="7", node_id="fetch", attempt=1, task_id="5", status=AttemptStatus.FAILED, queue="q", worker_id="3", worker="h:1",
        dispatched_at=100.0, claimed_at=100.5, started_at=101.0, finished_at=103.5, error={"message": "no"},
        metrics={"rows": 1},
    )  # fmt: skip
    task = TaskRecord(
        task_id="5", job_id="7", node_id="fetch", attempt=1, queue="q", priority=5, handler="echo", dispatched_at=1.0,
        isolation=Isolation.EXCLUSIVE, status=NodeStatus.DISPATCHED, worker_id=None, claimed_at=None, started_at=None, stop_requested_at=None,
        progress=None,
    )  # fmt: skip
    footprint = FootprintRecord(
        NodeRecord(
            node_id="tiles__0",
            parent_node_id="tiles",
            fan_out_index=0,
            status=NodeStatus.FAILED,
            attempt=1,
            error=None,
        ),
        [0, 0, 1, 1],
    )
    orchestrator = OrchestratorRecord(
        orchestrator_id="1", host="h", pid=4, version="1", is_alive=False, has_died=True, lease_seconds=15.0,
        silent_seconds=20.0, age_seconds=90.0, stopped_seconds=None, jobs=2, counters={"turns": 5}, left=LEFT_JOBS,
    )  # fmt: skip
    queue = QueueRecord(queue="light", waiting=3, waiting_exclusive=1, claimed=1, oldest_seconds=65.0)
    child_job = a_record(
        job_id="8", parent_job_id="7", parent_node_id="fetch", status=JobStatus.FAILED, error={"a": 1}
    )
    return an_application(
        FakeReadStore(
            [a_record(finished_at=None, result={"a": [1]}), child_job],
            node_records=[DONE, TILES, child],
            counts={"tiles": ChildCounts({NodeStatus.FAILED: 1})},
            attempt_records=[attempt],
            task_records=[task],
            timelines=FakeTimelines([TimelineRecord("fetch", 1, "COMPLETED", "h:1", 100.0, None, 103.5)]),
            footprint_records=[footprint],
            commands=[PendingCommand("3", "cancel", "ada", 2.5)],
            stored_events=[an_event(1, "NodeFailed", "fetch", error={"message": "no"})],
            log_records=[LogRecord("fetch", 1, 100.5, "hello\n", (100.5, "5", 0))],
            workflow_records=[a_workflow("flow")],
            handler_records=[a_handler()],
            version_records=[a_version(1, is_active=True)],
            fleet_record=FleetRecord(
                orchestrators=(orchestrator,),
                workers=(a_worker("light"), a_worker("light", worker_id="6", left=LEFT_TASKS)),
                queues=(queue,),
                unowned_jobs=1,
            ),
            facts=in_queue(),
        )
    )


def a_handler() -> HandlerRecord:
    definition = describe_handler(spec_of(echo))
    return HandlerRecord.of_definition(
        definition, name="echo", version="1", published_at=1.0, workers=1, other_versions=("0",)
    )


@handler("echo", queue="light", retry=2)
async def echo(size: int) -> dict[str, Any]:
    """Return the size."""
    return {"size": size}


A_MESSAGE = TaskMessage(
    "9", "7", "fetch", "echo", {"a": 1}, 60.0, checkpoint=Checkpoint("half"), dispatched_at=1_767_225_600.0,
    lease_token=8,
)  # fmt: skip

QUERIES: dict[str, Any] = {
    "JobViewPage": jobs.list_jobs,
    "JobDetailView": lambda app: job_detail.job_detail(app, "7", with_children=True),
    "JobProgressView": lambda app: jobs.job_progress(app, "7"),
    "CountsView": jobs.count_jobs,
    "FootprintsView": lambda app: jobs.job_footprints(app, "7"),
    "GraphView": lambda app: graphs.job_graph(app, "7"),
    "TimelineView": lambda app: timeline.job_timeline(app, "7"),
    "JobSelectionView": lambda app: select_jobs(app, JobAction.CANCEL, JobFilter(workflow_id="flow")),
    "SelectionResult": lambda app: change_jobs(app, JobAction.CANCEL, ["999"], sent_by="ada"),
    "NodeViewPage": nodes.list_nodes,
    "NodeDetailView": lambda app: nodes.node_detail(app, "7", "fetch"),
    "TaskViewPage": nodes.list_tasks,
    "EventViewPage": events_and_logs.recent_events,
    "EventCountsView": events_and_logs.count_events,
    "LogViewPage": lambda app: events_and_logs.list_logs(app, "7"),
    "LogLineViewPage": lambda app: log_lines.list_log_lines(app, "7", contains="o"),
    "WorkflowViewPage": workflows.list_workflows,
    "VersionViewPage": lambda app: workflows.list_versions(app, "flow"),
    "AttemptViewPage": lambda app: nodes.list_attempts(app, "7", "fetch"),
    "CommandViewPage": lambda app: jobs.list_pending_commands(app, "7"),
    "OrchestratorViewPage": fleet.list_orchestrators,
    "WorkerViewPage": fleet.list_workers,
    "QueueViewPage": fleet.list_queues,
    "WorkflowDetailView": lambda app: workflows.workflow_detail(app, "flow"),
    "FleetView": fleet.fleet,
    "JobWhyView": lambda app: why_job(app, "7"),
    "NodeWhyView": lambda app: why_node(app, "7", "after"),
    "NewApiKeyView": lambda _: new_key(),
    "ApiKeyView": lambda _: revoked_key(),
    "BrowserSessionView": lambda _: ended_session(),
    "JobProgressReportView": lambda app: progress.report_progress(app, "7"),
    "NodeProgressReportView": lambda app: progress.report_node_progress(app, "7", "tiles"),
    "OrchestratorStatusView": fleet.orchestrator_status,
    "VersionDiffView": lambda app: workflows.compare_versions(app, "flow", 1, 1),
    "HealthView": lambda app: HealthMonitor(app, MemorySchemaAdmin()).check(),
    "ReadinessView": lambda app: HealthMonitor(app, MemorySchemaAdmin()).check_readiness(),
    "SchemaView": lambda _app: a_schema(),
    "AuditEntryViewPage": lambda _app: some_changes(),
    "WorkflowMetricsReport": metrics.workflow_metrics,
    "NodeMetricsReport": lambda app: metrics.node_metrics(app, "flow"),
    "WorkflowHistoryReport": lambda app: metrics.workflow_history(app, "flow"),
    "DurationReport": metrics.node_durations,
    "FailureReport": metrics.failure_metrics,
    "ThroughputReport": metrics.throughput,
    "HandlerViewPage": handlers.list_handlers,
    "HandlerTestView": lambda _app: answer(
        views.HandlerTestView(
            job_id="7", handler="echo", status=JobStatus.RUNNING, is_finished=False, output=None, error=None
        )
    ),
    "RegistrationView": lambda _app: answer(
        views.RegistrationView(worker_id="5", lease_seconds=6.0, heartbeat_seconds=2.0)
    ),
    "DeregistrationView": lambda _app: answer(views.DeregistrationView(worker_id="5")),
    "ClaimedTasksView": lambda _app: answer(
        views.ClaimedTasksView(
            worker_id="5", tasks=(A_MESSAGE.to_json(),), stop=("9",), lease_seconds=6.0, drain=False
        )
    ),
    "HeartbeatView": lambda _app: answer(
        views.HeartbeatView(worker_id="5", stop=("9",), lease_seconds=6.0, drain=True)
    ),
    "TaskProgressView": lambda _app: answer(views.TaskProgressView(task_id="9", stop=False)),
    "TaskResultView": lambda _app: answer(
        views.TaskResultView(task_id="9", lease_token="8", status=AttemptStatus.COMPLETED)
    ),
}


async def answer(view: views.Record) -> views.Record:
    return view


async def new_key(keys: MemoryApiKeyStore | None = None) -> views.NewApiKeyView:
    keys = keys or MemoryApiKeyStore()
    return await api_keys.create_key(
        keys, "ada", list(Scope), origin=ChangeOrigin(actor="bob"), now=1_800_000_000.0, days=1
    )


async def ended_session() -> views.BrowserSessionView:
    keys = MemoryApiKeyStore()
    caller = await api_keys.find_caller(keys, (await new_key(keys)).key)
    await browser_sessions.start_session(keys, caller)
    (session,) = await browser_sessions.list_sessions(keys)
    return await browser_sessions.revoke_session(keys, session.session_id, origin=ChangeOrigin(actor="bob"))


async def revoked_key() -> views.ApiKeyView:
    keys = MemoryApiKeyStore()
    return await api_keys.revoke_key(keys, (await new_key(keys)).key_id, origin=ChangeOrigin(actor="bob"))


async def a_schema() -> views.SchemaView:
    state = await MemorySchemaAdmin().state()
    return views.SchemaView(
        version=state.version, newest_version=state.newest_version, is_usable=state.is_usable
    )


async def some_changes() -> views.Page[views.AuditRecord]:
    trail = MemoryAuditTrail()
    await trail.append([AuditEntry(actor="ada", action="job.cancel", object_kind="job", object_id="7")])
    return await list_changes(trail, AuditFilter())


REJECTED = run(events_and_logs.recent_events(app())).items[0]
PLANNED = views.PlannedNodeView(
    node="tiles", reason="it failed", children=views.PlannedChildrenView(reused=3, redone=1)
)
RESULTS: list[views.Record] = [
    views.CommandResult(
        job_id="7", command_id="3", command=CommandKind.APPROVE, node_id="release", accepted=False, is_done=True, seq=9,
        event=REJECTED, sentence="too late",
    ),
    views.SubmitResult(
        outcome=views.SubmitOutcome.ERROR, job_id=None, workflow_id="flow", version=None, is_new=False,
        error=JobNotFound("there is none").to_dict(),
    ),
    views.PublishResult(
        file="flow.yaml", workflow_id="flow", version=2, content_hash="x", outcome=views.PublishOutcome.REPLACED,
        is_active=True,
    ),
    views.AddedNodesView(job_id="7", batch=2, node_ids={"1": "a"}, is_accepted=True, sentence="added"),
    views.ReleasedHoldView(job_id="7", command_id="3"),
    views.ActivateResult(workflow_id="flow", version=2, content_hash="x", previous_version=None),
    views.ResumePlanView(
        job_id="7", workflow_id="flow", version=2, is_new_job=False, run=2, has_workers=True, reused=(), redone=(PLANNED,),
        impossible=(),
    ),
    views.SubmissionPlanView(
        workflow_id="flow", version=2, content_hash="x", inputs={"size": 1},
        nodes=(
            views.PlannedStepView(
                node_id="tiles", kind=views.Kind.FAN_OUT, action="for each tile", depends_on=("fetch",),
                status=NodeStatus.PENDING, branch=None, children=None, handler="echo", queue="default",
            ),
        ),
        queues=(views.PlannedQueueView(queue="default", workers=0),), missing_blobs=("az://bronze/a.tif",),
    ),
    validate_text("nodes: {a: {handler: nothing}}", Registry()),
    validate_text("{name: n, nodes: {a: {type: wait, seconds: 1}}}", Registry()),
]  # fmt: skip


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_what_a_command_returns_fits_its_schema(result):
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    schema = {**SCHEMAS, "$ref": f"#/$defs/{type(result).__name__}"}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(document)


def test_every_result_of_a_command_is_in_the_schema():
    commands = (control, publication, resume, submission, submission_plan, validation)
    annotations = [
        str(inspect.signature(function).return_annotation)
        for module in commands
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and not name.startswith("_")
        and function.__module__ == module.__name__
    ]
    names = set(re.findall(r"\w+(?:Result|PlanView)\b", " ".join(annotations))) | {
        "AddedNodesView",
        "ReleasedHoldView",
    }
    assert names == {type(result).__name__ for result in RESULTS}
    assert names <= set(SCHEMAS["$defs"])


def test_statuses_types_kinds_and_codes_are_enums():
    expected = {
        ("NodeView", "status"): NodeStatus, ("NodeView", "kind"): views.Kind, ("NodeView", "skip_reason"): SkipReason,
        ("AttemptView", "status"): AttemptStatus, ("EventView", "type"): EventType,
        ("CommandView", "kind"): CommandKind, ("ReasonView", "code"): views.ReasonCode,
        ("GroupView", "code"): views.ReasonCode,
    }  # fmt: skip
    for (view, key), enum in expected.items():
        schema = SCHEMAS["$defs"][view]["properties"][key]
        assert {"enum": [member.value for member in enum]} in [schema, *schema.get("anyOf", ())], (
            f"{view}.{key}"
        )


def test_the_schemas_are_schemas():
    Draft202012Validator.check_schema(SCHEMAS)


@pytest.mark.parametrize("name", list(QUERIES))
def test_what_a_query_returns_fits_its_schema(name):
    document = json.loads(json.dumps(run(QUERIES[name](app())).to_dict(), allow_nan=False))
    if name.endswith("Page"):
        assert document["items"]
    schema = {**SCHEMAS, "$ref": f"#/$defs/{name}"}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(document)


def test_every_view_is_validated_by_some_query():
    used = json.dumps([SCHEMAS["$defs"][name] for name in QUERIES])
    pending, reached = list(QUERIES), set(QUERIES)
    while pending:
        text = json.dumps(SCHEMAS["$defs"][pending.pop()])
        more = {name for name in SCHEMAS["$defs"] if f'"#/$defs/{name}"' in text} - reached
        reached |= more
        pending += more
    assert used
    shown = {name for name in views.__all__ if name.endswith("View")}
    # About the database as a whole: the fuzz test of the API on PostgreSQL validates them (tests/integration).
    shown -= {"AuditView", "AuditBatchView", "ViolationView", "MetricRebuildView", "SchemaVersionView"}
    # Made by a command on the machine of the outputs alone: tests/integration.
    shown -= {"OutputAuditView"}
    shown -= {name for name in shown if name.startswith(("Planned", "ResumePlan", "SubmissionPlan"))}
    # Results of commands about graphs in code: validated below, and in tests/unit/http/test_graphs_api.py.
    shown -= {"AddedNodesView", "ReleasedHoldView", "GraphTaskView", "GraphDependencyView"}
    # In tests/unit/http/test_handlers_api.py.
    shown -= {"HandlerTrustView"}
    # In tests/integration/test_callbacks.py and tests/unit/http/test_callbacks.py.
    shown -= {"NewSigningSecretView", "PublicKeyView", "PublicKeysView"}
    assert shown <= reached, "add a query that returns it to QUERIES"


def test_every_number_has_its_unit_and_every_time_its_name():
    counts = {
        "version",
        "run",
        "priority",
        "pid",
        "attempt",
        "seq",
        "event_seq",
        "count",
        "total",
        "current",
        "jobs",
    }
    counts |= {"lost_attempts", "shared_losses", "waiting_exclusive", "finished_last_minute"}
    counts |= {
        "failed_attempts",
        "concurrency",
        "running",
        "prefetched",
        "processes",
        "processes_busy",
        "waiting",
    }
    counts |= {
        "tasks",
        "owned_again",
        "unowned",
        "not_reclaimed",
        "reassigned",
        "reused",
        "redone",
        "line",
        "column",
    }
    counts |= {"completed", "pending", "failed", "skipped", "cancelled", "children", "before", "after"}
    counts |= {"load_average"}
    counts |= {"alive", "jobs_claimed", "jobs_reclaimed", "turns", "results", "submitted", "success_rate"}
    counts |= {"jobs_checked", "nodes_checked", "events_checked", "counted_jobs"}
    counts |= {"batch", "pending_jobs", "total_jobs", "total_executions", "total_retries", "bucket_minutes"}
    # The names of durations in metrics are those of the source systems.
    counts |= {"avg_duration", "p50_duration", "p95_duration"}
    counts |= {
        "previous_version",
        "attempts",
        "claimed",
        "workers",
        "unowned_jobs",
        "fan_out_index",
        "newest_version",
        "active_version",
        "max_open_jobs",
        "requests_per_day",
        "rate_per_second",
        "rate_burst",
        "last_status",
        "failures",
        "waiting",
        "dead",
        "left",
    }
    for name, schema in SCHEMAS["$defs"].items():
        for key, value in schema["properties"].items():
            kinds = [value, *value.get("anyOf", ())]
            if any(kind.get("type") in ("integer", "number") for kind in kinds) and key not in counts:
                assert key.endswith(("_seconds", "_total", "_finished", "_count", "_bytes", "percent")), (
                    f"{name}.{key}"
                )
            if any(kind.get("format") == "date-time" for kind in kinds):
                assert key.endswith("_at") or key in ("at", "since", "until", "failing_since"), (
                    f"{name}.{key}"
                )
            if key.endswith("_id"):
                assert all(kind.get("type") in ("string", "null", None) for kind in kinds), f"{name}.{key}"

"""One trace from a submit through the turns of its job to its handlers and what they call."""

from __future__ import annotations

import asyncio
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import SecretStr

from dagmaster.bootstrap import find_handlers
from dagmaster.bootstrap.monitoring import start_traces
from dagmaster.bootstrap.task_execution import execute_task
from dagmaster.errors import PermanentError, SettingsInvalid
from dagmaster.ports.task_messages import Succeeded, TaskMessage
from dagmaster.sdk.handler_registry import handler
from dagmaster.settings import Settings
from dagmaster.telemetry import traces
from dagmaster.telemetry.traces import TraceConfig
from dagmaster.worker.task_reports import NoReports
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import finished
from tests.unit.http.api_client import opened_api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CANARY = "canary-hunter-seven"
FLOW = """
workflow_id: traced
version: 1
inputs: {token: {type: string, secret: true}}
nodes:
  loop: {handler: on_loop, queue: q, next: thread}
  thread: {handler: on_thread, queue: q, params: {token: "{{ inputs.token }}"}}
"""


@handler("on_loop", queue="q")
async def on_loop() -> dict[str, Any]:
    with traces.span("a library"):
        return {"trace": traces.current_trace_parent()}


@handler("on_thread", queue="q", isolation="thread")
def on_thread(token: str) -> dict[str, Any]:
    with traces.span("a library"):
        raise PermanentError(f"no, {token}")


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    # The first provider of a process stays that of OpenTelemetry: it must not matter which test comes first.
    traces.start_tracing(TraceConfig("another"), [InMemorySpanExporter()])
    traces.stop_tracing()
    exporter = InMemorySpanExporter()
    traces.start_tracing(TraceConfig("test"), [exporter])
    yield exporter
    traces.stop_tracing()


def test_a_trace_goes_from_the_caller_through_submit_and_turns_to_handlers_and_what_they_call(exporter):
    async def main() -> None:
        async with opened_api(on_loop, on_thread) as api:
            await api.publish(FLOW)
            api.headers["traceparent"] = CALLER
            body = {"workflow_id": "traced", "inputs": {"token": CANARY}}
            await finished(api.application, (await api.post("/api/v1/jobs", body)).json()["job_id"])

    asyncio.run(main())
    spans: tuple[ReadableSpan, ...] = exporter.get_finished_spans()
    trace_id = int(CALLER.split("-")[1], 16)
    ours = [span for span in spans if span.context is not None and span.context.trace_id == trace_id]
    names = [span.name for span in ours]
    assert {
        "POST /api/v1/jobs",
        "submit",
        "turn",
        "handler on_loop",
        "handler on_thread",
        "a library",
    } <= set(names)
    assert names.count("a library") == 2
    by_id = {span.context.span_id: span for span in ours if span.context is not None}
    parents = {
        span.name: by_id[span.parent.span_id].name
        for span in ours
        if span.parent and span.parent.span_id in by_id
    }
    assert parents["handler on_loop"] == parents["turn"] == "submit"
    assert {by_id[span.parent.span_id].name for span in ours if span.name == "a library" and span.parent} == {
        "handler on_loop",
        "handler on_thread",
    }
    assert CANARY not in "".join(span.to_json() for span in spans)


def test_statements_of_polls_and_heartbeats_make_no_trace_of_their_own(exporter):
    tracer = traces._State.tracer
    with tracer.start_as_current_span("SELECT", attributes={"db.system": "postgresql"}):
        pass
    with (
        traces.span("submit"),
        tracer.start_as_current_span("INSERT", attributes={"db.system": "postgresql"}),
    ):
        pass
    assert [span.name for span in exporter.get_finished_spans()] == ["INSERT", "submit"]


def test_a_trace_context_that_is_not_valid_starts_a_new_trace(exporter):
    with traces.span("turn", "nonsense"), traces.span("turn", "00-" + "f" * 4000):
        pass
    assert [span.parent is None for span in exporter.get_finished_spans()] == [True, True]


def test_traces_are_off_by_default():
    start_traces(Settings(), "worker")
    assert not traces.is_tracing()
    assert traces.current_trace_parent() is None
    assert traces.config_of_children() is None
    with traces.span("turn") as span:
        assert span is None


def test_exporters_are_chosen_by_settings_and_a_missing_package_is_named(monkeypatch):
    exporter = InMemorySpanExporter()
    azure = ModuleType("azure.monitor.opentelemetry.exporter")
    azure.AzureMonitorTraceExporter = lambda connection_string: (exporter, connection_string)[0]  # type: ignore[attr-defined]
    for name in ("azure", "azure.monitor", "azure.monitor.opentelemetry"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, azure.__name__, azure)
    config = TraceConfig("test", "http://127.0.0.1:4318/", "InstrumentationKey=0")
    otlp, insights = traces._exporters(config)
    assert otlp._endpoint == "http://127.0.0.1:4318/v1/traces"  # type: ignore[attr-defined]
    assert insights is exporter
    monkeypatch.setitem(sys.modules, azure.__name__, None)
    with pytest.raises(
        SettingsInvalid, match=r"DAGMASTER_APPLICATION_INSIGHTS needs .* install dagmaster\[azure-monitor\]"
    ):
        start_traces(Settings(application_insights=SecretStr("InstrumentationKey=0")), "worker")
    assert not traces.is_tracing()


@pytest.mark.process
def test_a_plain_function_in_a_child_process_continues_the_trace(exporter, tmp_path):
    bodies: SimpleQueue[bytes] = SimpleQueue()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    module = tmp_path / "traced_handlers.py"
    module.write_text(
        "from dagmaster import handler\n"
        "from dagmaster.telemetry import traces\n"
        "@handler('plain')\n"
        "def plain():\n"
        "    with traces.span('a library'):\n"
        "        return {}\n"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        traces._State.config = TraceConfig("test", f"http://127.0.0.1:{server.server_port}")
        message = TaskMessage("1", "2", "node", "plain", trace_parent=CALLER)
        modules = (str(module),)
        outcome = asyncio.run(execute_task(message, find_handlers(modules), NoReports(), modules=modules))
        exported = bodies.get(timeout=PATIENCE_SECONDS)
        server.shutdown()
    assert isinstance(outcome, Succeeded)
    assert bytes.fromhex(CALLER.split("-")[1]) in exported
    assert b"handler plain" in exported
    assert b"a library" in exported

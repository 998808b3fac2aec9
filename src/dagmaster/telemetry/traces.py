"""Traces: one for each submit, continued by the turns of its job, by its handlers and by what they call.

Off until `start_tracing` is called; then a span costs one comparison. Only that function imports
OpenTelemetry. Spans have names and ids as attributes, never values or messages of a job: these may be
secrets.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

MAX_TRACE_PARENT: Final = 128
SPAN_SECONDS: Final = 1.0
"""How often spans are exported."""

OFF: Final = nullcontext(None)


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """Where traces go. It is sent to child processes."""

    service: str
    otlp_endpoint: str | None = None
    application_insights: str | None = None


class _State:
    """The tracer of this process, and where its spans go; None while traces are off."""

    tracer: Any = None
    provider: TracerProvider | None = None
    config: TraceConfig | None = None


def start_tracing(config: TraceConfig, exporters: Sequence[SpanExporter] | None = None) -> None:
    """Export the spans of this process from now on; raise ImportError without the packages.

    `exporters`: of a test.
    """
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    from dagmaster.telemetry.trace_sampler import JobSampler

    provider = TracerProvider(
        resource=Resource.create({"service.name": config.service, "service.namespace": "dagmaster"}),
        sampler=JobSampler(),
    )
    if exporters is None:
        for exporter in _exporters(config):
            provider.add_span_processor(
                BatchSpanProcessor(exporter, schedule_delay_millis=SPAN_SECONDS * 1000)
            )
    else:
        for exporter in exporters:
            provider.add_span_processor(SimpleSpanProcessor(exporter))
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        # Handlers and the libraries that they use find it there.
        trace.set_tracer_provider(provider)
    # The text of a statement, without its parameters.
    _asyncpg().instrument(tracer_provider=provider)
    _State.tracer, _State.config, _State.provider = provider.get_tracer("dagmaster"), config, provider


def config_of_children() -> dict[str, Any] | None:
    """Return the configuration of the handler processes of this worker as JSON; None if traces are off."""
    return None if _State.config is None else asdict(_State.config)


def stop_tracing() -> None:
    if _State.tracer is not None:
        _asyncpg().uninstrument()
        _State.tracer = _State.config = _State.provider = None


def is_tracing() -> bool:
    return _State.tracer is not None


def span(name: str, parent: str | None = None, **attributes: str | int) -> AbstractContextManager[Any]:
    """Open a span, as a child of a W3C trace context (default: of the current span)."""
    return OFF if _State.tracer is None else _open(name, parent, attributes)


def current_trace_parent() -> str | None:
    """Return the W3C trace context of the current span; None without a span."""
    if _State.tracer is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def instrument_server(app: Any) -> None:
    """Let each request be a span that continues the trace of its caller, if traces are on."""
    if _State.tracer is not None:
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

        FastAPIInstrumentor.instrument_app(
            app,
            # Another provider may be that of the process, which a program sets once.
            tracer_provider=_State.provider,
            excluded_urls="livez,readyz,metrics$",
            exclude_spans=["receive", "send"],
        )


@contextmanager
def _open(name: str, parent: str | None, attributes: dict[str, str | int]) -> Iterator[Any]:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = None
    if parent is not None:
        context = TraceContextTextMapPropagator().extract({"traceparent": parent[:MAX_TRACE_PARENT]})
    named = {f"dagmaster.{key}": value for key, value in attributes.items()}
    # Exceptions are not recorded: their messages may contain secrets.
    with _State.tracer.start_as_current_span(
        name, context, attributes=named, record_exception=False, set_status_on_exception=False
    ) as opened:
        yield opened


def _asyncpg() -> Any:
    from opentelemetry.instrumentation.asyncpg import AsyncPGInstrumentor

    return AsyncPGInstrumentor()  # type: ignore[no-untyped-call]


def _exporters(config: TraceConfig) -> Iterator[SpanExporter]:
    if config.otlp_endpoint is not None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        yield OTLPSpanExporter(endpoint=f"{config.otlp_endpoint.rstrip('/')}/v1/traces")
    if config.application_insights is not None:
        from azure.monitor.opentelemetry.exporter import AzureMonitorTraceExporter

        yield AzureMonitorTraceExporter(connection_string=config.application_insights)

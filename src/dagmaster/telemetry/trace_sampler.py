"""Which spans are exported: spans of traces that a submit or a request began."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, SamplingResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind
    from opentelemetry.trace.span import TraceState


class JobSampler(Sampler):
    """Follows the decision of the parent.

    A statement without a parent, as of polls and heartbeats, is dropped.
    """

    def __init__(self) -> None:
        self._of_ours = ParentBased(ALWAYS_ON)
        self._of_statements = ParentBased(ALWAYS_OFF)

    def should_sample(  # noqa: PLR0917 - OpenTelemetry's
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        is_statement = any(key.startswith("db.") for key in attributes or ())
        sampler = self._of_statements if is_statement else self._of_ours
        return sampler.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return "JobSampler"

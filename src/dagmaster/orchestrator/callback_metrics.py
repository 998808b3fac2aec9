"""The metrics of a relay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.orchestrator.relay import RelayObserver
from dagmaster.ports.callbacks import Verdict

if TYPE_CHECKING:
    from dagmaster.ports.callbacks import CallbackOutcome, PausedEndpoint
    from dagmaster.telemetry.prometheus import ProcessMetrics


class CallbackMetrics(RelayObserver):
    """Counts attempts and pauses. No label has an address: there are too many, and one may have a token."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics

    def outcome(self, outcome: CallbackOutcome, seconds: float) -> None:
        self._metrics.count("dagmaster_callback_attempts_total", outcome.verdict.value)
        if outcome.verdict is not Verdict.POSTPONED:
            self._metrics.observe("dagmaster_callback_attempt_seconds", seconds=seconds)

    def paused(self, endpoint: PausedEndpoint) -> None:
        self._metrics.count("dagmaster_callback_endpoints_paused_total", endpoint.reason)

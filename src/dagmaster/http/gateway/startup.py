"""The checks of a gateway. Until all of them have passed it serves nothing but its probes.

They are repeated when a request needs them: a gateway that starts before its database becomes ready without
a restart, also on a host where no task runs between requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from dagmaster.application.shared_calls import SharedCalls
from dagmaster.errors import DagmasterError
from dagmaster.records.gateway import CheckView

_LOGGER = logging.getLogger("dagmaster.gateway")
CHECKS: Final = ("env_vars", "database", "service_bus", "orchestrator")
"""The names of all checks, in their order. A gateway without a service bus has no such check."""
CHECK_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 1.0
"""How often the checks run at most while one fails."""
FRESH_SECONDS: Final = 5.0
"""How long their results are used when all have passed."""

Check = Callable[[], Awaitable[str]]
"""Returns why it fails, for administrators; empty: it has passed."""


@dataclass(frozen=True, slots=True)
class StartupState:
    """What the checks have found, and when."""

    checks: tuple[CheckView, ...]
    checked_at: float

    @property
    def failed_check(self) -> str | None:
        """Return the first check that has failed; None: all have passed."""
        return next((check.name for check in self.checks if not check.passed), None)

    @property
    def all_passed(self) -> bool:
        return self.failed_check is None


class StartupChecks:
    """Runs the checks, together and once for all who ask at the same time."""

    def __init__(
        self, checks: Mapping[str, Check], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._checks = {name: checks[name] for name in CHECKS if name in checks}
        self._monotonic = monotonic
        self._calls: SharedCalls[StartupState] = SharedCalls()
        self._state: StartupState | None = None

    async def state(self) -> StartupState:
        """Return the state of the checks; run them, unless they have run a moment ago."""
        known = self._state
        if known is not None:
            seconds = FRESH_SECONDS if known.all_passed else RETRY_SECONDS
            if self._monotonic() - known.checked_at < seconds:
                return known
        return await self._calls.run("", self._run)

    async def _run(self) -> StartupState:
        results = await asyncio.gather(*(_result(name, check) for name, check in self._checks.items()))
        before, self._state = self._state, StartupState(tuple(results), self._monotonic())
        known = {} if before is None else {check.name: check.detail for check in before.checks}
        for check in self._state.checks:
            if not check.passed and known.get(check.name) != check.detail:
                _LOGGER.warning("check %s failed: %s", check.name, check.detail)
        return self._state


async def _result(name: str, check: Check) -> CheckView:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            detail = await check()
    except TimeoutError:
        detail = f"no answer within {CHECK_SECONDS:g} s"
    except DagmasterError as error:
        detail = str(error)
    return CheckView(name=name, passed=not detail, detail=detail)

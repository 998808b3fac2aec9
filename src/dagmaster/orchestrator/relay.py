"""The relay: it delivers callbacks from the outbox until it is stopped.

Any number of relays may share an outbox: each holds what it sends under a lease, and what a dead one held is
sent again, with the same id. One loop claims, and stores what came of attempts; the attempts run next to it.
What is sent and not stored yet is stored when the database is back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.errors import (
    CallbackUrlInvalid,
    DatabaseUnavailable,
    SecretsKeyMissing,
    SecretsKeyWrong,
    SecretUnreadable,
    StatementFailed,
)
from dagmaster.host.clocks import wait_at_most
from dagmaster.host.connection_backoff import ConnectionBackoff
from dagmaster.orchestrator.callback_attempts import (
    SHORT_SECONDS,
    RetrySchedule,
    judge,
    postponed,
    unsendable,
)
from dagmaster.orchestrator.callback_messages import ResultLinks, callback_body, callback_headers
from dagmaster.ports.callbacks import Verdict
from dagmaster.ports.default_settings import CALLBACK_PAUSE_DAYS, RECONNECT_MAX_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dagmaster.orchestrator.signing_keys import SigningKeys
    from dagmaster.ports.callbacks import (
        CallbackOutbox,
        CallbackOutcome,
        CallbackSender,
        ClaimedCallback,
        PausedEndpoint,
    )

_LOGGER: Final = logging.getLogger("dagmaster.relay")
MIN_WAIT_SECONDS: Final = 0.1
PRUNE_SECONDS: Final = 3600.0
STOP_SECONDS: Final = 5.0
"""How long a relay that is stopped waits for what it is sending. What is left is sent again by another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """How a relay delivers. `poll_seconds`: how often it looks without a notification, which may be lost.

    `concurrency`: how many callbacks it sends at once. A tenant gets half of them at most, see `claim`.
    """

    concurrency: int = 128
    per_endpoint: int = 8
    lease_seconds: float = 60.0
    poll_seconds: float = 10.0
    pause_seconds: float = CALLBACK_PAUSE_DAYS * 86_400.0
    retention_seconds: float | None = None
    schedule: RetrySchedule = field(default_factory=RetrySchedule)
    links: ResultLinks = field(default_factory=ResultLinks)
    max_backoff_seconds: float = RECONNECT_MAX_SECONDS


class RelayObserver:
    """Sees what a relay does. This one ignores it."""

    def outcome(self, outcome: CallbackOutcome, seconds: float) -> None:
        """Take note of an attempt."""

    def paused(self, endpoint: PausedEndpoint) -> None:
        """Take note of an endpoint that was paused."""


class Relay:
    """Delivers callbacks."""

    def __init__(
        self,
        outbox: CallbackOutbox,
        sender: CallbackSender,
        keys: SigningKeys,
        *,
        options: RelayOptions | None = None,
        observer: RelayObserver | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.ready = asyncio.Event()
        self.observer = observer or RelayObserver()
        self._outbox, self._sender, self._keys = outbox, sender, keys
        self._options = options or RelayOptions()
        self._jitter = jitter
        # Each with its tenant.
        self._sending: dict[asyncio.Task[None], str] = {}
        self._outcomes: list[CallbackOutcome] = []
        self._stopping = asyncio.Event()
        self._prune_at = 0.0
        self._backoff = ConnectionBackoff(_LOGGER, max_seconds=self._options.max_backoff_seconds)

    def stop(self) -> None:
        """Claim nothing more, and end when what is being sent is done."""
        self._stopping.set()
        self._outbox.wakeup.set()

    async def run(self) -> None:
        """Deliver until stopped. Reconnect with backoff when the database is unavailable."""
        try:
            while not self._stopping.is_set():
                try:
                    await self._outbox.listen()
                    self._backoff.on_success()
                    self.ready.set()
                    await self._deliver()
                except (DatabaseUnavailable, StatementFailed) as error:
                    await wait_at_most(self._stopping, self._backoff.on_failure(error))
            await self._finish()
        finally:
            for task in self._sending:
                task.cancel()
            await asyncio.gather(*self._sending, return_exceptions=True)
            await self._outbox.close()

    async def _deliver(self) -> None:
        while not self._stopping.is_set():
            # Before anything is read: what is stored from now on wakes the relay again.
            self._outbox.wakeup.clear()
            await self.record()
            room = self._options.concurrency - len(self._sending)
            wait_seconds: float | None = None
            if room > 0:
                wait_seconds = await self._claim(room)
            await self._prune()
            if wait_seconds is None or wait_seconds > 0:
                seconds = self._options.poll_seconds if wait_seconds is None else wait_seconds
                await wait_at_most(
                    self._outbox.wakeup, min(max(seconds, MIN_WAIT_SECONDS), self._options.poll_seconds)
                )

    async def _claim(self, room: int) -> float | None:
        """Claim, and begin to send; return how long to wait until the next claim, if that is known."""
        options = self._options
        batch = await self._outbox.claim(
            room,
            per_endpoint=options.per_endpoint,
            lease_seconds=options.lease_seconds,
            sending=Counter(self._sending.values()),
        )
        for callback in batch.callbacks:
            task = asyncio.create_task(self._send(callback))
            self._sending[task] = callback.tenant
            task.add_done_callback(self._sending.pop)
        if batch.has_more:
            return 0.0
        return None if batch.wait_seconds is None else max(batch.wait_seconds, MIN_WAIT_SECONDS)

    async def _send(self, callback: ClaimedCallback) -> None:
        started = time.monotonic()
        outcome = await self._attempt(callback)
        self.observer.outcome(outcome, time.monotonic() - started)
        self._outcomes.append(outcome)
        self._outbox.wakeup.set()

    async def _attempt(self, callback: ClaimedCallback) -> CallbackOutcome:
        try:
            secrets = await self._keys.of(callback.tenant)
            now = time.time()
            body = callback_body(callback, self._options.links, now)
            headers = callback_headers(callback, secrets, body, now)
            delivery = await self._sender.send(callback.url, headers, body)
        except CallbackUrlInvalid as error:
            return unsendable(callback, str(error))
        except (SecretsKeyMissing, SecretsKeyWrong, SecretUnreadable) as error:
            _LOGGER.warning("callbacks of %s cannot be signed; they wait: %s", callback.tenant, error)
            return postponed(callback, "not sent: this installation cannot sign it")
        except (DatabaseUnavailable, StatementFailed):
            return postponed(callback, "not sent: the database did not answer", SHORT_SECONDS)
        except Exception:
            # One callback must not stop the others; the text of an unknown error may show a secret.
            _LOGGER.exception("a callback could not be sent; it is tried again")
            return postponed(callback, "not sent: an error of the relay")
        return judge(callback, delivery, self._options.schedule, self._jitter())

    async def record(self) -> None:
        """Store what came of attempts. What cannot be stored now is stored later."""
        outcomes = self._outcomes[:]
        if not outcomes:
            return
        paused = await self._outbox.record(outcomes, pause_seconds=self._options.pause_seconds)
        del self._outcomes[: len(outcomes)]
        _log_dead(outcomes)
        for endpoint in paused:
            _LOGGER.warning(
                "endpoint %s of %s is paused (%s); its callbacks wait until `dagmaster callbacks resume`",
                endpoint.endpoint,
                endpoint.tenant,
                endpoint.reason,
            )
            self.observer.paused(endpoint)

    async def _prune(self) -> None:
        seconds, now = self._options.retention_seconds, time.monotonic()
        if seconds is None or now < self._prune_at:
            return
        self._prune_at = now + PRUNE_SECONDS
        while await self._outbox.prune(seconds):
            pass

    async def _finish(self) -> None:
        """Store what came of the attempts that run, if they end soon."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=STOP_SECONDS)
        try:
            await self.record()
        except (DatabaseUnavailable, StatementFailed) as error:
            _LOGGER.warning("%s; callbacks that were sent just now are sent again", error)


def _log_dead(outcomes: Sequence[CallbackOutcome]) -> None:
    for outcome in outcomes:
        if outcome.verdict is Verdict.DEAD:
            _LOGGER.warning(
                "callback %s to %s is dead (%s); send it again with `dagmaster callbacks replay`",
                outcome.callback.callback_id,
                outcome.callback.endpoint,
                outcome.dead_reason,
            )

"""The jobs that have readers, as feeds announce them: the owner of such a job notifies of every turn."""

from __future__ import annotations

import time
from typing import Final

from dagmaster.ports.job_feed import WATCH_SECONDS

CHANNEL: Final = "dagmaster_watch"


class WatchedJobs:
    """The ids of watched jobs. Each is forgotten some time after its last announcement."""

    def __init__(self) -> None:
        self._until: dict[object, float] = {}

    def on_announcement(self, payload: str) -> None:
        """Remember the jobs of an announcement: ids, separated by commas."""
        now = time.monotonic()
        self._until = {job_id: until for job_id, until in self._until.items() if until > now}
        self._until |= dict.fromkeys(payload.split(","), now + WATCH_SECONDS)

    def __contains__(self, job_id: object) -> bool:
        until = self._until.get(job_id)
        return until is not None and until > time.monotonic()

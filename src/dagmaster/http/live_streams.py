"""What the live routes of a server share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.job_list_streams import JobListStreams
from dagmaster.application.job_streams import JobStreams
from dagmaster.http.live_sessions import LiveSessions

if TYPE_CHECKING:
    from dagmaster.application.context import Application


class LiveStreams:
    """Streams of jobs and of lists, and the sessions that send them."""

    def __init__(self, app: Application, limit_per_caller: int = 0) -> None:
        self.jobs = JobStreams(app)
        self.lists = JobListStreams(app)
        self.sessions = LiveSessions(limit_per_caller)

"""What the live routes of a server share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.job_list_streams import JobListStreams
from dagmaster.application.job_streams import JobStreams
from dagmaster.http.live_sessions import LiveSessions

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.ports.api_keys import Caller


class LiveStreams:
    """Streams of jobs and of lists, and the sessions that send them.

    Readers of one tenant share what is read for them; different tenants share nothing.
    """

    def __init__(self, app: Application, limit_per_caller: int = 0) -> None:
        self._app = app
        self._tenants: dict[str, TenantStreams] = {}
        self.sessions = LiveSessions(limit_per_caller)

    def of(self, caller: Caller) -> TenantStreams:
        """Return the streams that a caller may read."""
        tenant = caller.sees
        if tenant not in self._tenants:
            self._tenants[tenant] = TenantStreams(self._app.for_tenant(tenant))
        return self._tenants[tenant]


class TenantStreams:
    """The streams of what one tenant sees."""

    def __init__(self, app: Application) -> None:
        self.jobs = JobStreams(app)
        self.lists = JobListStreams(app)

"""A world whose PostgreSQL may be killed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.runtime.runtime_world import World

if TYPE_CHECKING:
    from dagmaster.store.embedded.server import EmbeddedPostgres


class DyingWorld(World):
    """A world whose server may be killed, and is started again by the first service that misses it."""

    def __init__(self, embedded: EmbeddedPostgres, place: Path) -> None:
        super().__init__("", place)
        self._embedded = embedded
        self._one_at_a_time = threading.Lock()
        self.dsn = embedded.start().dsn
        self.restart_embedded = self.start_again
        self.refuse: list[Exception] = []

    def start_again(self) -> None:
        with self._one_at_a_time:
            if self.refuse:
                raise self.refuse.pop()
            self._embedded.start()

    def kill_server(self) -> None:
        """Kill the server with all its processes, as a host that dies does.

        Backends survive the death of the postmaster for a moment, and answer: then services lose connections one after
        the other, and see the database come and go.
        """
        pid = int((self._embedded.data_dir / "cluster" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)

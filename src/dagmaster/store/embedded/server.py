"""The embedded PostgreSQL: processes share one server on a data directory, and the last user stops it.

The files of a data directory:

    turn.lock      held by the one process that starts, joins or leaves
    users.lock     shared by every process that uses the server
    server.lock    held by whatever works on the cluster's files: initdb, the server, the server's children
    cluster/       PostgreSQL's files; created by a rename, so that it is complete or missing
    socket/        the Unix socket, the only entry point
    server.log     and the one before, server.log.1

The locks are flocks: the kernel releases the locks of dead processes, and no process id is trusted. This
module decides who starts and stops the server; `cluster` creates the files, `process` handles the process.
None of them knows SQL or a driver.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from dagmaster.errors import DataDirectoryUnusable, EmbeddedPostgresUnavailable
from dagmaster.store.embedded import cluster, process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

__all__ = ["EmbeddedPostgres", "Server", "default_data_dir"]

START_SECONDS = 120.0
"""How long a server may take until it accepts connections. Usually 0.05 s; the recovery of 1 GB of WAL takes
long."""

FAST_SECONDS, IMMEDIATE_SECONDS = 60.0, 10.0
"""How long a fast shutdown may take (it writes a checkpoint), and then an immediate one (the next start
recovers)."""

LISTEN_SECONDS = 5.0
"""How long a server may take from its launch to its socket."""

POLL_SECONDS = 0.002

LAUNCHES = 2
"""How often a server that is killed while it starts is launched."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that accepts connections."""

    data_dir: Path
    socket_dir: Path
    dsn: str


class EmbeddedPostgres:
    """One user of the server on a data directory.

    Two objects are two users, also in one process. A forked child shares its parent's use. Not for several
    threads.
    """

    def __init__(self, data_dir: Path | None = None) -> None:
        # The real path, so that two names of one directory agree on a socket.
        self.data_dir = Path(os.path.realpath(default_data_dir() if data_dir is None else data_dir))
        self._cluster = self.data_dir / "cluster"
        self._users: int | None = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Server:
        """Create, start or join the server. Called again, it restarts a server that died."""
        with self._translated_os_errors():
            cluster.open_directory(self.data_dir)
            with self._startup_lock():
                try:
                    self._join()
                    return self._serve()
                except BaseException:
                    self._leave()
                    raise

    def stop(self) -> None:
        """Stop using the server. The last user stops it."""
        if self._users is None:
            return
        with self._translated_os_errors():
            try:
                with self._startup_lock():
                    self._leave()
            finally:
                self._release_user_lock()

    @contextlib.contextmanager
    def _translated_os_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataDirectoryUnusable(
                f"The embedded PostgreSQL cannot use {self.data_dir}: {error.strerror or error}"
                + (f" ({error.filename})" if error.filename else "")
                + f". {_remedy(error)}"
            ) from error

    @contextlib.contextmanager
    def _startup_lock(self) -> Iterator[None]:
        with _lock_file(self.data_dir / "turn.lock") as turn:
            if not _wait_until(lambda: _try_lock(turn, fcntl.LOCK_EX), START_SECONDS):
                raise EmbeddedPostgresUnavailable(
                    "Another process has been starting or stopping the embedded PostgreSQL in"
                    f" {self.data_dir} for over"
                    f" {START_SECONDS:.0f} s. It holds {self.data_dir / 'turn.lock'}: `fuser -v` on that file"
                    " names it."
                    " Wait for it, or end it."
                )
            yield

    def _join(self) -> None:
        if self._users is None:
            self._users = _open_lock(self.data_dir / "users.lock")
            fcntl.flock(self._users, fcntl.LOCK_SH)

    def _serve(self) -> Server:
        socket_dir = self._wait_until_settled() or self._start_new()
        # Without the port, PGPORT would be used; `safe` keeps the path readable.
        dsn = f"postgresql:///{cluster.DATABASE}?host={quote(str(socket_dir), safe='/')}"
        return Server(self.data_dir, socket_dir, f"{dsn}&port={process.PORT}&user={cluster.DATABASE}")

    def _start_new(self) -> Path:
        log_size = process.log_size(self.data_dir)
        for _ in range(LAUNCHES):
            self._launch()
            socket_dir = self._wait_until_settled()
            if socket_dir is not None:
                return socket_dir
        raise cluster.failure("did not start", self.data_dir, process.log_since(self.data_dir, log_size))

    def _wait_until_settled(self) -> Path | None:
        """Wait for a start or a stop in progress; return the socket directory of a ready server."""
        ends = time.monotonic() + START_SECONDS
        while (socket_dir := process.find_ready_socket(self._cluster)) is None:
            if self._is_free():
                return None
            if time.monotonic() > ends:
                raise cluster.failure(
                    "runs (a process holds server.lock), but accepts no connections after"
                    f" {START_SECONDS:.0f} s",
                    self.data_dir,
                    process.log_since(self.data_dir, 0),
                )
            time.sleep(POLL_SECONDS)
        return socket_dir

    def _launch(self) -> None:
        """Start the server, on a new cluster if none exists."""
        with _lock_file(self.data_dir / "server.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            account = cluster.account_for(self._cluster, is_stopped=True)
            install = cluster.install_for(account, self.data_dir)
            if not cluster.exists(self._cluster):
                cluster.create(self._cluster, install, account, lock)
            process.launch(self.data_dir, self._cluster, install, account, lock)

    def _leave(self) -> None:
        if self._users is None:
            return
        try:
            # Not atomic: a failed try releases the shared lock. We leave anyway, and hold turn.lock.
            if _try_lock(self._users, fcntl.LOCK_EX):
                self._shut_down()
        finally:
            self._release_user_lock()

    def _release_user_lock(self) -> None:
        users, self._users = self._users, None
        if users is not None:
            # Unlocked explicitly: a forked child has the same open file, and closing ours alone would leave
            # it locked.
            fcntl.flock(users, fcntl.LOCK_UN)
            os.close(users)

    def _shut_down(self) -> None:
        # A server that was just launched does not listen yet. Processes of a dead one never do, and end by
        # themselves.
        _wait_until(
            lambda: self._is_free() or process.find_server_pid(self._cluster) is not None, LISTEN_SECONDS
        )
        for number, seconds in ((signal.SIGINT, FAST_SECONDS), (signal.SIGQUIT, IMMEDIATE_SECONDS)):
            # Without a server to signal: none runs, or one that was started by hand and is stopped so.
            if (
                self._is_free()
                or not process.send_signal(self._cluster, number)
                or _wait_until(self._is_free, seconds)
            ):
                return
        raise EmbeddedPostgresUnavailable(
            f"The embedded PostgreSQL in {self.data_dir} does not stop. Nothing is lost: what was committed"
            " is on disk."
            f" Its process id is the first line of {self._cluster / 'postmaster.pid'}."
        )

    def _is_free(self) -> bool:
        """Return whether no process uses the cluster. The caller holds turn.lock."""
        with _lock_file(self.data_dir / "server.lock") as server:
            return _try_lock(server, fcntl.LOCK_EX)


def default_data_dir() -> Path:
    """Return the default data directory. A home directory is often closed to the unprivileged server user."""
    if os.geteuid() == 0:
        return Path("/var/lib/dagmaster/postgres")
    named = os.environ.get("XDG_DATA_HOME", "")
    try:
        base = Path(named) if named.startswith("/") else Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise DataDirectoryUnusable(
            f"User {os.geteuid()} has no home directory for the embedded PostgreSQL. Name a directory with"
            " --data-dir"
            " or DAGMASTER_DATA_DIR."
        ) from error
    return base / "dagmaster" / "postgres"


def _remedy(error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return cluster.DISK_FULL
        case errno.ENOLCK | errno.EOPNOTSUPP:
            return "Its file system has no file locks: use a directory on a local disk with --data-dir."
        case _:
            return (
                f"Use a directory that user {os.geteuid()} can write with --data-dir or DAGMASTER_DATA_DIR,"
                " or"
                " configure your own server with DAGMASTER_DATABASE_URL."
            )


def _open_lock(path: Path) -> int:
    # O_NOFOLLOW: the directory may belong to a user whom root should not trust.
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    cluster.give_to_owner_of(path.parent, lock)
    return lock


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    lock = _open_lock(path)
    try:
        yield lock
    finally:
        os.close(lock)


def _try_lock(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(POLL_SECONDS)
    return True

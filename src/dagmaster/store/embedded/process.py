"""The process of the embedded PostgreSQL: launch it, check whether it accepts connections, stop it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.store.embedded import cluster as files
from dagmaster.store.embedded import service_user

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator

    from dagmaster.store.embedded.cluster import Account, Install

PORT = 5432
"""A part of the socket's name. No port is opened."""

_SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "cluster_name": "dagmaster",
    "fsync": "on",
    "synchronous_commit": "on",
    "recovery_init_sync_method": files.SYNC_METHOD,
    # An embedded server is not replicated.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "huge_pages": "off",
    # Statements are short. Parallel ones would need /dev/shm, which is 64 MB in a container.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    # Three processes fewer than with io_method=worker; start and stop take the same time (2026-11).
    "io_method": "sync",
    # Errors of statements go to the client. The log has only what happens to the server, and no statements,
    # which may contain secrets. It grows by some lines a day, and a long one is rotated at a start.
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
}
"""Set on the command line at each start: they override postgresql.conf, and a new version may change them."""

_LOG_BYTES = 4_000_000

_SOCKET_PATH_BYTES = 103
"""The maximum length of a Unix socket's path: 107 on Linux, 103 on macOS."""


def launch(data_dir: Path, cluster: Path, install: Install, account: Account, lock: int) -> None:
    """Start the server.

    It and its children inherit the lock, which is free once the last of them has ended.
    """
    socket_dir = socket_for(data_dir, account)
    # We have the lock, so no server runs, whatever stale files contain. PostgreSQL would trust them if their
    # process id is a zombie or has been reused by the same user. A server started by hand has no lock:
    # `find_ready_socket` finds it, or its shared memory keeps ours from starting.
    for stale in (cluster / "postmaster.pid", _socket_in(socket_dir), Path(f"{_socket_in(socket_dir)}.lock")):
        stale.unlink(missing_ok=True)
    settings = {**_SETTINGS, "unix_socket_directories": str(socket_dir)}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    log = _open_log(data_dir)
    try:
        # The shell exits at once, so that init adopts the server: it leaves no zombie in the process that
        # started it.
        detached: list[Path | str] = [
            "/bin/sh",
            "-c",
            '"$@" &',
            "sh",
            install.postgres,
            "-D",
            cluster,
            *options,
        ]
        files.run(detached, account=account, lock=lock, log=log)
    finally:
        os.close(log)


def socket_for(data_dir: Path, account: Account) -> Path:
    """Return the directory of the socket, made private.

    Its mode is the only access control: 0700 for the server's user, so that only this user and root can
    connect, and `trust` in pg_hba.conf trusts no other. A password would have to be in a file with the same
    mode.
    """
    folder = data_dir / "socket"
    if not _fits(folder):
        # /tmp is short, and shared: the parent must be ours. XDG_RUNTIME_DIR is removed when the user logs
        # out.
        caller = files.Account(os.geteuid(), os.getegid())
        parent = Path(f"/tmp/dagmaster-{caller.uid}")  # noqa: S108 - make_private checks its owner
        files.make_private(parent, caller, 0o700 if account.is_caller else 0o711)
        folder = parent / hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    if os.geteuid() == 0 and service_user.is_shared(folder):
        # Of a server that ran as that user: none runs now.
        shutil.rmtree(folder)
    files.make_private(folder, account, 0o700)
    return folder


def _fits(folder: Path) -> bool:
    """Return whether a socket path is short, and has no characters that PostgreSQL or drivers interpret."""
    text = str(_socket_in(folder))
    return (
        len(os.fsencode(text)) <= _SOCKET_PATH_BYTES and re.fullmatch(r"[A-Za-z0-9/._-]+", text) is not None
    )


def find_ready_socket(cluster: Path) -> Path | None:
    """Return the directory of the socket of a server that accepts connections and answers."""
    lines = _pid_file(cluster)
    if lines is None or lines[7].strip() != "ready":
        return None
    with _connect(cluster) as connection:
        # The socket of a server that was just killed, or is stopped, still accepts connections, without a
        # response.
        return Path(lines[4]) if connection is not None and _responds(connection) else None


def find_server_pid(cluster: Path) -> int | None:
    """Return the process id of the listening server; 0 if it is in another container; None without one.

    Not from postmaster.pid: that file stays when a server is killed, and its process id may have been reused.
    """
    with _connect(cluster) as connection:
        if connection is None:
            return None
        if sys.platform == "darwin":
            local, local_peerpid = 0, 2
            (pid,) = struct.unpack("i", connection.getsockopt(local, local_peerpid, 4))
        else:
            pid, uid, _ = struct.unpack(
                "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            )
            # The path is from a file that the server's user can write: root must not signal another user's
            # process.
            if uid != cluster.stat().st_uid:
                return None
        return int(pid)


@contextlib.contextmanager
def _connect(cluster: Path) -> Iterator[socket.socket | None]:
    lines = _pid_file(cluster)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            if lines is not None:
                connection.connect(str(_socket_in(Path(lines[4]))))
        except OSError:
            lines = None
        yield None if lines is None else connection


def _responds(connection: socket.socket) -> bool:
    """Return whether the server responds to an SSLRequest, the shortest message there is: 1 ms."""
    try:
        connection.sendall(struct.pack("!ii", 8, 80877103))
        return connection.recv(1) in {b"N", b"S"}
    except OSError:
        return False


def send_signal(cluster: Path, number: signal.Signals) -> bool:
    """Send a signal to the server; return False if this process sees none."""
    pid = find_server_pid(cluster)
    if not pid:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    return True


def log_size(data_dir: Path) -> int:
    """Return the length of the log, to read only what follows."""
    log = data_dir / "server.log"
    size = log.stat().st_size if log.exists() else 0
    return 0 if size > _LOG_BYTES else size


def log_since(data_dir: Path, size: int) -> str:
    try:
        with (data_dir / "server.log").open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(size, end - 8_000))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _open_log(data_dir: Path) -> int:
    path = data_dir / "server.log"
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.rename(path.with_name("server.log.1"))
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    files.give_to_owner_of(data_dir, log)
    return log


def _socket_in(folder: Path) -> Path:
    return folder / f".s.PGSQL.{PORT}"


def _pid_file(cluster: Path) -> list[str] | None:
    """Return the lines of postmaster.pid if complete.

    They are id, directory, time, port, socket, address, memory and status.
    """
    try:
        lines = os.fsdecode((cluster / "postmaster.pid").read_bytes()).splitlines()
    except OSError:
        return None
    return lines if len(lines) >= 8 and lines[4] else None  # noqa: PLR2004 - the eight above

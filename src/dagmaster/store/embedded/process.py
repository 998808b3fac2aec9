"""The process of the embedded PostgreSQL: launch it, see whether it accepts connections, tell it to stop."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.store.embedded import cluster as files

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
    # Nobody replicates an embedded server.
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
    # An application's error is told to the application. The log keeps what happens to the server, and no statement,
    # which may hold a secret. So it grows by some lines a day, and is put aside at a start when it is long.
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
}
"""Given on the command line at each start: they win over postgresql.conf, and a new version may change them."""

_LOG_BYTES = 4_000_000

_SOCKET_PATH_BYTES = 103
"""What a Unix socket's path may have: 107 on Linux, 103 on macOS."""


def launch(data_dir: Path, cluster: Path, install: Install, account: Account, held: int) -> None:
    """Start the server. It and its children inherit the lock, so that it is free when the last of them is gone."""
    socket_dir = socket_for(data_dir, account)
    # The lock is ours, so no server lives, whatever stale files say. PostgreSQL would believe them if the process id in
    # them is a zombie, or another process of the same user by now. One started by hand has no lock; `ready_at` found
    # and joined it, or else its shared memory keeps ours from starting.
    for stale in (cluster / "postmaster.pid", _socket_in(socket_dir), Path(f"{_socket_in(socket_dir)}.lock")):
        stale.unlink(missing_ok=True)
    settings = {**_SETTINGS, "unix_socket_directories": str(socket_dir)}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    log = _open_log(data_dir)
    try:
        # The shell goes at once, so that the server is nobody's child: no zombie stays with whoever started it first.
        detached: list[Path | str] = ["/bin/sh", "-c", '"$@" &', "sh", install.postgres, "-D", cluster, *options]
        files.run(detached, account=account, held=held, log=log)
    finally:
        os.close(log)


def socket_for(data_dir: Path, account: Account) -> Path:
    """Return the directory of the socket, made private.

    Its mode is the server's only door: 0700 and of the server's user, so that this user and root get in, and `trust` in
    pg_hba.conf trusts nobody else. A password would have to lie in a file with the same mode.
    """
    folder = data_dir / "socket"
    if not _fits(folder):
        # /tmp is short, and everyone's: the parent must be ours. XDG_RUNTIME_DIR would go away when the user logs out.
        caller = files.Account(os.geteuid(), os.getegid())
        parent = Path(f"/tmp/dagmaster-{caller.uid}")  # noqa: S108 - make_private looks whose it is
        files.make_private(parent, caller, 0o700 if account.is_caller else 0o711)
        folder = parent / hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    files.make_private(folder, account, 0o700)
    return folder


def _fits(folder: Path) -> bool:
    """Short enough; and plain, for a comma or a colon means something to PostgreSQL and to drivers."""
    text = str(_socket_in(folder))
    return len(os.fsencode(text)) <= _SOCKET_PATH_BYTES and re.fullmatch(r"[A-Za-z0-9/._-]+", text) is not None


def ready_at(cluster: Path) -> Path | None:
    """Return the directory of the socket of a server that accepts connections and answers."""
    lines = _pid_file(cluster)
    if lines is None or lines[7].strip() != "ready":
        return None
    with _connected(cluster) as connection:
        # A socket of a server that was killed a moment ago, or is stopped, still takes connections. Nobody answers.
        return Path(lines[4]) if connection is not None and _answers(connection) else None


def listener(cluster: Path) -> int | None:
    """Return the process id of the listening server; 0 if it is in another container, None if there is none.

    Not from postmaster.pid: that file stays when a server is killed, and its number may be another process by now.
    """
    with _connected(cluster) as connection:
        if connection is None:
            return None
        if sys.platform == "darwin":
            local, local_peerpid = 0, 2
            (pid,) = struct.unpack("i", connection.getsockopt(local, local_peerpid, 4))
        else:
            pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            # The path came from a file that the server's user writes. Root signals no process of anyone else for it.
            if uid != cluster.stat().st_uid:
                return None
        return int(pid)


@contextlib.contextmanager
def _connected(cluster: Path) -> Iterator[socket.socket | None]:
    lines = _pid_file(cluster)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            if lines is not None:
                connection.connect(str(_socket_in(Path(lines[4]))))
        except OSError:
            lines = None
        yield None if lines is None else connection


def _answers(connection: socket.socket) -> bool:
    """Ask for encryption, the shortest question there is: 1 ms. The server says yes or no."""
    try:
        connection.sendall(struct.pack("!ii", 8, 80877103))
        return connection.recv(1) in {b"N", b"S"}
    except OSError:
        return False


def tell(cluster: Path, word: signal.Signals) -> bool:
    """Send a signal to the server. False when there is none that this process can see."""
    pid = listener(cluster)
    if not pid:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, word)
    return True


def log_size(data_dir: Path) -> int:
    """Return the length of the log, to read only what follows."""
    log = data_dir / "server.log"
    size = log.stat().st_size if log.exists() else 0
    return 0 if size > _LOG_BYTES else size


def log_since(data_dir: Path, size: int) -> str:
    """Return what the server said since its log had this size, the last of it."""
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
    """Return the lines of postmaster.pid if complete: id, directory, time, port, socket, address, memory, status."""
    try:
        lines = os.fsdecode((cluster / "postmaster.pid").read_bytes()).splitlines()
    except OSError:
        return None
    return lines if len(lines) >= 8 and lines[4] else None  # noqa: PLR2004 - the eight above

"""Commands as processes that are forked from one that has imported dagmaster.

Most of a short command's time goes into starting Python and importing. A command here is a process of its own, with its
own arguments, environment, directory, streams, signals and exit code; only the imports are made before. For what
depends on how the interpreter starts (the entry point, lazy imports, inherited signals), use `subprocess`. Shells find
such a `dagmaster` in the folder `forked_programs`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
DAGMASTER: Final = str(Path(sys.executable).with_name("dagmaster"))
_LENGTH: Final = struct.Struct("!I")
_STATUS: Final = struct.Struct("!i")
_FDS: Final = 4
_MAX_FDS: Final = 4096
# Not imported before the fork: they start threads, or read the environment when they are imported.
_NOT_IMPORTED: Final = (
    "dagmaster.adapters",
    "dagmaster.geo",
    "dagmaster.store.postgres.migrations",
    "dagmaster.testing",
    "dagmaster.__main__",
)


def run_command(
    *arguments: str, env: dict[str, str], cwd: Path = ROOT, stdin: str = "", timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run `dagmaster` to its end, and return its output."""
    pipe = subprocess.PIPE
    with CommandProcess(
        [DAGMASTER, *arguments], env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(list(arguments), process.returncode, stdout, stderr)


@cache
def forked_programs() -> Path:
    """Return a folder for the PATH of a shell: `dagmaster` is forked there, too. It does not pass on signals."""
    folder = _server().folder
    names = f"PROGRAM, SERVER = {DAGMASTER!r}, {str(folder / 'socket')!r}"
    (folder / "dagmaster").write_text(f"#!{sys.executable} -IS\n{names}\n{_FORKED}")
    (folder / "dagmaster").chmod(0o755)
    return folder


class CommandProcess(subprocess.Popen[str]):
    """A `Popen` that is forked by the fork server instead of by this process. Its first argument names no program.

    `_execute_child`, `_internal_poll` and `_wait` are how `Popen` starts and awaits a process, from Python 3.11 to 3.13.
    """

    _status_fd = -1

    def _execute_child(self, args: list[str], *rest: Any) -> None:
        cwd, env = rest[4:6]
        pipes = rest[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        # A stream that is not redirected is that of this process.
        fds = [number if fd == -1 else fd for number, fd in enumerate((stdin, stdout, stderr))]
        request = {
            "argv": args,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        try:
            self.pid, self._status_fd = _server().fork(request, fds)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def __del__(self) -> None:
        # Popen reads the status here. A finalizer would have closed its descriptor before, at the exit of the interpreter
        # and in a cycle that is collected: a failed test has both.
        super().__del__()
        if self.returncode is not None and self._status_fd != -1:
            os.close(self._status_fd)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._await_status(0.0)

    def _wait(self, timeout: float | None) -> int | None:
        if self._await_status(timeout) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _await_status(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status_fd], [], [], timeout)[0]:
            with self._waitpid_lock:  # type: ignore[attr-defined]
                if self.returncode is None:
                    status = os.read(self._status_fd, _STATUS.size)
                    if not status and timeout == 0:
                        # Polled at the exit of the interpreter, when the fork server has ended.
                        return None
                    assert status, "the fork server ended"
                    self.returncode = os.waitstatus_to_exitcode(_STATUS.unpack(status)[0])
        return self.returncode


# ── The server, seen from the tests ──


_FORKED: Final = """
import json, os, socket, struct, sys

status, writer = os.pipe()
request = {"argv": [PROGRAM, *sys.argv[1:]], "cwd": os.getcwd(), "env": dict(os.environ)}
text = json.dumps(request).encode()
with socket.socket(socket.AF_UNIX) as server:
    server.connect(SERVER)
    socket.send_fds(server, [struct.pack("!I", len(text))], [0, 1, 2, writer])
    server.sendall(text)
    server.recv(4)
os.close(writer)
sys.exit(os.waitstatus_to_exitcode(*struct.unpack("!i", os.read(status, 4))))
"""
"""A program that asks the fork server for a process and exits with its code."""


class _ForkServer:
    def __init__(self) -> None:
        # The server, which is this file, cannot import it.
        from tests.server_folders import run_folder

        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self.folder = run_folder() / f"forked-{os.getpid()}"
        self.folder.mkdir()
        listener = socket.socket(socket.AF_UNIX)
        with theirs, listener:
            listener.bind(str(self.folder / "socket"))
            listener.listen()
            fds = [theirs.fileno(), listener.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, __file__, *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
            )
        atexit.register(self.close)

    def fork(self, request: dict[str, Any], fds: list[int]) -> tuple[int, int]:
        """Start a command; return its process id, and the file descriptor that its status is written to."""
        text = json.dumps(request).encode()
        status_fd, status_writer = os.pipe()
        with self._lock:
            socket.send_fds(self._socket, [_LENGTH.pack(len(text))], [*fds, status_writer])
            self._socket.sendall(text)
            pid = _LENGTH.unpack(_receive(self._socket, _LENGTH.size))[0]
        os.close(status_writer)
        return pid, status_fd

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _server() -> _ForkServer:
    return _ForkServer()


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError("the other side of the fork server's socket is gone")
        data += part
    return data


# ── The server ──


def _import_all() -> None:
    import dagmaster
    from dagmaster.bootstrap import find_handlers
    from dagmaster.settings import Settings

    for module in pkgutil.walk_packages(dagmaster.__path__, "dagmaster."):
        if not module.name.startswith(_NOT_IMPORTED):
            with suppress(ImportError):
                importlib.import_module(module.name)
    find_handlers(settings=Settings())
    for name in ("asyncio", "asyncpg", "alembic.command", "rich.live", "rich.table", "rich.tree", "uvloop"):
        importlib.import_module(name)


def _serve(connection: socket.socket, listener: socket.socket) -> list[str] | None:
    """Fork a process for each request. Return its arguments in the forked process, and None at the end."""
    running: dict[int, int] = {}
    wakeup, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    while True:
        ready = select.select([connection.fileno(), listener.fileno(), wakeup], [], [])[0]
        if wakeup in ready:
            os.read(wakeup, 4096)
            _report_ended(running)
        for each in (connection, listener):
            if each.fileno() not in ready:
                continue
            client = listener.accept()[0] if each is listener else connection
            head, fds, _, _ = socket.recv_fds(client, _LENGTH.size, _FDS)
            if not head:
                return None
            request = json.loads(_receive(client, _LENGTH.unpack(head)[0]))
            if threading.active_count() > 1:
                raise RuntimeError(f"a process with threads must not fork: {threading.enumerate()}")
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in {client, connection, listener}:
                    one.detach()
                return _become(request, fds)
            *streams, running[pid] = fds
            for fd in streams:
                os.close(fd)
            client.sendall(_LENGTH.pack(pid))
            if client is not connection:
                client.close()


def _report_ended(running: dict[int, int]) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            status_fd = running.pop(pid)
            with suppress(BrokenPipeError):
                os.write(status_fd, _STATUS.pack(status))
            os.close(status_fd)


def _become(request: dict[str, Any], fds: list[int]) -> list[str]:
    """Let this process look as if it had just been started."""
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.closerange(3, _MAX_FDS)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    tempfile.tempdir = None
    sys.argv = request["argv"]
    sys.path[0] = str(Path(DAGMASTER).parent)
    return sys.argv


def _exit(code: str | int | None) -> None:
    """Exit as Python does, but leave it to the system to free what was imported before the fork.

    Python frees each object, and the system copies each page for that: 90 of the 105 ms of a short command (2026-11).
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    # What is imported stays: there is nothing to collect.
    gc.disable()
    _import_all()
    gc.freeze()
    gc.enable()
    if _serve(*(socket.socket(fileno=int(fd)) for fd in sys.argv[1:])) is not None:
        from dagmaster.cli.main import main

        try:
            main()
        except SystemExit as ended:
            _exit(ended.code)

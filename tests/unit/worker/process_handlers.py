"""Handlers that a child process imports. Each does one thing that a thread could not survive, or one that it could."""

# ruff: noqa: T201 - what handlers print is what is tested

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from dagmaster.ports.handler_reports import Checkpoint, Progress
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import CheckpointableHandler, handler


@handler()
def where(number: int = 0) -> dict[str, Any]:
    main = threading.current_thread() is threading.main_thread()
    return {"pid": os.getpid(), "parent": os.getppid(), "main": main, "number": number}


@handler(isolation="thread")
def where_on_a_thread() -> dict[str, Any]:
    return {"pid": os.getpid()}


@handler()
async def where_on_the_loop() -> dict[str, Any]:
    return {"pid": os.getpid()}


@handler(isolation="process")
async def where_on_its_own_loop(ctx: HandlerContext) -> dict[str, Any]:
    ctx.progress(os.getpid())
    return {"pid": os.getpid()}


@handler()
def imported(names: list[str]) -> dict[str, Any]:
    return {"found": [name for name in names if name in sys.modules]}


@handler()
def reporting(ctx: HandlerContext) -> Iterator[Any]:
    yield Progress(1, 2, "half")
    print("between")
    yield Checkpoint("half", {"n": 1}, ["a.tif"])
    ctx.progress(float("nan"))
    yield {
        "before": ctx.last_checkpoint and ctx.last_checkpoint.phase,
        "ids": [ctx.task_id, ctx.node_id, ctx.attempt],
    }


@handler()
class Steps(CheckpointableHandler):
    async def execute(self, params: Any, checkpoint: dict[str, Any] | None = None) -> AsyncIterator[Any]:
        yield {"type": "checkpoint", "phase": "one", "data": {}}
        yield {"type": "result", "output": {"pid": os.getpid(), "from": checkpoint and checkpoint["phase"]}}


@handler()
def bad_checkpoint(ctx: HandlerContext) -> None:
    ctx.checkpoint("x", {"bad": {1}})


@handler()
def raising(name: str) -> None:
    raise {"KeyError": KeyError, "SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[name](
        "lost"
    )


@handler()
def segfault() -> None:
    print("before the fall")
    ctypes.string_at(0)


@handler()
def exit_at_once(code: int) -> None:
    os._exit(code)


@handler()
def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@handler()
def close_everything() -> None:
    os.closerange(3, 256)


@handler()
def write_into_the_socket(data: str) -> None:
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(fd.readlink()).startswith("socket:"):
                os.write(int(fd.name), bytes.fromhex(data))
    threading.Event().wait()


@handler()
def endless(ctx: HandlerContext) -> None:
    """Hold the interpreter: no other Python thread of this process ever runs again."""
    sys.setswitchinterval(1000)
    ctx.progress(os.getpid())
    while True:
        pass


@handler()
def grandchild(ctx: HandlerContext) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as started:
        ctx.progress(os.getpid(), started.pid)
        started.wait()


@handler()
def crash_with_a_grandchild(ctx: HandlerContext) -> None:
    """Fork a grandchild, which keeps the socket and the pipe open."""
    pid = os.fork()
    if not pid:
        threading.Event().wait()
    ctx.progress(os.getpid(), pid)
    os._exit(4)


@handler()
def leave_a_child(ctx: HandlerContext, then: str = "return") -> dict[str, int]:
    """Start a child that leaves the process group, and do not wait for it."""
    started = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True
    )
    ctx.progress(os.getpid(), started.pid)
    if then == "crash":
        os._exit(4)
    while then == "continue":
        pass
    return {"pid": started.pid}


@handler()
def until_cancelled(ctx: HandlerContext) -> None:
    ctx.progress(os.getpid())
    while True:
        ctx.raise_if_cancelled()


@handler(isolation="process")
async def until_cancelled_on_its_loop(ctx: HandlerContext) -> None:
    ctx.progress(os.getpid())
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up")


@handler()
def deaf(ctx: HandlerContext) -> None:
    ctx.progress(os.getpid())
    threading.Event().wait()


@handler()
def greedy(megabytes: int) -> dict[str, Any]:
    return {"size": len(bytearray(megabytes * 1024 * 1024))}


@handler()
def echo(ctx: HandlerContext) -> dict[str, Any]:
    return ctx.params


@handler()
def meet(ctx: HandlerContext, fifo: str) -> dict[str, Any]:
    """Say where it is, and go on when the fifo is written to."""
    ctx.progress(os.getpid())
    with Path(fifo).open("rb") as file:
        file.read(1)
    return {"pid": os.getpid()}


@handler()
def meet_and_look(ctx: HandlerContext, fifo: str) -> dict[str, Any]:
    """Likewise, and look whether to stop."""
    meet(ctx, fifo)
    while not ctx.cancelled:
        pass
    return {"half": True}


@handler()
def writing(word: str, times: int = 1) -> None:
    for _ in range(times):
        print(f"{word} printed")
        print(f"{word} on stderr", file=sys.stderr)
        os.write(1, f"{word} native\n".encode())
        logging.getLogger("lib").info("%s logged", word)
        logging.getLogger("lib").debug("%s whispered", word)


@handler()
def writing_in_c(word: str) -> None:
    ctypes.CDLL(None).printf(f"{word} without a newline".encode())


@handler()
def writing_in_c_and_dying() -> None:
    ctypes.CDLL(None).printf(b"the last line\n")
    os._exit(3)


@handler()
def writing_half_a_line(word: str) -> None:
    sys.stdout.write(f"{word} without a newline")


@handler()
def writing_a_traceback() -> None:
    try:
        os.environ["LOST"]
    except KeyError:
        logging.getLogger("lib").exception("it failed")


@handler()
def writing_much(size: int) -> None:
    sys.stdout.write("é" * size)


@handler()
def writing_bytes() -> None:
    os.write(1, b"a\x00b\xffc\xc3")


@handler()
def closing_its_streams() -> None:
    sys.stdout.close()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.chdir("/")


@handler()
def cwd() -> dict[str, Any]:
    print("heard again")
    return {"cwd": str(Path.cwd())}


# ── In every way to be executed ──


def _described(ctx: HandlerContext) -> dict[str, Any]:
    return {"key": ctx.idempotency_key, "token": ctx.fencing_token, "resumed": ctx.checkpoint_data}


@handler()
def described(ctx: HandlerContext) -> dict[str, Any]:
    return _described(ctx)


@handler(isolation="thread")
def described_on_a_thread(ctx: HandlerContext) -> dict[str, Any]:
    return _described(ctx)


@handler()
async def described_on_the_loop(ctx: HandlerContext) -> dict[str, Any]:
    return _described(ctx)


@handler(isolation="process")
async def described_on_its_own_loop(ctx: HandlerContext) -> dict[str, Any]:
    return _described(ctx)


@handler()
def described_by_a_generator(ctx: HandlerContext) -> Iterator[Any]:
    yield Progress(1)
    yield _described(ctx)


@handler()
async def described_by_an_async_generator(ctx: HandlerContext) -> AsyncIterator[Any]:
    yield Progress(1)
    yield _described(ctx)


DESCRIBED = (
    described,
    described_on_a_thread,
    described_on_the_loop,
    described_on_its_own_loop,
    described_by_a_generator,
    described_by_an_async_generator,
)

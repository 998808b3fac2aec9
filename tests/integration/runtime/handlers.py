"""Plain functions, which a child process of the worker imports."""

# ruff: noqa: T201 - what handlers print is what is tested

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sys
import threading
from typing import Any

from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler


@handler("pid", queue="q")
def pid() -> dict[str, Any]:
    return {"pid": os.getpid()}


@handler("until_there", queue="q")
def until_there(path: str) -> None:
    """End when this file exists."""
    while not os.path.exists(path):  # noqa: PTH110 - quick
        threading.Event().wait(0.01)


@handler("segfault", queue="q")
def segfault() -> None:
    ctypes.string_at(0)


@handler("exit", queue="q")
def leave(code: int = 7) -> None:
    os._exit(code)


@handler("endless", queue="q")
def endless(ctx: HandlerContext) -> None:
    """Hold the interpreter: no other code of this process runs."""
    ctx.progress(os.getpid())
    sys.setswitchinterval(1000)
    while True:
        pass


@handler("deaf", queue="q")
def deaf(ctx: HandlerContext) -> None:
    """Ignore every request to stop."""
    ctx.progress(os.getpid())
    threading.Event().wait()


@handler("listening", queue="q")
def listening(ctx: HandlerContext) -> None:
    """Stop when asked to."""
    ctx.progress(os.getpid())
    while True:
        ctx.raise_if_cancelled()


@handler("listening_on_thread", queue="q", isolation="thread")
def listening_on_thread(ctx: HandlerContext) -> None:
    """Stop when asked to."""
    ctx.progress(os.getpid())
    while True:
        ctx.raise_if_cancelled()
        threading.Event().wait(0.01)


@handler("waiting", queue="q")
async def waiting(ctx: HandlerContext) -> None:
    ctx.progress(os.getpid())
    await asyncio.Event().wait()


@handler("greedy", queue="q")
def greedy(megabytes: int) -> dict[str, Any]:
    return {"size": len(bytearray(megabytes * 1024 * 1024))}


@handler("talk_in_process", queue="q")
def talk_in_process(word: str) -> None:
    _talk(word)


@handler("talk_on_thread", queue="q", isolation="thread")
def talk_on_thread(word: str) -> None:
    _talk(word)


@handler("talk", queue="q")
async def talk(word: str) -> None:
    _talk(word)


def _talk(word: str) -> None:
    for number in range(3):
        print(f"{word} printed {number}")
        print(f"{word} on stderr {number}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        logging.getLogger("lib").warning("%s logged %d", word, number)


@handler("tell_in_process", queue="q")
def tell_in_process(ctx: HandlerContext, secret: str, how: str) -> dict[str, Any]:
    return reveal(ctx, secret, how)


@handler("tell", queue="q")
async def tell(ctx: HandlerContext, secret: str, how: str) -> dict[str, Any]:
    return reveal(ctx, secret, how)


def reveal(ctx: HandlerContext, secret: str, how: str) -> dict[str, Any]:
    """Give a secret away."""
    match how:
        case "raise":
            raise RuntimeError(f"cannot log in with {secret}")
        case "print":
            print(f"logging in with {secret}")
            logging.getLogger("lib").error("did not work: %s", secret)
        case "progress":
            ctx.progress(1, 2, f"with {secret}")
        case "checkpoint":
            ctx.checkpoint("login", {"password": secret})
    return {"length": len(secret), "said": secret if how == "return" else ""}

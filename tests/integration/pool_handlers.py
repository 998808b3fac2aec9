"""Handlers that use the database of the operator: on the loop, on a thread, and in a process."""

from __future__ import annotations

from typing import Any

from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler

INSERT = "INSERT INTO written (mode) VALUES (%s) RETURNING mode, pg_backend_pid() AS backend"


def _insert(ctx: HandlerContext, mode: str, *, fails: bool) -> dict[str, Any]:
    with ctx.pool.connection() as connection:
        row = connection.execute(INSERT, [mode]).fetchone()
        if fails:
            raise RuntimeError("after the insert")
    return dict(row or {})


async def _insert_async(ctx: HandlerContext, mode: str, *, fails: bool) -> dict[str, Any]:
    async with ctx.pool.connection() as connection:
        row = await (await connection.execute(INSERT, [mode])).fetchone()
        if fails:
            raise RuntimeError("after the insert")
    return dict(row or {})


@handler(queue="q")
def in_a_process(ctx: HandlerContext, fails: bool = False) -> dict[str, Any]:
    return _insert(ctx, "in_a_process", fails=fails)


@handler(queue="q", isolation="thread")
def on_a_thread(ctx: HandlerContext, fails: bool = False) -> dict[str, Any]:
    return _insert(ctx, "on_a_thread", fails=fails)


@handler(queue="q")
async def on_the_loop(ctx: HandlerContext, fails: bool = False) -> dict[str, Any]:
    return await _insert_async(ctx, "on_the_loop", fails=fails)


@handler(queue="q", isolation="process")
async def on_a_loop_in_a_process(ctx: HandlerContext, fails: bool = False) -> dict[str, Any]:
    return await _insert_async(ctx, "on_a_loop_in_a_process", fails=fails)

"""Call a handler with its context and return the outcome: on this thread, or on the running loop.

Used by the worker and by child processes, so that both describe outcomes alike. Waiting and timeouts are
elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import TYPE_CHECKING, Any

from dagmaster.errors import NodesRejected
from dagmaster.ports.task_messages import Succeeded
from dagmaster.sdk.handler_context import CURRENT_CONTEXT
from dagmaster.sdk.handler_decorator import HandlerSpec, HandlerStyle
from dagmaster.telemetry import traces
from dagmaster.worker.checkpoint_validation import discard_stale_checkpoint, needs_validation
from dagmaster.worker.json_copy import json_copy
from dagmaster.worker.task_outcomes import NOTHING, failed, failure_of, handle_yielded, outcome_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from contextlib import AbstractContextManager

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.task_messages import Outcome
    from dagmaster.sdk.handler_context import HandlerContext


def is_blocking(spec: HandlerSpec) -> bool:
    """Return whether calling it keeps a thread busy: a plain function, or a plain generator."""
    style = spec.style
    return style is HandlerStyle.PLAIN or (
        style is HandlerStyle.GENERATOR and not inspect.isasyncgenfunction(spec.function)
    )


def run_on_thread(spec: HandlerSpec, context: HandlerContext, params: Any, *, own: bool = False) -> Outcome:
    """Run a plain function or generator to its outcome. `own`: the params are JSON and not shared."""
    # Functions that the handler calls find its context.
    token = CURRENT_CONTEXT.set(context)
    try:
        context.params = params if own else json_copy(params, kind="invalid_params", subject="the params")
        context.handler, context.handler_version = spec.name, spec.version
        if needs_validation(context):
            discard_stale_checkpoint(context)
        with _handler_span(context):
            produced = spec.call(context)
            value = (
                _run_generator(produced, context, spec) if spec.style is HandlerStyle.GENERATOR else produced
            )
        return (
            _cancelled_outcome()
            if context.saw_cancellation
            else _with_nodes(outcome_of(value, spec), context)
        )
    except BaseException as error:  # noqa: BLE001 - SystemExit in a handler fails an attempt, not the process
        return failure_of(error, context.about)
    finally:
        CURRENT_CONTEXT.reset(token)
        context.close()


async def run_on_loop(
    spec: HandlerSpec, context: HandlerContext, params: Any, *, own: bool = False
) -> Outcome:
    """Run a coroutine function, an async generator or a class to its outcome."""
    token = CURRENT_CONTEXT.set(context)
    context.loop = asyncio.get_running_loop()
    try:
        context.params = params if own else json_copy(params, kind="invalid_params", subject="the params")
        context.handler, context.handler_version = spec.name, spec.version
        if needs_validation(context):
            # On a thread: other handlers share the loop.
            await asyncio.to_thread(discard_stale_checkpoint, context)
        with _handler_span(context):
            produced = spec.call(context)
            value = await (
                produced
                if spec.style is HandlerStyle.ASYNC
                else _run_async_generator(produced, context, spec)
            )
            if context.running_task is not None:
                await context.running_task.finish_calls()
        # A coroutine that is asked to stop is cancelled: it always notices.
        return _cancelled_outcome() if context.cancelled else _with_nodes(outcome_of(value, spec), context)
    except BaseException as error:  # noqa: BLE001 - as above
        return failure_of(error, context.about)
    finally:
        CURRENT_CONTEXT.reset(token)
        context.close()


def _with_nodes(outcome: Outcome, context: HandlerContext) -> Outcome:
    """Return the outcome with the nodes that the handler added; a failure if they cannot be added."""
    if context.added is None or not isinstance(outcome, Succeeded):
        return outcome
    try:
        # `apply` has checked what it added.
        if context.running_task is None:
            context.added.check()
    except NodesRejected as error:
        return failed("added_nodes", f"its nodes cannot be added: {error}", permanent=True)
    outcome.added = context.added
    return outcome


def _handler_span(context: HandlerContext) -> AbstractContextManager[Any]:
    """Continue the trace of the job: what the handler calls becomes a part of it."""
    if not traces.is_tracing():
        return traces.OFF
    return traces.span(
        f"handler {context.handler}",
        context.trace_parent,
        job_id=context.job_id,
        node_id=context.node_id,
        attempt=context.attempt,
        task_id=context.task_id,
        workflow=context.workflow,
    )


def _cancelled_outcome() -> Outcome:
    """Return the outcome of a handler that was asked to stop and saw it: its result may be partial."""
    return failed("cancelled", "the task was asked to stop", permanent=True)


async def _run_async_generator(
    generator: AsyncGenerator[Any, None], context: HandlerContext, spec: HandlerSpec
) -> JsonValue:
    """Run an async generator to its end; return its last result."""
    result = None
    async with contextlib.aclosing(generator):
        async for item in generator:
            value = handle_yielded(item, context, spec)
            if value is not NOTHING:
                result = value
    return result


def _run_generator(
    generator: Generator[Any, None, Any], context: HandlerContext, spec: HandlerSpec
) -> JsonValue:
    """Run a plain generator to its end; return its return value, else its last result."""
    result = None
    with contextlib.closing(generator):
        while True:
            try:
                item = next(generator)
            except StopIteration as end:
                return result if end.value is None else end.value
            value = handle_yielded(item, context, spec)
            if value is not NOTHING:
                result = value

"""Small example handlers: each shows one feature of the handler API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, TypedDict

from pydantic import BaseModel, Field

from dagmaster.errors import PermanentError
from dagmaster.ports.handler_reports import Checkpoint, Progress
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler

QUEUE = "default"
MAX_CHUNKS = 1_000_000
MAX_NUMBERS = 10_000_000
MEDIUM_FROM_MB = 100
LARGE_FROM_MB = 1000

Number = int | float
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, le=86_400)]


class Echoed(TypedDict):
    """The output of `echo`: the params unchanged.

    A TypedDict, not a model, so that they are validated only once.
    """

    echoed_params: dict[str, Any]


class Greeting(BaseModel):
    """The output of `hello_world`."""

    message: str


class Slept(BaseModel):
    """The output of `sleep`."""

    slept: float


class Attempted(BaseModel):
    """The output of `flaky` once it succeeds."""

    attempt: int


class Phases(BaseModel):
    """The output of `multi_phase`."""

    phases: int
    resumed_from: int


class Size(BaseModel):
    """The output of `size_check`."""

    size_mb: Number
    category: Literal["small", "medium", "large"]


class Processed(BaseModel):
    """The output of `chunk_processor`."""

    processed: int
    sum: Number


class Chunks(BaseModel):
    """The output of `make_chunks`."""

    chunks: list[list[int]]
    count: int


@handler("echo", queue=QUEUE)
async def echo(ctx: HandlerContext) -> Echoed:
    """Return the params unchanged."""
    return {"echoed_params": ctx.params}


@handler("hello_world", queue=QUEUE)
async def hello_world(name: str = "World") -> Greeting:
    """Return a greeting."""
    return Greeting(message=f"Hello, {name}!")


@handler("sleep", queue=QUEUE)
def sleep(seconds: Seconds) -> Slept:
    """Block for some seconds, as a plain function."""
    time.sleep(seconds)
    return Slept(slept=seconds)


@handler("fail", queue=QUEUE)
async def fail(message: str = "failed on purpose", permanent: bool = False) -> None:  # noqa: FBT001, FBT002 - params have names
    """Fail with a message; without retry if `permanent` is true."""
    if permanent:
        raise PermanentError(message)
    raise RuntimeError(message)


@handler("flaky", queue=QUEUE)
async def flaky(ctx: HandlerContext, fail_times: Count = 1) -> Attempted:
    """Fail the first `fail_times` attempts, then return the number of the attempt."""
    if ctx.attempt <= fail_times:
        raise RuntimeError(f"attempt {ctx.attempt} fails on purpose, like the first {fail_times}")
    return Attempted(attempt=ctx.attempt)


@handler("multi_phase", queue=QUEUE)
async def multi_phase(
    ctx: HandlerContext,
    phases: Count = 3,
    seconds_per_phase: Seconds = 0,
) -> AsyncIterator[Progress | Checkpoint | Phases]:
    """Work in phases with a checkpoint after each; resume after the last saved one."""
    resumed_from = int((ctx.checkpoint_data or {}).get("done", 0))
    for done in range(resumed_from + 1, phases + 1):
        await asyncio.sleep(seconds_per_phase)
        yield Progress(done, phases, f"phase {done}")
        yield Checkpoint(f"phase_{done}", {"done": done})
    yield Phases(phases=phases, resumed_from=resumed_from)


@handler("size_check", queue=QUEUE)
async def size_check(size_mb: Annotated[Number, Field(ge=0)]) -> Size:
    """Classify a size as small (under 100 MB), medium (under 1000 MB) or large."""
    if size_mb < MEDIUM_FROM_MB:
        return Size(size_mb=size_mb, category="small")
    return Size(size_mb=size_mb, category="medium" if size_mb < LARGE_FROM_MB else "large")


@handler("chunk_processor", queue=QUEUE)
async def chunk_processor(chunk: list[Number], seconds: Seconds = 0) -> Processed:
    """Count and sum the numbers of a chunk, optionally after some seconds."""
    if seconds:
        await asyncio.sleep(seconds)
    return Processed(processed=len(chunk), sum=sum(chunk))


@handler("make_chunks", queue=QUEUE)
async def make_chunks(count: Count, chunk_size: Annotated[int, Field(ge=1)] = 1) -> Chunks:
    """Return a list of chunks of numbers to fan out over, at most a million of them."""
    if count > MAX_CHUNKS:
        raise PermanentError(f"count is {count:,}: at most {MAX_CHUNKS:,} chunks are allowed")
    if count * chunk_size > MAX_NUMBERS:
        raise PermanentError(
            f"{count:,} chunks of {chunk_size:,} exceed the limit of {MAX_NUMBERS:,} numbers"
        )
    starts = range(0, count * chunk_size, chunk_size)
    return Chunks(chunks=[list(range(start, start + chunk_size)) for start in starts], count=count)

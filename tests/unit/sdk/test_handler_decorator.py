"""`@handler`: what it accepts, and the styles of handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from dagmaster.engine.retry import NO_RETRY, Backoff, RetryPolicy
from dagmaster.errors import HandlerInvalid
from dagmaster.ports.handler_reports import Checkpoint, HandlerResult, Progress
from dagmaster.sdk.entrypoints import name_problem
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_decorator import entrypoint_spec
from dagmaster.sdk.handler_definitions import PublishedHandler, describe_handler
from dagmaster.sdk.handler_registry import (
    CheckpointableHandler,
    HandlerStyle,
    handler,
    register_handler,
    spec_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator


class Box(BaseModel):
    west: float
    east: float = 0.0


def arguments(function: Any, **params: Any) -> dict[str, Any]:
    return spec_of(function).signature.arguments(HandlerContext(params=params))


# ── the decorator ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_decorated_function_stays_an_ordinary_function():
    @handler("double")
    def double(number: int) -> dict[str, int]:
        return {"doubled": 2 * number}

    assert double(4) == {"doubled": 8}


def test_a_handler_says_what_it_was_given():
    retry = RetryPolicy(max_attempts=7)

    @handler(
        "raster.validate",
        queue="heavy",
        timeout_seconds=60,
        retry=retry,
        version=2,
        aliases=["raster_validate"],
    )
    async def validate(ctx: HandlerContext) -> HandlerResult:
        """Look at a raster.

        At length.
        """
        return HandlerResult(success=bool(ctx))

    spec = spec_of(validate)
    assert (spec.name, spec.queue, spec.timeout_seconds, spec.version) == (
        "raster.validate",
        "heavy",
        60,
        "2",
    )
    assert (spec.retry, spec.aliases, spec.isolation) == (retry, ("raster_validate",), None)
    assert (spec.description, spec.module, spec.function) == ("Look at a raster.", __name__, validate)


def test_without_a_name_the_functions_own_is_taken():
    @handler()
    def shrink() -> None: ...

    assert spec_of(shrink).name == "shrink"


def test_the_older_name_of_the_decorator_works():
    @register_handler("old", queue="light")
    def old() -> None: ...

    assert spec_of(old).queue == "light"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, None),
        (5, RetryPolicy(max_attempts=5)),
        ("none", NO_RETRY),
        ({"max_attempts": 2, "backoff": "linear"}, RetryPolicy(max_attempts=2, backoff=Backoff.LINEAR)),
        (RetryPolicy(jitter=False), RetryPolicy(jitter=False)),
    ],
)
def test_a_retry_can_be_written_in_several_ways(written, expected):
    @handler("x", retry=written)
    def function() -> None: ...

    assert spec_of(function).retry == expected


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"name": "no spaces"}, "is not a name for a handler"),
        ({"name": "a..b"}, "is not a name for a handler"),
        ({"name": ""}, "is not a name for a handler"),
        ({"name": "a" * 65}, "at most 64 characters, this one 65"),
        ({"name": "a." + "b" * 63}, "at most 64 characters, this one 65"),
        ({"name": "a", "aliases": ["b" * 65]}, "at most 64 characters, this one 65"),
        ({"name": "a", "aliases": "b"}, r"write \['b'\]"),
        ({"name": "a", "aliases": ["b c"]}, "'b c' is not a name"),
        ({"name": "a", "queue": ""}, "queue is a name"),
        ({"name": "a", "queue": 3}, "queue is a name"),
        ({"name": "a", "timeout_seconds": 0}, "from 1 to 86,400"),
        ({"name": "a", "timeout_seconds": 86_401}, "from 1 to 86,400"),
        ({"name": "a", "timeout_seconds": float("nan")}, "from 1 to 86,400"),
        ({"name": "a", "timeout_seconds": True}, "from 1 to 86,400"),
        ({"name": "a", "isolation": "jail"}, "process or thread"),
        ({"name": "a", "retry": 0}, "max_attempts"),
        ({"name": "a", "retry": "often"}, "retry is"),
        ({"name": "a", "retry": True}, "retry is"),
        ({"name": "a", "retry": {"max_attempt": 2}}, "did you mean 'max_attempts'"),
        ({"name": "a", "retry": RetryPolicy(max_attempts=0)}, "max_attempts"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_module_is_imported(wrong, sentence):
    with pytest.raises(HandlerInvalid, match=sentence):
        handler(**wrong)


def test_a_name_may_have_64_characters_and_a_function_in_a_module_more():
    @handler("a" * 64)
    def function() -> None: ...

    assert spec_of(function).name == "a" * 64
    assert name_problem("b" * 64) is None
    assert "at most 64" in (name_problem("b" * 65) or "")
    name = "module." + "f" * 100
    assert name_problem(name) is None
    double = f"{__name__}.{'f' * 70}"
    assert spec_of(handler(double)(lambda: None)).name == double
    assert entrypoint_spec(function, name).name == name
    # What an earlier version published.
    assert PublishedHandler(describe_handler(spec_of(function)) | {"name": "b" * 100}).name == "b" * 100


def test_forgotten_parentheses_are_explained():
    def function() -> None: ...

    with pytest.raises(HandlerInvalid, match="with parentheses"):
        handler(function)  # type: ignore[arg-type]


def test_a_function_is_not_made_a_handler_twice():
    @handler("first")
    def function() -> None: ...

    with pytest.raises(HandlerInvalid, match="'first' already: use aliases"):
        handler("second")(function)


def test_what_takes_no_mark_is_no_handler():
    with pytest.raises(HandlerInvalid, match="a function or a class"):
        handler("length")(len)


# ── styles ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_style_is_how_the_function_is_written():
    async def coroutine() -> None: ...
    def plain() -> None: ...
    def generator() -> Generator[Progress, None, None]:
        yield Progress(1)

    async def async_generator() -> AsyncIterator[Progress]:
        yield Progress(1)

    styles = [spec_of(handler("x")(one)).style for one in (coroutine, plain, generator, async_generator)]
    assert styles == [HandlerStyle.ASYNC, HandlerStyle.PLAIN, HandlerStyle.GENERATOR, HandlerStyle.GENERATOR]


def test_a_class_gets_params_and_the_last_checkpoint():
    @handler("steps")
    class Steps(CheckpointableHandler):
        async def execute(
            self, params: dict[str, Any], checkpoint: dict[str, Any] | None = None
        ) -> AsyncIterator[Any]:
            yield params, checkpoint

    spec = spec_of(Steps)
    context = HandlerContext(params={"a": 1}, last_checkpoint=Checkpoint("half", {"n": 2}, ("x.tif",)))
    saved = {"phase": "half", "data": {"n": 2}, "artifacts": ["x.tif"]}
    assert spec.style is HandlerStyle.CLASS
    assert spec.signature.arguments(context) == {"params": {"a": 1}, "checkpoint": saved}
    assert spec.known_params() is None


def test_the_params_of_a_class_can_be_a_model():
    @handler("steps")
    class Steps(CheckpointableHandler):
        async def execute(self, params: Box, checkpoint: Any = None) -> AsyncIterator[Any]:
            yield params, checkpoint

    assert arguments(Steps, west=1)["params"].west == 1.0
    assert spec_of(Steps).required_params() == {"west"}


def test_a_subclass_of_a_handler_is_not_that_handler():
    @handler("steps")
    class Steps(CheckpointableHandler):
        async def execute(self, params: Any, checkpoint: Any = None) -> AsyncIterator[Any]:
            yield params, checkpoint

    class More(Steps): ...

    with pytest.raises(HandlerInvalid, match="is not a handler"):
        spec_of(More)


def test_a_class_has_to_be_a_checkpointable_handler():
    @handler("thing")
    class Thing: ...

    with pytest.raises(HandlerInvalid, match="extends CheckpointableHandler"):
        spec_of(Thing)


def test_execute_has_to_yield():
    @handler("thing")
    class Thing(CheckpointableHandler):
        async def execute(self, params: Any, checkpoint: Any = None) -> Any:  # type: ignore[override]
            return params, checkpoint

    with pytest.raises(HandlerInvalid, match=r"'thing'.*an `async def` that yields"):
        spec_of(Thing)

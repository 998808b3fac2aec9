"""Outcomes of handlers: from what a handler returned, yielded or raised.

Pure: nothing here runs a handler or waits for one.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import signal
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from dagmaster.errors import HandlerNotFound, PermanentError
from dagmaster.errors.source_map import format_path, truncate
from dagmaster.ports.blob_uris import without_keys
from dagmaster.ports.handler_reports import Artifact, Checkpoint, HandlerResult, Progress, select_earlier
from dagmaster.ports.task_messages import Failed, Outcome, Succeeded, add_ending
from dagmaster.sdk import handler_decorator
from dagmaster.text_format import storable_text
from dagmaster.worker.error_truncation import CUT, describe, truncate_details, type_name
from dagmaster.worker.json_copy import json_copy

if TYPE_CHECKING:
    from types import TracebackType

    from dagmaster.sdk.handler_context import HandlerContext
    from dagmaster.sdk.handler_registry import HandlerSpec, Registry

MAX_MESSAGE = 2_000
MAX_KIND = 200
MAX_PLACE = 1_100
MAX_TRACEBACK = 4_096
MAX_FRAMES = 20
MAX_FIELDS_SHOWN = 20

NOTHING: Final[Any] = object()
"""Returned by `handle_yielded` for an item that is no result."""

# Frames in these directories only lead to the handler.
_OURS = tuple(str(Path(file).parent) for file in (__file__, handler_decorator.__file__))
_SIGNALS = frozenset(signal.Signals)
_RESULT_KEYS = frozenset({"type", "output", "success", "error_message", "metrics"})


def outcome_of(value: Any, spec: HandlerSpec) -> Outcome:
    """Return the outcome of a handler that returned; raise PermanentError if the output is invalid."""
    metrics: dict[str, Any] = {}
    if isinstance(value, HandlerResult):
        if not value.success:
            return failed("error", value.error_message or "the handler reported a failure")
        if value.metrics:
            metrics = json_copy(value.metrics, kind="invalid_output", subject=f"the metrics of {spec.name}")
        value = value.output
    if value is None and not spec.returns_json:
        value = {}
    if spec.output_model is not None:
        value = _validated_output(value, spec)
    elif isinstance(value, BaseModel):
        value = _dump_model(value)
    if inspect.iscoroutine(value) or not (spec.returns_json or isinstance(value, dict)):
        raise PermanentError(_describe_bad_output(value, spec.name), kind="invalid_output", path="")
    return Succeeded(json_copy(value, kind="invalid_output", subject=f"the output of {spec.name}"), metrics)


def handle_yielded(item: Any, context: HandlerContext, spec: HandlerSpec) -> Any:
    """Report a yielded item; return it if it is a result, else NOTHING."""
    match item:
        case None:
            return NOTHING
        case Progress():
            context.progress(item.current, item.total, item.message)
            return NOTHING
        case Checkpoint():
            context.checkpoint(item.phase, item.data, item.artifacts)
            return NOTHING
        case {"type": "progress"}:
            context.progress(item.get("current", 0), item.get("total"), item.get("message", ""))
            return NOTHING
        case {"type": "checkpoint"}:
            context.checkpoint(item.get("phase", ""), item.get("data"), item.get("artifacts") or ())
            return NOTHING
        case {"type": "result", "output": output} if item.keys() <= _RESULT_KEYS:
            rest = {key: item[key] for key in item if key not in ("type", "output")}
            return HandlerResult(**{"success": True, **rest, "output": output})
        case {"type": "result"}:
            return {key: item[key] for key in item if key != "type"}
        case _ if spec.returns_json or isinstance(item, dict | HandlerResult | BaseModel):
            return item
    raise PermanentError(
        f"the handler yielded a value of type {type(item).__name__}: it may yield Progress, Checkpoint and a"
        " result",
        kind="invalid_output",
        path="",
    )


def readable_progress(progress: Progress, context: HandlerContext) -> Progress | None:
    """Return the progress in plain numbers.

    Other progress is dropped with a warning, and never fails a task.
    """
    current, total = _number(progress.current), _number(progress.total)
    if current is None or (total is None and progress.total is not None):
        context.logger.warning(
            "invalid progress (not a number): %r of %r; dropped", progress.current, progress.total
        )
        return None
    return Progress(current, total, storable_text(str(progress.message)))


def checkpoint_copy(checkpoint: Checkpoint) -> Checkpoint:
    """Return a copy; raise PermanentError of kind `invalid_checkpoint` if it is not JSON."""
    phase: Any = checkpoint.phase
    data: Any = checkpoint.data
    artifacts: Any = checkpoint.artifacts
    if not isinstance(phase, str) or not phase or not isinstance(data, dict):
        raise PermanentError(
            "a checkpoint has a phase, which is text, and data, a dict", kind="invalid_checkpoint"
        )
    if not isinstance(artifacts, list | tuple) or not all(isinstance(one, Artifact) for one in artifacts):
        raise PermanentError(
            "the artifacts of a checkpoint are a list of URIs, paths, or results of ctx.blobs.publish",
            kind="invalid_checkpoint",
        )
    # The earlier ones are copies already, and do not count towards the largest size of a checkpoint.
    body = replace(checkpoint, earlier=()).to_json()
    copied = Checkpoint.from_json(json_copy(body, kind="invalid_checkpoint", subject="the checkpoint"))
    copied.earlier = select_earlier(copied, checkpoint.earlier)
    return copied


def failure_of(error: BaseException, about: str | None = None) -> Failed:
    """Return the outcome of a handler that raised; `about` is the subject of its work.

    It raises nothing, whatever the attributes of the handler's exception do.
    """
    try:
        match error:
            case PermanentError():
                return _permanent(error, about)
            case SystemExit() | KeyboardInterrupt():
                text = f"the handler tried to end the process: {describe(error, repr)}"
                return failed("exit", text, type=type_name(error))
            case asyncio.CancelledError():
                return failed("error", "the handler cancelled itself", type=type_name(error))
            case MemoryError():
                text = ": ".join(filter(None, ["the handler ran out of memory", describe(error)]))
                return failed("out_of_memory", text, type=type_name(error), traceback=_traceback_of(error))
        return failed("error", _message_of(error), type=type_name(error), traceback=_traceback_of(error))
    except BaseException:  # noqa: BLE001 - a task without an outcome would hang its job
        return unknown_failure(error)


def crash_of(returncode: int) -> Failed:
    """Return the outcome of a task whose process died. `returncode` is that of `subprocess`."""
    if returncode >= 0:
        text = f"the handler ended its process with exit code {returncode} (os._exit?)"
        return failed("crashed", text, exit_code=returncode)
    number = -returncode
    name = signal.Signals(number).name if number in _SIGNALS else str(number)
    if number == signal.SIGKILL:
        return failed(
            "crashed",
            f"the handler's process was killed ({name}): out of memory, or killed by an operator",
            signal=name,
        )
    return failed("crashed", f"the handler's process died of signal {number} ({name})", signal=name)


def unknown_failure(error: BaseException) -> Failed:
    """Return a failure of which only the type is known, as a last resort."""
    name = type_name(error)
    return failed("error", f"the handler failed, and the failure cannot be described: {name}", type=name)


NO_RETRY: Final = "its worker restarted, so it is not retried"
"""What the failure of a handler says that cost its worker."""


def unstoppable(ending: Outcome | None, seconds: float) -> Outcome | None:
    """Return the outcome of a handler that ignored a request to stop for so long, and costs its worker.

    A cancelled task stays cancelled, and a released one released. A failure is permanent: each retry would
    cost another worker, and its neighbours their work.
    """
    how = f"the handler could not be stopped (it ignored cancellation for {seconds:.3g} s)"
    outcome = add_ending(ending, f"{how}; {NO_RETRY}", abandoned=True)
    if not isinstance(outcome, Failed):
        return outcome
    if outcome.error["kind"] == "timeout":
        outcome.error["kind"] = "unstoppable"
    return replace(outcome, permanent=True)


def unknown_handler(registry: Registry, name: str) -> Failed:
    """Return the outcome of a task whose handler this worker does not have."""
    try:
        registry.get(name)
    except HandlerNotFound as error:
        return failed("unknown_handler", str(error), permanent=True)
    raise AssertionError(name)


def failed(kind: str, message: str, *, permanent: bool = False, **details: Any) -> Failed:
    """Return a failure; its message is truncated and storable."""
    return Failed({"kind": kind, "message": _short(message, MAX_MESSAGE), **details}, permanent)


def _validated_output(value: Any, spec: HandlerSpec) -> Any:
    """Return the value, checked against the model of the return annotation."""
    model = spec.output_model
    assert model is not None  # noqa: S101 - for mypy; the caller looked
    if not isinstance(value, model):
        if isinstance(value, BaseModel):
            value = value.model_dump()
        try:
            value = model.model_validate(value)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False, include_context=False)[
                :MAX_FIELDS_SHOWN
            ]
            listed = "; ".join(
                f"`{format_path(one['loc'])}`: {one['msg']}" if one["loc"] else one["msg"] for one in errors
            )
            path = format_path(errors[0]["loc"])
            raise PermanentError(
                f"the output of {spec.name} is not a {model.__name__}: {listed}",
                kind="invalid_output",
                path=path,
            ) from None
    return _dump_model(value)


def _dump_model(value: BaseModel) -> Any:
    # The serializer itself, once a task: 0.5 µs for a small model, where `model_dump` takes 1.0 (2026-11).
    return value.__pydantic_serializer__.to_python(value, mode="json", by_alias=True, warnings=False)


def _describe_bad_output(value: Any, name: str) -> str:
    if inspect.iscoroutine(value):
        value.close()
        return f"{name} returned a coroutine: it, or the decorator around it, has to be an `async def`"
    return f"{name} returned a value of type {type(value).__name__}: an output is a dict, or a HandlerResult"


def _permanent(error: PermanentError, about: str | None) -> Failed:
    # Not all subclasses call our __init__.
    kind = _short(describe(_attribute(error, "kind", "permanent")), MAX_KIND)
    message = _message_of(error)
    if kind == "invalid_input" and about is not None:
        message = _append_subject(message, about)
    failure = failed(kind, message, permanent=True)
    return Failed({**truncate_details(_attribute(error, "details", {})), **failure.error}, permanent=True)


def _append_subject(message: str, about: str) -> str:
    """Return the message with the subject added, unless it names a place already."""
    place = without_keys(storable_text(describe(about)))
    if "://" in message or place.removeprefix("file://") in message:
        return message
    # The end of a URI is more specific than its beginning.
    where = f" [{place}]" if len(place) <= MAX_PLACE else f" [{CUT}{place[-MAX_PLACE:]}]"
    return _short(message, MAX_MESSAGE - len(where)) + where


def _attribute(error: BaseException, name: str, default: Any) -> Any:
    try:
        return getattr(error, name, default)
    except BaseException:  # noqa: BLE001 - a property of the handler's exception may raise anything
        return default


def _message_of(error: BaseException) -> str:
    return describe(error) or type_name(error)


def _traceback_of(error: BaseException) -> str:
    """Return the end of the traceback, from the handler's first frame on."""
    try:
        frames = _skip_our_frames(error.__traceback__)
        lines = traceback.format_exception(type(error), error, frames, limit=-MAX_FRAMES)
    except BaseException:  # noqa: BLE001 - its text, notes or causes failed; its frames may be readable
        frames = _skip_our_frames(error.__traceback__)
        lines = [*traceback.format_tb(frames, limit=-MAX_FRAMES), type_name(error)]
    text = storable_text("".join(lines).rstrip()[-MAX_TRACEBACK - 1 :])
    return text if len(text) <= MAX_TRACEBACK else "..." + text[3 - MAX_TRACEBACK :]


def _skip_our_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and str(Path(frames.tb_frame.f_code.co_filename).parent) in _OURS:
        frames = frames.tb_next
    return frames


def _number(value: Any) -> float | None:
    # float(): also for numpy's numbers, Decimal and Fraction.
    try:
        plain = value if type(value) in (int, float) else float(value)
        return plain if math.isfinite(plain) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _short(text: str, max_characters: int) -> str:
    # Truncated first: cleaning makes no text shorter, and a huge text should not be copied.
    return truncate(storable_text(describe(text)[: max_characters + 1]), max_characters)

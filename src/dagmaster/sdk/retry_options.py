"""The retry policy of a handler or a task as it is written: the keys, their limits, their short forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagmaster.engine.retry import NO_RETRY, Backoff, RetryPolicy
from dagmaster.errors import HandlerInvalid
from dagmaster.errors.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

_RETRY: Final = RetryPolicy()


class RetryModel(BaseModel):
    """How often a task is attempted, and the delay between attempts."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    max_attempts: int = Field(
        default=_RETRY.max_attempts, ge=1, le=1000, description="Attempts in total, including the first."
    )
    backoff: Literal["exponential", "linear", "fixed"] = Field(
        _RETRY.backoff.value, description="How the delay grows."
    )
    initial_delay_seconds: float = Field(
        default=_RETRY.initial_delay_seconds,
        ge=0,
        le=86_400,
        description="The delay after the first failure.",
    )
    max_delay_seconds: float = Field(
        default=_RETRY.max_delay_seconds, ge=0, le=86_400, description="The longest delay."
    )
    jitter: bool = Field(
        default=_RETRY.jitter, description="Randomise the delays, so that failures do not retry all at once."
    )
    max_lost: int = Field(
        default=_RETRY.max_lost,
        ge=0,
        le=1000,
        description="How often its worker may die while it runs nothing else, before it fails.",
    )


def to_policy(retry: Any, label: str) -> RetryPolicy | None:
    """Return the retry policy, with the bounds of the YAML keys."""
    if retry is None:
        return None
    if retry == "none":
        return NO_RETRY
    if isinstance(retry, RetryPolicy):
        keys = {**asdict(retry), "backoff": str(retry.backoff)}
    elif isinstance(retry, int) and not isinstance(retry, bool):
        keys = {"max_attempts": retry}
    elif isinstance(retry, Mapping):
        keys = dict(retry)
    else:
        raise HandlerInvalid(
            f'{label}: retry is a RetryPolicy, its keys, a number of attempts or "none", not {retry!r}'
        )
    try:
        read = RetryModel.model_validate(keys)
    except ValidationError as error:
        one = error.errors()[0]
        key = str(one["loc"][0]) if one["loc"] else ""
        hint = did_you_mean(key, RetryModel.model_fields) if one["type"] == "extra_forbidden" else one["msg"]
        value = "" if one["type"] == "extra_forbidden" else f", not {one['input']!r:.100}"
        raise HandlerInvalid(f"{label}: retry has a wrong {key!r}: {hint}{value}") from error
    for message, hint in delay_problems(keys):
        raise HandlerInvalid(f"{label}: retry: {message}; {hint}")
    return RetryPolicy(**{**read.model_dump(), "backoff": Backoff(read.backoff)})


def read_retry(retry: RetryPolicy | Mapping[str, Any] | int | str, label: str) -> dict[str, Any] | str:
    """Return a retry as the key of a workflow file; raise HandlerInvalid if it is not a retry."""
    if to_policy(retry, label) is NO_RETRY:
        return "none"
    if isinstance(retry, RetryPolicy):
        return {**asdict(retry), "backoff": str(retry.backoff)}
    return dict(retry) if isinstance(retry, Mapping) else {"max_attempts": retry}


def delay_problems(retry: Any) -> Iterator[tuple[str, str]]:
    """Yield a problem if the first delay is longer than the longest, by default 300 s, which all would be."""
    if not isinstance(retry, Mapping):
        return
    initial = retry.get("initial_delay_seconds")
    longest = retry.get("max_delay_seconds", _RETRY.max_delay_seconds)
    if isinstance(initial, int | float) and isinstance(longest, int | float) and initial > longest:
        message = (
            f"initial_delay_seconds has no effect above max_delay_seconds ({longest:g}): each delay would be"
            " that"
        )
        yield message, f"add max_delay_seconds: {initial:g} or more, or reduce it"

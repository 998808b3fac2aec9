"""The settings of callbacks, and of the relay that delivers them."""

from __future__ import annotations

import math
import re
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, Field, field_validator
from pydantic_settings import NoDecode

from dagmaster.ports.default_settings import (
    CALLBACK_PAUSE_DAYS,
    CALLBACK_RETENTION_DAYS,
    CALLBACK_RETRY_SECONDS,
    RESULT_LINK_HOURS,
)

_BASE_URL: Final = re.compile(
    r"(https://[^\s/?#@]+|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?)(/[^\s?#@]*)?"
)
MAX_DELAYS: Final = 50
LONGEST_DELAY: Final = 7 * 86_400.0


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Delays = Annotated[tuple[float, ...], NoDecode, BeforeValidator(_split)]


class CallbackSettings(BaseModel):
    """Callbacks: who delivers them, how often, and where results are fetched."""

    relay: bool = Field(
        default=True,
        description="Orchestrators deliver callbacks; false: `dagmaster relay` alone does.",
    )
    callback_loopback: bool = Field(
        default=False,
        description="Callbacks may go to this machine, and without TLS there; `dagmaster dev` allows it. Any"
        " caller with the scope submit can then send requests to the services of this machine.",
    )
    callback_retry_seconds: Delays = Field(
        default=CALLBACK_RETRY_SECONDS,
        description="How long a callback waits after each failed attempt, comma-separated, a quarter more or"
        " less; after the last of them it is dead.",
    )
    callback_pause_days: float = Field(
        default=CALLBACK_PAUSE_DAYS,
        gt=0,
        le=365,
        description="An endpoint that has failed for this long is paused: its callbacks wait until an"
        " operator resumes it.",
    )
    callback_retention_days: float = Field(
        default=CALLBACK_RETENTION_DAYS,
        ge=0,
        le=36_500,
        description="How long delivered callbacks are kept; dead ones stay until they are replayed. 0: for"
        " ever.",
    )
    gateway_url: str | None = Field(
        default=None,
        description="Where partners reach the gateway, as https://partners.example.com: the links in their"
        " callbacks lead there. Default: callbacks of requests have no link.",
    )
    result_link_hours: float = Field(
        default=RESULT_LINK_HOURS,
        gt=0,
        le=24 * 365,
        description="How long the link in a callback of a request is valid.",
    )

    @field_validator("callback_retry_seconds")
    @classmethod
    def _check_delays(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not 1 <= len(value) <= MAX_DELAYS:
            raise ValueError(f"must be 1 to {MAX_DELAYS} numbers of seconds with commas between them")
        if not all(math.isfinite(delay) and 0 < delay <= LONGEST_DELAY for delay in value):
            raise ValueError(f"must be seconds, each more than 0 and at most {LONGEST_DELAY:,.0f}")
        return value

    @field_validator("gateway_url")
    @classmethod
    def _check_gateway_url(cls, value: str | None) -> str | None:
        if value is not None and _BASE_URL.fullmatch(value) is None:
            raise ValueError("must be an https address without a query, or http of this machine")
        return None if value is None else value.rstrip("/")

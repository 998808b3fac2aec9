"""Requests of partners, and the platforms whose identifiers they send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from dagmaster.json_types import JsonObject
from dagmaster.records.nodes import NodeCountsRecord
from dagmaster.records.record import Record, Timestamp

MAX_LABEL: Final = 64
"""The longest name that a partner gives for who submits."""
MAX_CALLBACK_URL: Final = 512
MAX_PLATFORM_ID: Final = 32


class RequestStatus(StrEnum):
    """How far a request is. A job that waits is `running`, one that was cancelled `failed`."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProgressRecord(NodeCountsRecord, order={"percent": ""}):
    """How far the work of a request is: steps by their state, and never their names."""

    percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStatusRecord(Record):
    """What a partner sees of its request: nothing of the installation that works on it.

    `error`: a fixed sentence; programs match on `error_code`. `result_omitted`: why a result is not here.
    """

    request_id: str
    workflow_id: str
    status: RequestStatus
    submitted_at: Timestamp
    completed_at: Timestamp | None
    progress: RequestProgressRecord | None
    result: Any
    result_omitted: str | None
    error: str | None
    error_code: str | None


def _option(default: Any, *arguments: Any, **declaration: Any) -> Any:
    return field(default=default, metadata={"option": RequestOption(*arguments, **declaration)})


class RequestOption(NamedTuple):
    """How a field of a request is described and checked; numbers and texts have limits."""

    description: str
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions(Record):
    """What a partner asks for, without its inputs. Bodies of HTTP read the declarations."""

    workflow_id: str = field(metadata={"option": RequestOption("What to run.", 1, 64)})
    submitted_by: str = _option("", "Who asks, as the partner names it: a label.", 0, MAX_LABEL)
    callback_url: str | None = _option(
        None, "Where its states are sent. Default: the address of the tenant.", 1, MAX_CALLBACK_URL
    )
    priority: int = _option(5, "10 is the most urgent.", 0, 10)
    idempotency_key: str | None = _option(
        None, "The same key and body: the same answer, however often it is sent.", 1, 128
    )
    platform_id: str | None = _option(None, "The platform whose identifiers are sent.", 1, MAX_PLATFORM_ID)
    platform_refs: JsonObject | None = field(
        default=None, metadata={"option": RequestOption("The id fields of the platform, instead of fields.")}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody(RequestOptions):
    """What a partner sends. `fields`: the fields of the platform's own format."""

    input_params: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    sandbox: Mapping[str, Any] | None = None
    request_id: str | None = None
    """The id that the gateway made. Sent again it is the same request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord(RequestOptions, order={"request_id": "", "status": "request_id", "tenant": "status"}):
    """A request as people of the installation see it, with the job that it led to last.

    `submitted_by` is what the partner says; `actor` is the key or user that sent it. `rejection` says why no
    job could start.
    """

    request_id: str
    status: RequestStatus
    tenant: str
    actor: str
    job_id: str | None
    rejection: JsonObject | None
    is_sandbox: bool
    submitted_at: Timestamp
    completed_at: Timestamp | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformRecord(Record):
    """A partner's system: the fields that identify a dataset there, and where its other fields belong.

    All of `id_fields` are needed. They are text, unless `field_types` says `integer`. `field_map`: the
    platform's field, and its place: `platform_refs.NAME`, `inputs.NAME`, or a field of a submit.
    """

    platform_id: str
    title: str = ""
    id_fields: tuple[str, ...]
    optional_id_fields: tuple[str, ...] = ()
    field_types: Mapping[str, str] = field(default_factory=dict)
    field_map: Mapping[str, str] = field(default_factory=dict)

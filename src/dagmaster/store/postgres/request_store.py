"""Requests and platforms on PostgreSQL: stored by a client, read by servers and gateways."""

from __future__ import annotations

import json
import re
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import RequestQuotaExceeded, StatementFailed
from dagmaster.ports.requests import RequestFacts, StoredRequest
from dagmaster.records.requests import (
    PlatformRecord,
    RequestProgressRecord,
    RequestRecord,
    RequestStatus,
    RequestStatusRecord,
)
from dagmaster.store.json_columns import from_json
from dagmaster.store.postgres.audit_trail import entry_columns
from dagmaster.store.postgres.job_list import is_storable
from dagmaster.store.postgres.named_queries import Query, compile_query, parts, queries, split_ids
from dagmaster.store.postgres.submit_statement import submission
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.job_records import NewJob
    from dagmaster.ports.requests import NewRequest, RequestFilter
    from dagmaster.records.page import Position
    from dagmaster.store.postgres.tenant_session import Reader, Session

_SQL = queries("requests")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
NO_REQUEST: Final = "00000000-0000-0000-0000-000000000000"
"""The id that no request has. What is no id is looked up as this one: the answer takes the same time."""
_QUOTA_EXCEEDED: Final = "DM429"
"""What the trigger of the table raises (dag_count_requests)."""
_DAY_SECONDS: Final = 86_400
_OPEN: Final = frozenset({RequestStatus.PENDING, RequestStatus.RUNNING})
_EQUALITIES: Final = ("tenant", "workflow_id", "platform_id", "actor", "idempotency_key")


class PostgresRequestStore:
    """Stores requests with their jobs, on the connection of a client."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def submit(
        self, requests: Sequence[NewRequest], jobs: Sequence[NewJob], *, audit: Sequence[AuditEntry] = ()
    ) -> Mapping[str, float]:
        try:
            row = await self._session.row(*submission(jobs, audit, [_columns(one) for one in requests]))
        except StatementFailed as error:
            if getattr(error.__cause__, "sqlstate", "") == _QUOTA_EXCEEDED:
                raise _quota_exceeded(time.time()) from error
            raise
        stored = [text.partition("=") for text in split_ids(None if row is None else row["requests"])]
        return {request_id: float(at) for request_id, _, at in stored}

    async def find(self, requests: Sequence[NewRequest]) -> Mapping[str, StoredRequest]:
        if not requests:
            return {}
        params = {
            "ids": [one.request_id for one in requests],
            "actors": [one.actor for one in requests],
            "keys": [one.body.idempotency_key for one in requests],
        }
        return {row["asked"]: _stored(row) for row in await self._session.fetch(_SQL["find"], params)}

    async def platforms(self) -> Sequence[PlatformRecord]:
        return [_platform(row) for row in await self._session.fetch(_SQL["platforms"], {})]

    async def put_platform(self, platform: PlatformRecord, *, audit: Sequence[AuditEntry] = ()) -> None:
        params = {
            "platform_id": platform.platform_id,
            "title": platform.title,
            "id_fields": list(platform.id_fields),
            "optional_id_fields": list(platform.optional_id_fields),
            "field_types": json.dumps(dict(platform.field_types)),
            "field_map": json.dumps(dict(platform.field_map)),
        }
        await self._session.fetch(_SQL["put_platform"], params | entry_columns(audit))


class PostgresRequestReader:
    """Reads requests, on the connections of readers."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def platforms(self) -> Sequence[PlatformRecord]:
        return [_platform(row) for row in await self._reader.fetch(_SQL["platforms"], {})]

    async def status(self, request_id: str, *, actor: str | None = None) -> RequestFacts | None:
        row = await self._reader.row(_SQL["status"], {"request_id": _uuid(request_id), "actor": actor})
        return None if row is None else _facts(row)

    async def requests(
        self, request_filter: RequestFilter, *, after: Position | None = None, limit: int = 100
    ) -> Sequence[RequestRecord]:
        params: dict[str, Any] = {
            name: value for name in _EQUALITIES if (value := getattr(request_filter, name)) is not None
        }
        if not all(map(is_storable, params.values())):
            return []
        statuses = request_filter.statuses
        if statuses:
            params["statuses"] = sorted(statuses)
        if after is not None:
            params |= {"after_at": float(after[0]), "after_id": _uuid(str(after[1]))}
        is_open = bool(statuses) and statuses <= _OPEN
        query = requests_query(tuple(params), is_open=is_open)
        return [_record(row) for row in await self._reader.fetch(query, {**params, "limit": limit})]

    async def request(self, request_id: str, *, actor: str | None = None) -> RequestRecord | None:
        params: dict[str, Any] = {"request_id": _uuid(request_id)}
        if actor is not None:
            params["actor"] = actor
        row = await self._reader.row(requests_query(tuple(params)), {**params, "limit": 1})
        return None if row is None else _record(row)


@cache
def requests_query(params: tuple[str, ...], *, is_open: bool = False) -> Query:
    """Return the query of a page of requests, with the conditions that these parameters are for."""
    texts = parts("request_list")
    has_status = "statuses" in params
    conditions = [
        texts["equality"].replace("{column}", name) if name in _EQUALITIES else texts[name]
        for name in (name.replace("after_at", "after") for name in params)
        if name not in ("after_id", "statuses")
    ]
    filled = {
        "source": texts["open"] if is_open else texts["all"],
        "conditions": " AND ".join(conditions) or "true",
        "first": "" if has_status else texts["first"],
        "shown": texts["statuses"] if has_status else "true",
    }
    text = texts["page"]
    for name, part in filled.items():
        text = text.replace(f"{{{name}}}", part)
    return compile_query("request_list.page", text)


def _quota_exceeded(now: float) -> RequestQuotaExceeded:
    left = _DAY_SECONDS - now % _DAY_SECONDS
    return RequestQuotaExceeded(
        "the quota of requests a day is used up; it is renewed at midnight UTC,"
        f" {format_rfc3339(round(now + left))}",
        retry_after_seconds=left,
    )


def _uuid(text: str) -> str:
    return text if _UUID.fullmatch(text) else NO_REQUEST


def _columns(request: NewRequest) -> dict[str, Any]:
    body = request.body
    return {
        "request_id": request.request_id,
        "tenant": request.tenant,
        "actor": request.actor,
        "submitted_by": body.submitted_by,
        "workflow_id": body.workflow_id,
        "platform_id": body.platform_id,
        "platform_refs": None if body.platform_refs is None else json.dumps(dict(body.platform_refs)),
        "payload": request.payload,
        "idempotency_key": body.idempotency_key,
        "body_hash": request.body_hash,
        "hidden_hash": request.hidden_hash,
        "error": None if request.error is None else json.dumps(request.error),
        "job_id": None if request.job_id is None else int(request.job_id),
        "priority": body.priority,
        "callback_url": body.callback_url,
        "sandbox": None if request.sandbox is None else json.dumps(request.sandbox),
    }


def _stored(row: asyncpg.Record) -> StoredRequest:
    return StoredRequest(
        request_id=row["request_id"],
        is_own=row["is_own"],
        workflow_id=row["workflow_id"],
        body_hash=row["body_hash"],
        hidden=from_json(row["hidden_hash"]),
        error=from_json(row["error"]),
        job_id=_text(row["job_id"]),
        created_at=row["created_at"],
    )


def _platform(row: asyncpg.Record) -> PlatformRecord:
    return PlatformRecord(
        platform_id=row["platform_id"],
        title=row["title"],
        id_fields=tuple(row["id_fields"]),
        optional_id_fields=tuple(row["optional_id_fields"]),
        field_types=from_json(row["field_types"]),
        field_map=from_json(row["field_map"]),
    )


def _facts(row: asyncpg.Record) -> RequestFacts:
    record = RequestStatusRecord(
        request_id=row["request_id"],
        workflow_id=row["workflow_id"],
        status=RequestStatus(row["status"]),
        submitted_at=row["submitted_at"],
        completed_at=row["completed_at"],
        progress=_progress(row),
        result=from_json(row["result"]),
        result_omitted=None,
        error=None,
        error_code=row["error_code"],
    )
    return RequestFacts(record, is_cancelled=bool(row["is_cancelled"]), result_ref=row["result_ref"])


def _progress(row: asyncpg.Record) -> RequestProgressRecord | None:
    """Return how far the job of a request is; None if it has none."""
    if row["completed"] is None:
        return None
    names = ("completed", "running", "failed", "skipped", "cancelled")
    counts = {name: int(row[name]) for name in names}
    over = sum(counts.values()) - counts["running"]
    total = max(int(row["total"] or 0), over + counts["running"])
    return RequestProgressRecord(
        percent=100.0
        if row["completed_at"] is not None
        else round(min(over / max(total, 1), 0.999) * 100, 1),
        total=total,
        pending=total - over - counts["running"],
        **counts,
    )


def _record(row: asyncpg.Record) -> RequestRecord:
    return RequestRecord(
        request_id=row["request_id"],
        status=RequestStatus(row["status"]),
        tenant=row["tenant"],
        workflow_id=row["workflow_id"],
        platform_id=row["platform_id"],
        platform_refs=from_json(row["platform_refs"]),
        actor=row["actor"],
        submitted_by=row["submitted_by"],
        priority=row["priority"],
        idempotency_key=row["idempotency_key"],
        callback_url=row["callback_url"],
        job_id=_text(row["job_id"]),
        rejection=from_json(row["rejection"]),
        is_sandbox=row["is_sandbox"],
        submitted_at=row["submitted_at"],
        completed_at=row["completed_at"],
    )


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)

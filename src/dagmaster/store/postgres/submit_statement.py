"""The statement that stores jobs, made of the parts that a submission needs (`sql/submit.sql`)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from dagmaster.store.postgres.audit_trail import entry_columns
from dagmaster.store.postgres.job_columns import submitted_columns
from dagmaster.store.postgres.named_queries import Query, array_parameters, compile_query, for_rows, parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.job_records import NewJob

    Rows = Sequence[Mapping[str, Any]]


def submission(
    jobs: Sequence[NewJob], audit: Sequence[AuditEntry], requests: Rows = ()
) -> tuple[Query, Mapping[str, Any]]:
    """Return the statement that stores jobs, with the requests that lead to them, and its parameters."""
    params: dict[str, Any] = submitted_columns(jobs) if jobs else {}
    if requests:
        array_parameters("request", requests, params)
    if audit:
        params |= entry_columns(audit)
    is_single = max(len(jobs), len(audit), len(requests)) == 1
    if is_single:
        params = {name: column[0] for name, column in params.items()}
    statement = submit_statement(
        is_single=is_single,
        is_audited=bool(audit),
        has_jobs=bool(jobs),
        has_requests=bool(requests),
        is_resumed=any(job.resumed_from is not None for job in jobs),
    )
    return statement, params


@cache
def submit_statement(
    *,
    is_single: bool,
    is_audited: bool,
    has_jobs: bool = True,
    has_requests: bool = False,
    is_resumed: bool = False,
) -> Query:
    """Return the statement that stores jobs: plain values for one job, and only the parts that it needs.

    One job without entries takes 204 µs, by the statement for many with entries 289; the first on a
    connection, which plans it, 3.2 and 4.7 ms (2026-11, medians of 10).
    """
    texts = parts("submit")
    heads = [texts["requested"]] if has_requests else []
    tails = [texts["stored_requests"]] if has_requests else []
    if has_jobs:
        heads += [texts["new_of_requests"] if has_requests else texts["new"], texts["jobs"]]
        heads += [texts["followed"]] if is_resumed else []
        heads += [texts["audited"]] if is_audited else []
        tails.append(texts["stored"])
    text = "WITH {}\nSELECT {}".format(",\n".join(heads), ",\n".join(tails))
    return compile_query("client.submit", for_rows(text) if is_single else text)

"""Every statement of the store fits the schema, and every one is used."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import dagmaster.store.postgres
from dagmaster.engine.decisions import FinishJob
from dagmaster.engine.model import Job
from dagmaster.engine.status import AttemptStatus, JobStatus, NodeStatus
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ports.job_records import NewJob, ParentNode
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.read_store import NodeFilter
from dagmaster.ports.tasks import NewTask
from dagmaster.ports.turn_records import TaskResult, TurnCommit, Withdrawal
from dagmaster.store.postgres import (
    remote_workers,
    session_settings,
    submit_statement,
    turn_statement,
    worker_role,
    worker_store,
)
from dagmaster.store.postgres.audit_trail import entries_query
from dagmaster.store.postgres.job_list import JobQuery, job_query, jobs_query, newest_jobs_query
from dagmaster.store.postgres.named_queries import (
    FRAGMENTS,
    compile_query,
    encode_texts,
    for_rows,
    parts,
    queries,
    value_arguments,
    value_parameters,
)
from dagmaster.store.postgres.node_list import NodeQuery, keyed_nodes_query, nodes_query
from dagmaster.store.postgres.request_store import requests_query
from tests.conformance.jobs import ONE
from tests.conformance.server import TEMPLATE, dsn_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.store.postgres.named_queries import Query

STORE = Path(str(resources.files(dagmaster.store.postgres)))
FILES = sorted(path.stem for path in (STORE / "sql").glob("*.sql"))
SOURCES = {path.name: path.read_text() for path in STORE.glob("*.py")}
# These files have parts of queries; all others whole queries.
PARTS = ("turn", "turn_one", "turn_many")
LISTS = ("audit_list", "job_list", "node_list", "request_list")
QUERIES = [
    query
    for file in FILES
    if file not in (*PARTS, "claim", "submit", FRAGMENTS, *LISTS)
    for query in queries(file).values()
]
ROLE_QUERIES = {
    *(
        f"worker_role.{guard}"
        for guards in worker_role._GUARDS.values()
        for of in guards.values()
        for guard in of
    ),
    *(
        f"{file}.{worker_role._INSTEAD[name]}"
        for file in worker_role._GUARDS
        for name in worker_role._GUARDS[file]
        if name in worker_role._INSTEAD
    ),
    *(name for name, _ in worker_role._COPIES.values()),
}
"""The statements that only the functions of the role dagmaster_worker have."""

EVERY_PART = turn_statement.PARTS
# The parameters that each part may use besides its own rows.
SHARED = {"owner_id", "by", "now", "rejections"}


def a_commit() -> TurnCommit:
    """Return a turn with a row of every part, and two events."""
    job = Job("1", ONE)
    node, event = job.nodes["a"], AuditEvent(EventType.JOB_STARTED)
    child = NewJob(
        id="2", workflow_id="w", version=1, content_hash="h", inputs="{}", parent=ParentNode("1", "a", 1)
    )
    result = TaskResult(3, "1", "a", 1, AttemptStatus.COMPLETED, False, JsonText("1"), None, 1.0, 2.0)
    return TurnCommit(
        job, 1, 4, 5, results=[3], notified_results=[result], commands=[4], added=[node], changed=[node],
        batches={1: 1}, reopened=["a"], adders=["a"],
        tasks=[NewTask("5", "1", "a", "h", 1, "{}", None, 60.0, queue="q")],
        withdrawals=[Withdrawal("6", AttemptStatus.RELEASED)], stops=["7"], children=[child],
        cancelled_children=[("a", 1)], events=[event, event], parent=ParentNode("8", "b", 1),
        finished=FinishJob(JobStatus.COMPLETED),
    )  # fmt: skip


@pytest.fixture(scope="module")
def migrated(postgres: str) -> str:
    return dsn_of(postgres, TEMPLATE)


def prepare(dsn: str, *statements: Query) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
        try:
            for query in statements:
                try:
                    prepared = await connection.prepare(query.sql)
                except asyncpg.PostgresError as error:
                    raise AssertionError(f"{query.name}: {error}") from error
                assert len(prepared.get_parameters()) == len(query.parameters)
        finally:
            await connection.close()

    asyncio.run(work())


def test_every_query_fits_the_schema(migrated):
    assert len(QUERIES) > 30
    prepare(migrated, *QUERIES)


def test_every_claim_fits_the_schema(migrated):
    prepare(migrated, worker_store._CLAIM, worker_store._CLAIM_EXCLUSIVE)
    prepare(migrated, remote_workers._CLAIM, remote_workers._CLAIM_EXCLUSIVE)


def test_every_submit_fits_the_schema(migrated):
    statements = [
        submit_statement.submit_statement(is_single=is_single, is_audited=is_audited, **more)
        for is_single in (False, True)
        for is_audited in (False, True)
        for more in (
            {},
            {"has_requests": True},
            {"has_requests": True, "has_jobs": False},
            {"is_resumed": True},
        )
    ]
    prepare(migrated, *statements)
    assert [bool(query.arrays) for query in statements] == [True] * 8 + [False] * 8
    used = set(re.findall(r'texts\["(\w+)"\]', SOURCES["submit_statement.py"]))
    assert used == set(parts("submit"))


def test_every_part_of_a_turn_fits_the_schema_alone_and_all_do_together(migrated):
    for single in (False, True):
        alone = [
            turn_statement.statement(("jobs", name), has_readers=False, single=single)
            for name in EVERY_PART
            if name != "jobs"
        ]
        together = [
            turn_statement.statement(
                EVERY_PART, has_readers=True, is_watched=True, single=single, events=events
            )
            for events in (range(turn_statement.MAX_EVENT_VALUES + 1) if single else (0,))
        ]
        alone += [
            turn_statement.statement(("jobs", "events"), has_readers=False, single=single, events=events)
            for events in (range(1, turn_statement.MAX_EVENT_VALUES + 1) if single else ())
        ]
        prepare(
            migrated, turn_statement.statement(("jobs",), has_readers=False, single=single), *alone, *together
        )


def test_a_statement_for_one_row_has_no_arrays_and_the_same_parameters():
    for name, text in parts("turn").items():
        one, many = compile_query(name, for_rows(text)), compile_query(name, text)
        assert not one.arrays
        assert one.parameters == many.parameters


def test_what_differs_between_one_job_and_many_has_the_same_names():
    names = set(parts("turn_one"))
    assert names == set(parts("turn_many"))
    assert names == set(re.findall(r"\{(\w+)\}", "".join(parts("turn").values())))


def test_a_statement_for_two_rows_has_the_values_of_each():
    query = compile_query("events", for_rows(parts("turn")["events"], 2))
    event = a_commit().events[0]
    rows = [turn_statement._event_row(1, seq, event) for seq in (2, 3)]
    values: dict[str, Any] = {}
    value_parameters("events", rows, values)
    assert not query.arrays
    assert values.keys() == set(query.parameters) - SHARED
    assert (values["events_seq"], values["events_seq_next"]) == (2, 3)


def test_every_part_has_the_parameters_of_its_rows():
    commits = [a_commit()] * 2
    query, params = turn_statement.statement_of(commits, owner_id=1, by="me", now=0.0, watched=["1"])
    assert isinstance(params, dict)
    assert params.keys() == set(query.parameters)
    assert query.arrays
    for name in EVERY_PART:
        assert f"{name}_" in " ".join(query.parameters)


def test_the_values_of_one_turn_are_in_the_order_of_its_statement():
    turn = a_commit()
    query, arguments = turn_statement.statement_of([turn], owner_id=1, by="me", now=0.0, watched=["1"])
    rows: turn_statement.Rows = defaultdict(list)
    turn_statement._collect(turn, rows)
    turn_statement._add_notifies([turn], ["1"], rows)
    params: dict[str, Any] = {
        "owner_id": 1,
        "by": "me",
        "now": datetime.fromtimestamp(0, UTC),
        "rejections": "{}",
    }
    for name, part in rows.items():
        value_parameters(name, part, params)
    assert not query.arrays
    assert params.keys() == set(query.parameters)
    assert arguments == query.arguments(params)


def test_a_row_without_one_of_its_values_is_refused():
    query = compile_query("alone", for_rows("SELECT a FROM rows(part: a text, b text) AS n"))
    assert value_arguments(query, {}, {"part": [{"a": "1", "b": "2"}]}) == ["1", "2"]
    with pytest.raises(ValueError, match="2 parameters, and another number of values"):
        value_arguments(query, {}, {"part": [{"a": "1"}]})


ARRAYS_OF_TEXT: list[list[str | None]] = [
    [],
    ["same"] * 3,
    ['sa"me\\'] * 2,
    [None, None],
    [None, "NULL", None],
    ["1", "2", ""],
    ["{a,b}", "c d", "'", "é\n"],
    ['a","b', "c"],
    ["a\\", "b"],
    ['{"i": 1}', '{"i": 2}'],
]


def test_an_array_of_texts_arrives_as_it_was_sent(migrated):
    async def echo() -> list[list[str | None]]:
        connection = await asyncpg.connect(migrated)
        try:
            return [
                await connection.fetchval("SELECT $1::text::text[]", encode_texts(texts))
                for texts in ARRAYS_OF_TEXT
            ]
        finally:
            await connection.close()

    assert asyncio.run(echo()) == ARRAYS_OF_TEXT


@pytest.mark.parametrize("single", [False, True])
def test_a_turn_finds_its_jobs_by_their_ids_and_not_among_all_that_are_owned(migrated, single):
    query = turn_statement.statement(("jobs", "results"), has_readers=False, single=single)

    async def plan() -> str:
        connection = await asyncpg.connect(
            migrated, server_settings={"search_path": "dagapp", **session_settings._PLANS}
        )
        try:
            await connection.execute(f"PREPARE turn AS {query.sql}")
            rows = await connection.fetch(
                f"EXPLAIN EXECUTE turn ({', '.join(['NULL'] * len(query.parameters))})"
            )
        finally:
            await connection.close()
        return "\n".join(row[0] for row in rows)

    text = asyncio.run(plan())
    assert "using dag_jobs_pkey" in text
    assert "dag_jobs_owned" not in text


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_every_query_is_used(query):
    file, name = query.name.split(".")
    if query.name in ROLE_QUERIES:
        return
    users = [text for text in SOURCES.values() if f'queries("{file}")' in text]
    assert any(re.search(rf'\[[^\]]*"{name}"[^\]]*\]', text) for text in users)


@pytest.mark.parametrize("file", FILES)
def test_every_query_has_a_description(file):
    """One without is not seen at all, and its text would be part of the one before."""
    text = (STORE / "sql" / f"{file}.sql").read_text()
    assert re.findall(r"^-- name: (\w+)", text, re.MULTILINE) == list(parts(file))


def test_every_query_that_is_asked_for_is_there():
    for text in SOURCES.values():
        files = re.findall(r'queries\("(\w+)"\)', text)
        names = re.findall(r'(?:_SQL|queries\("\w+"\))\["(\w+)"\]', text)
        known = {name for file in files for name in queries(file)}
        assert set(names) <= known


FULL_JOB_FILTER = JobFilter(
    workflow_id="w", version=1, name="n", submitted_by="s", correlation_id="c", idempotency_key="k", parent_job_id="1",
    created_after=1.0, created_before=2.0, finished_after=1.0, finished_before=2.0, text="12",
    resumed_from=frozenset({"1"}),
)  # fmt: skip


def job_queries() -> Iterator[Query]:
    yield job_query()
    yield jobs_query()
    yield newest_jobs_query()
    fields = [field.name for field in dataclasses.fields(JobFilter) if field.name != "statuses"]
    alone = [JobFilter(**{name: getattr(FULL_JOB_FILTER, name)}) for name in fields]
    more = (
        JobFilter(submitted_by=""),
        JobFilter(tenant="default"),
        FULL_JOB_FILTER,
        replace(FULL_JOB_FILTER, text="a"),
    )
    for job_filter in (JobFilter(), *alone, *more):
        for statuses in (
            frozenset(),
            frozenset({JobStatus.FAILED}),
            frozenset({JobStatus.WAITING}),
            frozenset(JobStatus),
        ):
            query = JobQuery(replace(job_filter, statuses=statuses), after_id="1")
            yield query.page(1)[0]
            yield query.counts()[0]


def audit_queries() -> Iterator[Query]:
    yield entries_query(())
    yield entries_query(("actor", "action", "object_kind", "object_id", "before"))


def node_queries() -> Iterator[Query]:
    yield nodes_query()
    yield keyed_nodes_query()
    for statuses in (frozenset(), frozenset({NodeStatus.RUNNING}), frozenset(NodeStatus)):
        for job_id, after in (("1", ("", -1, "a")), (None, ("1", "a"))):
            every = NodeFilter(
                job_id=job_id, statuses=statuses, workflow_id="w", parent_node_id="p", top_level=True
            )  # fmt: skip
            for node_filter in (every, NodeFilter(job_id=job_id, statuses=statuses)):
                yield NodeQuery(node_filter, after).page(1)[0]


def request_queries() -> Iterator[Query]:
    names = ("tenant", "workflow_id", "platform_id", "actor", "idempotency_key", "statuses")
    for params in ((), ("request_id",), ("request_id", "actor"), (*names, "after_at", "after_id")):
        for is_open in (True, False):
            yield requests_query(params, is_open=is_open)


@pytest.mark.parametrize("built", [audit_queries, job_queries, node_queries, request_queries])
def test_every_query_of_a_filter_fits_the_schema(migrated, built):
    prepare(migrated, *{query.sql: query for query in built()}.values())


@pytest.mark.parametrize(
    ("file", "built"),
    [
        ("audit_list", audit_queries),
        ("job_list", job_queries),
        ("node_list", node_queries),
        ("request_list", request_queries),
    ],
)
def test_every_part_of_a_list_is_used(file, built):
    texts = [query.sql for query in built()]
    for name, text in parts(file).items():
        start = compile_query(name, text).sql.partition("{")[0].partition("$")[0]
        assert any(start in sql for sql in texts), name


def test_every_part_of_a_turn_is_used():
    used = set(re.findall(r'texts\["(\w+)"\]', SOURCES["turn_statement.py"]))
    assert used | set(EVERY_PART) | set(turn_statement._NOTIFIES.values()) == set(parts("turn"))

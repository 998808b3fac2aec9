"""Fourteen bugs to plant in the SQL: a piece of a named query, its replacement, and the test that must fail.

`tests/integration/test_planted_bugs.py` plants each and runs its test. The same bugs are planted in the memory store, for
the simulation to find.
"""

from __future__ import annotations

import contextlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from unittest import mock

from dagmaster.store.postgres import named_queries, turn_statement, worker_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class PlantedBug(NamedTuple):
    """A bug: in this file and query, `right` becomes `wrong`, and this test fails. `options`: its arguments."""

    file: str
    query: str
    right: str
    wrong: str
    test: str
    options: Mapping[str, Any] = MappingProxyType({})


PLANTED: Final = {
    "no epoch check": PlantedBug(
        "turn",
        "jobs",
        " AND j.owner_epoch = n.epoch",
        "",
        "conformance/test_ownership.py::test_a_turn_from_before_the_job_was_loaded_again_writes_nothing",
    ),
    "no token check": PlantedBug(
        "worker",
        "report",
        " AND q.lease_token = n.token",
        "",
        "conformance/test_tasks.py::test_a_report_with_a_wrong_token_is_rejected_and_the_other_of_the_call_is_accepted",
    ),
    "publish before commit": PlantedBug(
        "turn",
        "tasks",
        "    WHERE {is_owned}\n",
        "",
        "conformance/test_turn_commit.py::test_no_part_of_a_turn_of_a_former_owner_is_written",
    ),
    "claim without SKIP LOCKED": PlantedBug(
        "claim",
        "ready",
        "                            FOR UPDATE SKIP LOCKED) locked\n",
        ") locked\n",
        "integration/test_fences.py::test_a_claim_of_tasks_skips_what_is_locked_and_does_not_wait",
    ),
    "lease by host clock": PlantedBug(
        "orchestrator",
        "heartbeat",
        "SET heartbeat_at = clock(),",
        "SET heartbeat_at = clock() - interval '1 hour',",
        "conformance/test_ownership.py::test_a_heartbeat_keeps_jobs",
    ),
    "lost wake-up": PlantedBug(
        "worker",
        "report",
        "count(pg_notify('dagmaster_owner_' || o.owner_id,",
        "count(concat('dagmaster_owner_' || o.owner_id,",
        "conformance/test_claimed_tasks.py::test_a_result_wakes_the_owner_of_its_job",
        {"how": "report"},
    ),
    "retry that doubles": PlantedBug(
        "turn",
        "tasks",
        "    SELECT n.task_id, n.job_id,",
        "    SELECT n.task_id + generate_series(0, least(n.attempt - 1, 1)), n.job_id,",
        "conformance/test_claimed_tasks.py::test_the_next_attempt_gets_the_newest_checkpoint",
    ),
    "reclaim without raising the epoch": PlantedBug(
        "orchestrator",
        "claim",
        "owner_epoch = owner_epoch + 1",
        "owner_epoch = greatest(owner_epoch, 1)",
        "conformance/test_ownership.py::test_each_claim_raises_the_epoch_and_appends_an_event",
    ),
    "report without deleting": PlantedBug(
        "worker",
        "report",
        "    DELETE FROM dag_task_queue WHERE",
        "    UPDATE dag_task_queue SET progress = progress WHERE",
        "conformance/test_tasks.py::test_a_report_moves_the_task_to_the_results",
    ),
    "double expansion": PlantedBug(
        "orchestrator",
        "load_nodes",
        "source_count, expanded_count,",
        "source_count, 0 AS expanded_count,",
        "conformance/test_turn_commit.py::test_a_job_with_nested_fan_outs_is_the_same_from_its_rows_after_every_turn",
    ),
    "timer lost on reload": PlantedBug(
        "orchestrator",
        "load_nodes",
        "extract(epoch FROM wake_at)::float8 AS wake_at",
        "NULL::float8 AS wake_at",
        "conformance/test_turn_commit.py::test_an_error_and_a_timer_are_the_same_from_the_rows",
    ),
    "every loss is charged": PlantedBug(
        "orchestrator",
        "mark_lost_tasks",
        "count(*) OVER (PARTITION BY worker_id) = 1 AS is_alone",
        "true AS is_alone",
        "conformance/test_claimed_tasks.py::test_only_the_sole_task_of_a_dead_worker_was_alone",
    ),
    "nodes added by each attempt": PlantedBug(
        "added_nodes",
        "reserve_task_batch",
        ":call_number::integer, :digest::text, held.node_id",
        ":call_number::integer, :digest::text || random(), held.node_id",
        "conformance/test_added_nodes.py::test_a_call_that_is_repeated_by_a_later_attempt_reserves_the_same_batch",
    ),
    "event number reused": PlantedBug(
        "orchestrator",
        "claim",
        "event_seq = event_seq + 1",
        "event_seq = event_seq",
        "conformance/test_ownership.py::test_each_claim_raises_the_epoch_and_appends_an_event",
    ),
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a bug until the block ends. Stores look queries up by name when they use them."""
    bug = PLANTED[name]
    texts = {query: text for query, _, text in named_queries._sections(bug.file)}
    text = texts[bug.query]
    assert text.count(bug.right) == 1, f"{bug.file}.sql: {bug.query} does not contain {bug.right!r} once"
    wrong = text.replace(bug.right, bug.wrong)
    # Turns and claims are put together from the parts of their files; the other files have whole queries.
    with (
        mock.patch.dict(cast("dict[str, str]", named_queries.parts(bug.file)), {bug.query: wrong}),
        mock.patch.dict(
            cast("dict[str, named_queries.Query]", named_queries.queries(bug.file)),
            {bug.query: named_queries.compile_query(f"{bug.file}.{bug.query}", wrong)},
        ),
    ):
        report_one = named_queries.for_rows(named_queries.parts("worker")["report"])
        turn_statement.statement.cache_clear()
        with (
            mock.patch.object(
                worker_store, "_REPORT_ONE", named_queries.compile_query("worker.report", report_one)
            ),
            mock.patch.object(worker_store, "_CLAIM", worker_store.claim_query("ready")),
        ):
            yield
    turn_statement.statement.cache_clear()

"""The role dagmaster_worker: its rights are functions, made from the statements of a worker (ADR 0042).

A worker that connects as the owner of the tables sends the statements themselves. One with the role has no
rights on tables. It calls for each statement a function with the rights of the owner, which runs the same
text after the caller has proved what it may do: that it is this worker, by the secret of its registration,
and that it holds the task, by its lease token. The name of a function contains a digest of its text: workers
of two versions call their own ones.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dagmaster.store.postgres.named_queries import Query, compile_query, parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PREFIX: Final = "dag_worker_"
DEFINITION: Final = """
CREATE FUNCTION {signature} RETURNS {result}
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $dagmaster$
#variable_conflict use_column
BEGIN
    PERFORM set_config('dagapp.clock_offset', '', true);
{guards}    {statement};
END $dagmaster$;
REVOKE ALL ON FUNCTION {signature} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {signature} TO {role};
"""
"""How a function is made. A caller chooses neither the search path nor the clock of tests.

Columns come before variables: those of the answer have the names of columns of tables."""

_SEPARATOR: Final = "\n--\n"
_CHUNK: Final = 5_000
"""How many rows that the owner would COPY are sent at once."""

_WORKER: Final = ("proves_worker",)
_TASK: Final = ("proves_worker", "holds_task")
_BATCH: Final = ("proves_worker", "adds_own_batch")
_OWN_BATCHES: Final = ("proves_worker", "reads_own_batches")

_GUARDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "orchestrator": {
        # The number of its holder is random, and proves who holds a lease.
        "lease_machine": ("leases_briefly",),
        "renew_machine": ("leases_briefly",),
        "release_machine": (),
    },
    "worker": {
        "register": ("has_own_connection",),
        **dict.fromkeys(
            (
                *("heartbeat", "reconcile", "deregister", "other_worker_has_handler", "queues_with_tasks"),
                *("report", "report_one", "release", "append_logs", "checkpoint", "progress", "mark_started"),
            ),
            _WORKER,
        ),
    },
    "handlers": {"unpublished_handlers": _WORKER, "publish_handlers": _WORKER},
    # Ids, and texts that only the keys can read: a worker compares its key before it is registered.
    "secret_keys": {"registered_keys": ()},
    "added_nodes": {
        "reserve_task_batch": ("proves_worker", "adds_for_own_node"),
        "job_of_task": _TASK,
        "batch_decision": _TASK,
        "mark_written": ("proves_worker", "adds_own_batch", "holds_task_of_job"),
        "stage_batch": _BATCH,
        "send_task_batch": (*_BATCH, "holds_task_of_job"),
        **dict.fromkeys(
            ("load_batches", "load_added_nodes", "load_groups", "load_dependencies"), _OWN_BATCHES
        ),
        **dict.fromkeys(
            ("insert_added_nodes", "insert_groups", "insert_dependencies"), (*_BATCH, "holds_task_of_job")
        ),
    },
}
"""What each statement of a worker must prove: conditions of worker_role.sql. It may send no other one."""

_INSTEAD: Final = {"publish_handlers": "publish_new_handlers"}
"""Statements that do less for the role."""

_COPIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "dag_added_nodes": (
        "added_nodes.insert_added_nodes",
        ("positions", "ids", "node_ids", "group_names", "definitions"),
    ),
    "dag_groups": ("added_nodes.insert_groups", ("positions", "ids", "names", "parents")),
    "dag_dependencies": (
        "added_nodes.insert_dependencies",
        ("positions", "previous_types", "previous_ids", "next_types", "next_ids"),
    ),
}
"""The statement for the rows of a table that the owner writes by COPY, and its columns after the batch."""


@dataclass(frozen=True, slots=True)
class RoleFunction:
    """A function, and the call that is sent instead of the statement.

    `parts` are the conditions and the statement, each with its own parameters; `bodies` the same with those
    of the function.
    """

    name: str
    call: Query
    parts: tuple[Query, ...]
    bodies: tuple[str, ...]
    role: str = "dagmaster_worker"


@cache
def functions() -> Mapping[str, RoleFunction]:
    """Return every function of the role by the name of its statement."""
    return {name: _function(name, guards, text) for name, guards, text in _statements()}


def _statements() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for file, guards_of in _GUARDS.items():
        texts = parts(file)
        for name, guards in guards_of.items():
            yield f"{file}.{name}", guards, texts[_INSTEAD.get(name, name)]
    for ready in ("ready", "ready_exclusive"):
        yield f"worker.claim, {ready}", _WORKER, claim_text(ready)


def claim_text(ready: str, condition: str | None = None) -> str:
    """Return the statement that claims the tasks of a part of claim.sql, if a condition of it is met."""
    texts = parts("claim")
    claimed = texts["claimed"].replace(
        "{condition}", "" if condition is None else f"\n      {texts[condition]}"
    )
    return f"WITH {texts[ready]},\n{claimed}"


def _function(name: str, guards: Sequence[str], text: str) -> RoleFunction:
    conditions = parts("worker_role")
    texts = [*(conditions[guard] for guard in guards), text]
    whole = compile_query(name, _SEPARATOR.join(texts))
    digest = hashlib.sha256(f"{DEFINITION}{whole.sql}".encode()).hexdigest()[:8]
    short = name.partition(".")[2].replace(", ", "_")
    function = f"{PREFIX}{short}_{digest}"
    arguments = ", ".join(f"${number}" for number in range(1, len(whole.parameters) + 1))
    call = f"SELECT * FROM dagapp.{function}({arguments})"  # noqa: S608 - our own names
    return RoleFunction(
        function,
        # The texts of arrays are arguments of the function.
        Query(name, "", call, whole.parameters, whole.arrays),
        tuple(compile_query(f"{name}, {part}", part) for part in texts),
        tuple(whole.sql.split(_SEPARATOR)),
    )


class WorkerRole:
    """The calls of a worker with the role, and its proof."""

    def __init__(self) -> None:
        self.worker_id = 0
        self.secret = secrets.token_urlsafe(32)

    @property
    def digest(self) -> str:
        """Return what is stored with the registration."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def statement(self, query: Query, params: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Return the call of the function of a statement, and its arguments."""
        call = functions()[query.name].call
        proof = {"worker_id": self.worker_id, "worker_secret": self.secret}
        return call.sql, call.arguments({**proof, **params})

    def insertions(
        self, table: str, records: Sequence[tuple[Any, ...]], proof: Mapping[str, Any]
    ) -> Iterator[tuple[str, list[Any]]]:
        """Return the calls that insert what the owner would COPY; `proof` names the batch and its task."""
        name, columns = _COPIES[table]
        call = functions()[name].call
        for start in range(0, len(records), _CHUNK):
            # The function takes job and batch from the proof: a worker cannot name others in its rows.
            of_job, of_batch, *rest = map(list, zip(*records[start : start + _CHUNK], strict=True))
            del of_job, of_batch
            rows = dict(zip(columns, rest, strict=True))
            mine = {"worker_id": self.worker_id, "worker_secret": self.secret}
            yield call.sql, call.arguments({**mine, **proof, **rows})

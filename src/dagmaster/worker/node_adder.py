"""Nodes that running tasks add to their job at once: stored by the worker, accepted by the owner of the job.

A call returns when the owner has accepted them: the task learns of a rejection. A later attempt that makes
the same call adds nothing, and gets the same ids: see `BatchKey`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from dagmaster.authoring.graph_parts import GraphPart
from dagmaster.errors import DagmasterError, DatabaseUnavailable, NodesRejected
from dagmaster.ports.added_nodes import BatchKey
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future

    from dagmaster.json_types import JsonObject
    from dagmaster.ports.task_journal import TaskJournal
    from dagmaster.ports.task_messages import TaskMessage
    from dagmaster.worker.held_tasks import HeldTasks
    from dagmaster.worker.process_protocol import AddNodesRequest


_FIRST_SECONDS: Final = 0.01
_LAST_SECONDS: Final = 0.5
"""The pauses between two looks at whether the owner has decided: about as long as a turn, then longer."""


class NodeAdder:
    """Stores what tasks add at once. Created on the loop of the service; `add` is called on any thread."""

    def __init__(
        self, journal: TaskJournal, held: HeldTasks, back_off: Callable[[DagmasterError], Awaitable[None]]
    ) -> None:
        self._journal = journal
        self._held = held
        self._back_off = back_off
        self._loop = asyncio.get_running_loop()

    def add(self, task: TaskMessage, call: int, part: JsonObject) -> Future[JsonObject]:
        """Store nodes that a task adds by its n-th call; return the future of their names and ids."""
        return asyncio.run_coroutine_threadsafe(self._add(task, call, part), self._loop)

    def add_for_process(
        self, task: TaskMessage, request: AddNodesRequest, answer: Callable[[JsonObject], None]
    ) -> None:
        """Store nodes that a handler process adds, and send it the answer.

        Called on the loop of the process.
        """
        future = asyncio.wrap_future(self.add(task, request.call, request.part))
        future.add_done_callback(lambda done: None if done.cancelled() else answer({"added": done.result()}))

    async def _add(self, task: TaskMessage, call: int, body: JsonObject) -> JsonObject:
        try:
            part = GraphPart.from_json(body)
            key = self._key(task, part.digest())
            # A name that cannot be used is rejected before anything is stored.
            part.to_rows(1)
            while True:
                try:
                    return {"call": call, **await self._store(task, key, part)}
                except DatabaseUnavailable as error:
                    await self._back_off(error)
        except (KeyError, TypeError, ValueError) as error:
            return {"call": call, "error": f"the nodes are not valid: {error}"}
        except DagmasterError as error:
            return {"call": call, "error": str(error)}

    def _key(self, task: TaskMessage, digest: str) -> BatchKey:
        calls = self._held.growing.setdefault(task.task_id, Counter())
        calls[digest] += 1
        return BatchKey(task.node_id, calls[digest] - 1, digest)

    async def _store(self, task: TaskMessage, key: BatchKey, part: GraphPart) -> JsonObject:
        held = self._held.get(task.task_id)
        token = (task.lease_token or 0) if held is None else held.token
        reserved = await self._journal.reserve_batch(task.task_id, token, key)
        if reserved is None:
            raise NodesRejected("the task is not held by this worker any more")
        number = reserved.number
        if not reserved.is_written:
            await self._journal.add_batch(task.task_id, token, number, part.to_rows(number))
        await self._until_accepted(task, token, number, part)
        # Also after a lost answer: the rows of the batch say which ids count.
        rows = await self._journal.batch_rows(task.task_id, token, number)
        if (len(rows.nodes), len(rows.groups)) != (len(part.tasks), len(part.groups)):
            raise NodesRejected("the task is not held by this worker any more")
        return {
            "nodes": [[node.id, node.node_id] for node in rows.nodes],
            "groups": [[group.id, group.name] for group in rows.groups],
        }

    async def _until_accepted(self, task: TaskMessage, token: int, number: int, part: GraphPart) -> None:
        """Wait for the decision of the owner; raise `NodesRejected` if it rejects the nodes."""
        seconds = _FIRST_SECONDS
        while (decision := await self._journal.decision_about(task.task_id, token, number)) is None:
            if task.task_id not in self._held:
                raise NodesRejected("the task is not held by this worker any more")
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, _LAST_SECONDS)
        if not decision.is_accepted:
            names = part.names(number)
            reason = decision.rejection or f"`dagmaster jobs events {task.job_id}` says why"
            raise NodesRejected(
                f"{format_list([names[one.id] for one in part.tasks])} cannot be added to job {task.job_id}:"
                f" {reason}"
            )

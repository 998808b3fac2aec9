"""The tasks that a worker holds, and how many more it may claim.

Tasks that need a process have a separate budget: there are fewer processes than slots, and a task that
waits for one is better left to another worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.status import AttemptStatus
from dagmaster.worker.prefetch import PrefetchBudget

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.worker.task_metrics import TaskMetrics


_RELEASED: Final = AttemptStatus.RELEASED


class HeldTasks(dict[str, "ClaimedTask"]):
    """The claimed tasks by id, until their reports are accepted or dropped.

    `processes`: None if there are none.
    """

    def __init__(self, concurrency: int, processes: int | None) -> None:
        super().__init__()
        self._budget = PrefetchBudget(concurrency)
        self._process_budget = PrefetchBudget(processes or 0)
        self._has_processes = processes is not None
        self.process_bound: frozenset[str] = frozenset()
        """The handlers that run in processes."""
        self.growing: dict[str, Counter[str]] = {}
        """Those that added nodes at once to their job: how often, by a digest of the nodes."""
        self.observer: TaskMetrics | None = None

    @property
    def rate(self) -> float:
        return self._budget.rate

    @property
    def in_processes(self) -> int:
        """Return how many of them need a process."""
        return self._process_budget.held

    def capacity(self) -> tuple[int, int | None]:
        """Return how many tasks to claim, and how many of them may need a process; None without processes."""
        free = self._budget.free()
        return free, min(self._process_budget.free(), free) if self._has_processes else None

    def needs_process(self, task: ClaimedTask) -> bool:
        """Return whether a task runs in a process: because of its handler, or because it is isolated."""
        return task.handler in self.process_bound or (self._has_processes and task.isolation > 0)

    def in_this_process(self, running: Iterable[str]) -> list[str]:
        """Return the running tasks that use no child process."""
        return [task_id for task_id in running if task_id in self and not self.needs_process(self[task_id])]

    def bind_to_process(self, handler: str) -> None:
        """Count the tasks of a handler among those that need a process, also held ones."""
        if handler not in self.process_bound:
            before = sum(map(self.needs_process, self.values()))
            self.process_bound |= {handler}
            for _ in range(sum(map(self.needs_process, self.values())) - before):
                self._process_budget.add()

    def add(self, tasks: Iterable[ClaimedTask]) -> None:
        for task in tasks:
            if self.observer is not None:
                self.observer.claimed(task)
            self[task.task_id] = task
            self._budget.add()
            if self.needs_process(task):
                self._process_budget.add()

    def remove(self, report: TaskReport) -> ClaimedTask | None:
        task = self.pop(report.task_id, None)
        self.growing.pop(report.task_id, None)
        if task is not None:
            count = PrefetchBudget.release if report.status == _RELEASED else PrefetchBudget.finish
            count(self._budget)
            if self.needs_process(task):
                count(self._process_budget)
        return task

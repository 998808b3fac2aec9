"""Which workers a key may register: within what it is narrowed to, and within the quotas of keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.errors import KeyNarrowed, QuotaExceeded, RequestInvalid
from dagmaster.errors.base import Problem
from dagmaster.ports.api_keys import KeyLimits
from dagmaster.ports.default_settings import HANDLERS_PER_KEY, QUEUES_PER_KEY, WORKERS_PER_KEY
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from collections.abc import Collection

    from dagmaster.ports.handler_contracts import CallerUsage
    from dagmaster.ports.remote_workers import NewWorker

NO_LIMITS: Final = KeyLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerQuotas:
    """How many live workers, queues of these, and handlers one key may have. 0: any number."""

    workers: int = WORKERS_PER_KEY
    queues: int = QUEUES_PER_KEY
    handlers: int = HANDLERS_PER_KEY


def check_worker(worker: NewWorker, limits: KeyLimits) -> None:
    """Raise `KeyNarrowed` if a worker asks for more than its key may have."""
    packages = sorted(name for name in worker.offered if name.endswith("*"))
    if packages:
        raise RequestInvalid(
            [Problem(message=f"{packages[0]!r} is not the name of a handler", path="body.handlers")]
        )
    _check_names("queue", worker.queues, limits.queues)
    _check_names("handler", worker.offered, limits.handlers)


def check_quota(worker: NewWorker, usage: CallerUsage, quotas: WorkerQuotas) -> None:
    """Raise `QuotaExceeded` if a worker would be more than its key may have."""
    counts = (
        ("live workers", usage.workers + 1, quotas.workers, "WORKERS"),
        ("queues", len({*usage.queues, *worker.queues}), quotas.queues, "QUEUES"),
        ("handlers", len({*usage.handlers, *worker.offered}), quotas.handlers, "HANDLERS"),
    )
    for noun, count, limit, name in counts:
        if limit and count > limit:
            raise QuotaExceeded(
                f"with this worker, the key would have {count:,} {noun}, and may have {limit:,}"
                f" (DAGMASTER_{name}_PER_KEY): deregister workers, or use another key"
            )


def _check_names(noun: str, names: Collection[str], allowed: Collection[str]) -> None:
    others = sorted(set(names) - set(allowed))
    if not allowed or not others:
        return
    raise KeyNarrowed(
        f"this key may not have the {noun} {others[0]!r}; it may have: {format_list(sorted(allowed))}"
    )

"""Doubles and factories for tests of dagmaster, and of what is built on it.

Names are imported when they are first used: `run` needs the runner here, and not the factories.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagmaster.ports.store import JobReport
    from dagmaster.testing.clock import FakeClock
    from dagmaster.testing.driver import Driver, through_json
    from dagmaster.testing.factories import (
        After,
        Builder,
        a_graph,
        a_job,
        a_spec,
        all_of,
        any_of,
        approval,
        branch_of,
        conditional,
        end,
        fan_in,
        fan_out,
        join,
        start,
        task,
        wait,
        workflow,
    )
    from dagmaster.testing.memory_store import MemoryStore
    from dagmaster.testing.one_process import Answers, Observer, OneProcess
    from dagmaster.testing.run import run_workflow
    from dagmaster.testing.services import local_services

__all__ = [
    "After",
    "Answers",
    "Builder",
    "Driver",
    "FakeClock",
    "JobReport",
    "MemoryStore",
    "Observer",
    "OneProcess",
    "a_graph",
    "a_job",
    "a_spec",
    "all_of",
    "any_of",
    "approval",
    "branch_of",
    "conditional",
    "end",
    "fan_in",
    "fan_out",
    "join",
    "local_services",
    "run_workflow",
    "start",
    "task",
    "through_json",
    "wait",
    "workflow",
]

_PLACES = {
    "clock": ("FakeClock",),
    "driver": ("Driver", "through_json"),
    "memory_store": ("MemoryStore",),
    "one_process": ("Answers", "JobReport", "Observer", "OneProcess"),
    "run": ("run_workflow",),
    "services": ("local_services",),
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dagmaster.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dagmaster.testing.{_PLACE_OF.get(name, 'factories')}"), name)

"""Test doubles and factories for tests of dagmaster and of code that uses it.

Names are imported when they are first used: `run_workflow` does not need the factories.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagmaster.local.memory_services import memory_services
    from dagmaster.local.runner import Answers, LocalRunner, Observer
    from dagmaster.sdk.handler_mocks import mock_handler
    from dagmaster.testing.clock import FakeClock
    from dagmaster.testing.engine_driver import Driver, through_json
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
        group,
        join,
        member,
        nodes_added,
        start,
        task,
        wait,
        workflow,
    )
    from dagmaster.testing.job_report import JobReport, load_report
    from dagmaster.testing.run import run_workflow
    from dagmaster.testing.services import local_services

__all__ = [
    "After",
    "Answers",
    "Builder",
    "Driver",
    "FakeClock",
    "JobReport",
    "LocalRunner",
    "Observer",
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
    "group",
    "join",
    "load_report",
    "local_services",
    "member",
    "memory_services",
    "mock_handler",
    "nodes_added",
    "run_workflow",
    "start",
    "task",
    "through_json",
    "wait",
    "workflow",
]

_MODULES = {
    "dagmaster.sdk.handler_mocks": ("mock_handler",),
    "dagmaster.local.memory_services": ("memory_services",),
    "dagmaster.local.runner": ("Answers", "LocalRunner", "Observer"),
    "dagmaster.testing.clock": ("FakeClock",),
    "dagmaster.testing.engine_driver": ("Driver", "through_json"),
    "dagmaster.testing.job_report": ("JobReport", "load_report"),
    "dagmaster.testing.services": ("local_services",),
    "dagmaster.testing.run": ("run_workflow",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dagmaster.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF.get(name, "dagmaster.testing.factories")), name)

"""dagmaster runs durable workflows. This module has the public names.

They are imported when they are first used, so that `import dagmaster` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagmaster.application.submission import JobRequest
    from dagmaster.authoring.compiler.compile import Compiled, compile_definition, compile_file, compile_text
    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.authoring.handler_registry import (
        CheckpointableHandler,
        Registry,
        discover,
        handler,
        register_handler,
    )
    from dagmaster.client.async_client import AsyncClient
    from dagmaster.client.blocking_client import Client
    from dagmaster.engine.graph import Graph
    from dagmaster.engine.retry import RetryPolicy
    from dagmaster.errors import DagmasterError, InputsInvalid, PermanentError, Problem, WorkflowInvalid
    from dagmaster.ports.handler_reports import Checkpoint, HandlerResult, Progress
    from dagmaster.ports.read_records import JobFilter

__all__ = [
    "AsyncClient",
    "Checkpoint",
    "CheckpointableHandler",
    "Client",
    "Compiled",
    "DagmasterError",
    "Graph",
    "HandlerContext",
    "HandlerResult",
    "InputsInvalid",
    "JobFilter",
    "JobRequest",
    "PermanentError",
    "Problem",
    "Progress",
    "Registry",
    "RetryPolicy",
    "WorkflowInvalid",
    "compile_definition",
    "compile_file",
    "compile_text",
    "discover",
    "handler",
    "register_handler",
]

_MODULES = {
    "dagmaster.application.submission": ("JobRequest",),
    "dagmaster.authoring.compiler.compile": ("Compiled", "compile_definition", "compile_file", "compile_text"),
    "dagmaster.authoring.handler_context": ("HandlerContext",),
    "dagmaster.authoring.handler_registry": (
        "CheckpointableHandler",
        "Registry",
        "discover",
        "handler",
        "register_handler",
    ),
    "dagmaster.client.async_client": ("AsyncClient",),
    "dagmaster.client.blocking_client": ("Client",),
    "dagmaster.engine.graph": ("Graph",),
    "dagmaster.engine.retry": ("RetryPolicy",),
    "dagmaster.errors": ("DagmasterError", "InputsInvalid", "PermanentError", "Problem", "WorkflowInvalid"),
    "dagmaster.ports.handler_reports": ("Checkpoint", "HandlerResult", "Progress"),
    "dagmaster.ports.read_records": ("JobFilter",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'dagmaster' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__

"""The clients have a method for each function of the application that a command calls, with the same arguments."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import pytest

import dagmaster
from dagmaster.client.async_client import AsyncClient
from dagmaster.client.blocking_client import Client
from dagmaster.client.system import LOCAL_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator

    from dagmaster.application.views.events_and_logs import LogView
    from dagmaster.records.page import Page
    from dagmaster.records.workflows import WorkflowRecord

COMMANDS = Path(dagmaster.__file__).parent / "cli" / "commands"
MODULES = (
    "api_keys", "audit_trail", "browser_sessions", "callbacks", "signing_secrets", "commands.handler_trust", "commands.control", "commands.job_selection", "commands.drain", "commands.handler_tests", "commands.publication", "commands.resume", "database_admin", "diagnosis", "graph_jobs", "job_watch", "progress", "queries.fleet",
    "queries.events_and_logs", "queries.graph_tasks", "queries.handlers", "queries.job_detail", "queries.jobs", "queries.log_lines",
    "queries.metrics", "queries.nodes", "queries.workflows", "submission", "tenants", "platforms", "requests", "request_status", "queries.requests",
)  # fmt: skip
FUNCTIONS = {
    name: function
    for module in MODULES
    for name, function in vars(import_module(f"dagmaster.application.{module}")).items()
    if inspect.isfunction(function)
}
NOT_SENT = {*LOCAL_ARGUMENTS, "max_bytes"}
"""Arguments that clients do not have. `max_bytes`: how much of a value a page reads; a client reads all of it."""
OWN = {
    "check_health", "claim_task", "close", "deregister_worker", "register_worker", "renew_worker", "report_task", "submit",
    "wait", "watch_jobs",
}  # fmt: skip
"""Methods that only clients have."""
LOCAL = {"audit_outputs", "grant_roles"}
"""Functions about files of this machine, or for the owner of the schema: their commands refuse a server."""


def called_by_commands() -> set[str]:
    sources = "".join(path.read_text() for path in COMMANDS.glob("*.py"))
    return {name.rpartition(".")[2] for name in re.findall(r"\.call\(\s*([\w.]+)", sources)}


def methods() -> list[str]:
    return [
        name for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction) if not name.startswith("_")
    ]


def test_every_function_that_a_command_calls_is_a_method():
    assert len(called_by_commands()) > 20
    assert called_by_commands() - LOCAL <= set(methods())


@pytest.mark.parametrize("name", sorted(set(methods()) - OWN))
def test_a_method_takes_what_its_function_takes(name):
    function = list(inspect.signature(FUNCTIONS[name]).parameters.values())[1:]
    method = list(inspect.signature(getattr(AsyncClient, name)).parameters.values())[1:]
    expected = [(item.name, item.kind, item.default) for item in function if item.name not in NOT_SENT]
    assert [(item.name, item.kind, item.default) for item in method] == expected


def test_the_blocking_client_has_the_same_methods():
    assert {name for name in vars(Client) if not name.startswith("_")} == set(methods())


def test_type_checkers_see_the_answers_of_both_clients():
    """`make check` runs mypy over this."""
    if TYPE_CHECKING:
        client = Client()
        assert_type(client.list_workflows(tag="a"), Page[WorkflowRecord])
        assert_type(client.follow_logs("1"), Iterator[LogView])
        _: Coroutine[Any, Any, Page[WorkflowRecord]] = AsyncClient().list_workflows(tag="a")
        assert_type(AsyncClient().follow_logs("1"), AsyncGenerator[LogView, None])
        client.job_detail(1)  # type: ignore[arg-type]
    assert inspect.signature(Client.list_workflows).return_annotation == "Page[WorkflowRecord]"

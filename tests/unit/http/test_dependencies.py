"""How routes get what they work with."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from fastapi.routing import APIRoute

from dagmaster.http.app import GROUPS
from dagmaster.http.health import routes as health_routes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi.dependencies.models import Dependant


def calls_of(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for each in dependant.dependencies:
        yield from calls_of(each)


def test_nothing_of_a_request_runs_in_another_thread():
    routes = [route for group in (*GROUPS, health_routes) for route in group.router.routes]
    calls = {call for route in routes if isinstance(route, APIRoute) for call in calls_of(route.dependant)}
    assert len(calls) > 50
    # FastAPI calls a plain function in a pool of threads: three of these took longer than the rest of a submit.
    assert [call for call in calls if not inspect.iscoroutinefunction(call)] == []

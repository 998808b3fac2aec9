"""The web page as an extension of the server: all routes, templates and static files."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from dagmaster.ports.api_keys import Reach
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.ui.assets import Assets
from dagmaster.ui.navigation import Mode
from dagmaster.ui.rendering import make_environment
from dagmaster.ui.routes import (
    administration,
    callbacks,
    editor,
    fleet,
    job,
    job_changes,
    jobs,
    login,
    login_provider,
    node,
    nodes_and_tasks,
    overview,
    requests,
    static_files,
    submit,
    tenants,
    workflows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI

    from dagmaster.ports.api_keys import Caller, Scope
    from dagmaster.ports.browser_login import BrowserLogin

GROUPS: Final = (
    static_files.routes,
    login.routes,
    login_provider.routes,
    overview.routes,
    jobs.routes,
    job.routes,
    job_changes.routes,
    node.routes,
    workflows.routes,
    requests.routes,
    submit.routes,
    editor.routes,
    nodes_and_tasks.routes,
    fleet.routes,
    administration.routes,
    callbacks.routes,
    tenants.routes,
    # The last: it answers what no other route does.
    static_files.unknown,
)


class Site:
    """The web page of a server. `login`: in addition to keys, browsers may log in at an identity provider."""

    def __init__(self, mode: Mode = Mode.SERVER, *, login: BrowserLogin | None = None) -> None:
        self.mode = mode
        self.login = login
        self.version = version("dagmaster")
        self.scopes = page_scopes()
        self.assets = Assets()
        self.templates = make_environment(self.assets)

    def served_to(self, viewer: Caller) -> Mapping[tuple[str, str], Scope | None]:
        """Return the routes that a viewer may have, and their scopes: a tenant has its own alone."""
        if viewer.tenant == DEFAULT_TENANT:
            return self.scopes
        return {
            route: scope
            for group in GROUPS
            for route, scope in group.scopes.items()
            if group.reaches[route] is not Reach.INSTALLATION
        }

    def install(self, app: FastAPI) -> None:
        app.state.site = self
        for group in GROUPS:
            app.include_router(group.router)


def page_scopes() -> dict[tuple[str, str], Scope | None]:
    """Return every route of the web page with the scope that it needs; None: open to everyone."""
    return {route: scope for group in GROUPS for route, scope in group.scopes.items()}

"""Tenants, for those who administer the installation."""

from __future__ import annotations

import time
from typing import Annotated, Final

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.tenants import TenantChanges, create_tenant, list_tenants, set_tenant
from dagmaster.errors import TenantExists, TenantInvalid
from dagmaster.http.services import HttpServices, Origin, Services
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.tenants import MAX_TENANT
from dagmaster.ui.notices import Notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.tenants import TenantsPage, tenants_page
from dagmaster.ui.rendering import render

routes = PageRoutes()
PATH: Final = "/ui/tenants"
MAX_ENTRY: Final = 300
Name = Annotated[str, Path(max_length=MAX_TENANT)]


@routes.get(PATH, Scope.ADMIN, Reach.INSTALLATION)
async def tenants(request: Request, services: Services) -> Response:
    """List tenants."""
    return render(request, "tenants.html", await _page(services))


@routes.post(PATH, Scope.ADMIN, Reach.INSTALLATION)
async def create(request: Request, services: Services, origin: Origin, form: FormFields) -> Response:
    """Create a tenant that may use the named workflows of the installation."""
    entry = {name: form.text(name, max_length=MAX_ENTRY).strip() for name in ("name", "title", "workflows")}
    workflows = [word for word in entry["workflows"].replace(",", " ").split() if word]
    changes = TenantChanges(fields={"title": entry["title"], "workflows": workflows})
    try:
        record = await create_tenant(services.tenants, entry["name"], changes, origin=origin)
    except (TenantInvalid, TenantExists) as error:
        page = await _page(services, entry=entry, problem=str(error))
        return render(request, "tenants.html", page, status=400)
    sentence = f"The tenant {record.name} is created. Make keys for it on the page of keys."
    return see_other(PATH, Notice(" ".join([sentence, *(f"Warning: {one}." for one in record.warnings)])))


@routes.post("/ui/tenants/{name}/disable", Scope.ADMIN, Reach.INSTALLATION)
async def disable(services: Services, origin: Origin, name: Name) -> Response:
    """Reject the keys of a tenant."""
    await set_tenant(services.tenants, name, TenantChanges(fields={}, is_disabled=True), origin=origin)
    return see_other(PATH, Notice(f"The keys of {name} are rejected within seconds. Its jobs continue."))


@routes.post("/ui/tenants/{name}/enable", Scope.ADMIN, Reach.INSTALLATION)
async def enable(services: Services, origin: Origin, name: Name) -> Response:
    """Accept the keys of a tenant again."""
    await set_tenant(services.tenants, name, TenantChanges(fields={}, is_disabled=False), origin=origin)
    return see_other(PATH, Notice(f"The keys of {name} are accepted again."))


async def _page(
    services: HttpServices, *, entry: dict[str, str] | None = None, problem: str = ""
) -> TenantsPage:
    return tenants_page(await list_tenants(services.tenants), now=time.time(), entry=entry, problem=problem)

"""Tenants: list, show, create and change them. For those who administer the installation."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import Field, create_model
from starlette.responses import JSONResponse

from dagmaster.application.tenants import (
    TenantChanges,
    create_tenant,
    list_tenants,
    set_tenant,
    show_tenant,
)
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import Origin, Services
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.tenants import MAX_NAMES, MAX_TENANT, TENANT_FIELDS, TenantField

routes = Routes("tenants")
Name = Annotated[str, Path(max_length=MAX_TENANT, description="The name of a tenant.")]


def _declared(field: TenantField) -> tuple[Any, Any]:
    """Return the type and the default of a field of a body."""
    if field.type is list:
        name = Annotated[str, Field(min_length=1, max_length=field.max_length)]
        return list[name], Field(default_factory=list, max_length=MAX_NAMES, description=field.help)
    if field.type is str:
        return str | None, Field(default=None, max_length=field.max_length, description=field.help)
    return field.type | None, Field(
        default=None, ge=field.low, le=field.high, allow_inf_nan=False, description=f"{field.help} null: any."
    ) if field.type is float else Field(
        default=None, ge=field.low, le=field.high, description=f"{field.help} null: any."
    )


_FIELDS: Any = {name: _declared(field) for name, field in TENANT_FIELDS.items()}


class TenantBody(create_model("TenantFields", __base__=Body, **_FIELDS)):  # type: ignore[misc]
    """What of a tenant is set. What is left out stays as it is; null: no limit."""

    def changes(self, *, is_disabled: bool | None = None) -> TenantChanges:
        """Return the fields that were sent."""
        fields: dict[str, Any] = self.model_dump(exclude_unset=True, include=set(TENANT_FIELDS))
        return TenantChanges(fields=fields, is_disabled=is_disabled)


class NewTenantBody(TenantBody):
    """A tenant to create."""

    name: str = Field(
        min_length=1,
        max_length=MAX_TENANT,
        description="Lower-case letters, digits and -; it cannot be changed.",
        examples=["acme"],
    )


class ChangedTenantBody(TenantBody):
    """What changes of a tenant."""

    is_disabled: bool | None = Field(default=None, description="Whether its keys are rejected.")


@routes.get("/tenants", Scope.ADMIN, "[TenantView]", reach=Reach.INSTALLATION)
async def tenants(services: Services) -> JSONResponse:
    """List all tenants by name. `default` is the installation itself."""
    return JSONResponse([record.to_dict() for record in await list_tenants(services.tenants)])


@routes.post("/tenants", Scope.ADMIN, "TenantView", 201, reach=Reach.INSTALLATION)
async def create(services: Services, origin: Origin, body: NewTenantBody) -> JSONResponse:
    """Create a tenant. Keys are made for it afterwards: it needs at least one."""
    record = await create_tenant(services.tenants, body.name, body.changes(), origin=origin)
    return JSONResponse(record.to_dict(), 201)


@routes.get("/tenants/{name}", Scope.ADMIN, "TenantView", reach=Reach.INSTALLATION)
async def show(services: Services, name: Name) -> JSONResponse:
    """Show a tenant."""
    return JSONResponse((await show_tenant(services.tenants, name)).to_dict())


@routes.post("/tenants/{name}", Scope.ADMIN, "TenantView", reach=Reach.INSTALLATION)
async def change(services: Services, origin: Origin, name: Name, body: ChangedTenantBody) -> JSONResponse:
    """Change a tenant. Servers follow within seconds; its jobs continue when it is disabled."""
    changes = body.changes(is_disabled=body.is_disabled)
    return JSONResponse((await set_tenant(services.tenants, name, changes, origin=origin)).to_dict())

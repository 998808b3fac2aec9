"""Tenants: create, list, show and change them. For those who administer the installation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import TenantExists, TenantInvalid, TenantNotFound
from dagmaster.ports.tenants import DEFAULT_TENANT, MAX_NAMES, MAX_TENANT, TENANT_FIELDS, is_tenant
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.ports.audit_trail import ChangeOrigin
    from dagmaster.ports.tenants import TenantField, TenantStore
    from dagmaster.records.tenants import TenantRecord

_NOT_OF_DEFAULT: Final = ("max_open_jobs", "requests_per_day", "rate_per_second", "rate_burst")


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantChanges:
    """What of a tenant is changed: its fields by name. What is not named stays; None: no limit."""

    fields: Mapping[str, Any]
    is_disabled: bool | None = None


NO_CHANGES: Final = TenantChanges(fields={})


async def create_tenant(
    tenants: TenantStore, name: str, changes: TenantChanges = NO_CHANGES, *, origin: ChangeOrigin
) -> TenantRecord:
    """Create a tenant; raise `TenantInvalid` or `TenantExists`."""
    if not is_tenant(name):
        raise TenantInvalid(
            f"{name[:40]!r} is not the name of a tenant: it has 1 to {MAX_TENANT} lower-case letters, digits"
            " and -, and begins with a letter"
        )
    _check(name, changes)
    warnings = await _check_names(tenants, changes)
    entry = origin.entry("tenant.create", "tenant", name, _audited(changes))
    record = await tenants.create(name, changes.fields, created_by=origin.actor, audit=[entry])
    if record is None:
        raise TenantExists(f"there is a tenant {name!r} already: `dagmaster tenants set {name}` changes it")
    return replace(record, warnings=warnings)


async def list_tenants(tenants: TenantStore) -> list[TenantRecord]:
    """List all tenants by name; `default` is the installation itself."""
    return list(await tenants.all())


async def show_tenant(tenants: TenantStore, name: str) -> TenantRecord:
    """Return a tenant; raise `TenantNotFound`."""
    tenant = next((record for record in await tenants.all() if record.name == name), None)
    if tenant is None:
        raise tenant_not_found(name)
    return tenant


async def set_tenant(
    tenants: TenantStore, name: str, changes: TenantChanges, *, origin: ChangeOrigin
) -> TenantRecord:
    """Change a tenant; raise `TenantInvalid` or `TenantNotFound`. Servers follow within seconds."""
    _check(name, changes)
    warnings = await _check_names(tenants, changes)
    entry = origin.entry("tenant.set", "tenant", name, _audited(changes))
    record = await tenants.change(name, changes.fields, is_disabled=changes.is_disabled, audit=[entry])
    if record is None:
        raise tenant_not_found(name)
    return replace(record, warnings=warnings)


async def _check_names(tenants: TenantStore, changes: TenantChanges) -> tuple[str, ...]:
    """Raise `TenantInvalid` for a platform that is not declared; warn of workflows that do not exist yet."""
    platforms, workflows = await tenants.missing(
        changes.fields.get("platforms", ()), changes.fields.get("workflows", ())
    )
    if platforms:
        raise TenantInvalid(
            f"platforms: {format_list(platforms)} is not declared: `dagmaster platforms list` shows all,"
            " `dagmaster platforms set` declares one"
        )
    return tuple(
        f"the installation has published no workflow {name!r}: the tenant can use it as soon as there is one"
        for name in workflows
    )


def tenant_not_found(name: str) -> TenantNotFound:
    return TenantNotFound(f"there is no tenant {name[:40]!r}: `dagmaster tenants list` shows all")


def _check(name: str, changes: TenantChanges) -> None:
    fields = changes.fields
    limited = changes.is_disabled or any(fields.get(one) is not None for one in _NOT_OF_DEFAULT)
    if name == DEFAULT_TENANT and limited:
        raise TenantInvalid(f"{DEFAULT_TENANT} is the installation: it is not limited, and not disabled")
    for field, value in fields.items():
        problem = _problem(TENANT_FIELDS[field], value)
        if problem:
            raise TenantInvalid(f"{field}: {problem}")
    url = fields.get("callback_url")
    if url is not None and not url.startswith(("https://", "http://")):
        raise TenantInvalid("callback_url: it is an https URL")


def _problem(field: TenantField, value: Any) -> str:
    """Return what is wrong with a value; empty: nothing. None is no limit."""
    if field.type is list:
        is_valid = len(value) <= MAX_NAMES and all(1 <= len(one) <= field.max_length for one in value)
        return "" if is_valid else f"at most {MAX_NAMES:,} names of 1 to {field.max_length} characters, or *"
    if value is None:
        return ""
    if field.type is str:
        is_valid = len(value) <= field.max_length and value.isprintable()
        return "" if is_valid else f"at most {field.max_length} printable characters"
    return "" if field.low <= value <= field.high else f"a number from {field.low:,g} to {field.high:,g}"


def _audited(changes: TenantChanges) -> dict[str, Any]:
    disabled = {} if changes.is_disabled is None else {"disabled": changes.is_disabled}
    return {**changes.fields, **disabled}

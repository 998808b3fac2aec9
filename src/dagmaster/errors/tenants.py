"""The errors of tenants: teams and partners on one installation."""

from __future__ import annotations

from dagmaster.errors.base import Category, DagmasterError


class TenantsNotIsolated(DagmasterError):
    """The database role of the server sees the rows of all tenants: it cannot serve any of them."""

    code = "tenants_not_isolated"
    category = Category.UNAVAILABLE


class TenantInvalid(DagmasterError):
    """A tenant cannot have this name, or this limit."""

    code = "tenant_invalid"
    category = Category.INVALID


class TenantExists(DagmasterError):
    """There is a tenant of this name already."""

    code = "tenant_exists"
    category = Category.CONFLICT


class TenantNotFound(DagmasterError):
    """There is no such tenant."""

    code = "tenant_not_found"
    category = Category.NOT_FOUND

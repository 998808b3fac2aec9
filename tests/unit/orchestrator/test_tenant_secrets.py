"""Secrets of the environment belong to the installation, or to the tenant whose name is before theirs."""

from __future__ import annotations

import pytest

from dagmaster.ports.tenants import may_use_secret


@pytest.mark.parametrize(
    ("tenant", "name", "may"),
    [
        ("default", "TOKEN", True),
        ("default", "ACME__TOKEN", True),
        ("acme", "ACME__TOKEN", True),
        ("acme", "TOKEN", False),
        ("acme", "ACME_TOKEN", False),
        ("acme", "ACME_GEO__TOKEN", False),
        ("acme-geo", "ACME_GEO__TOKEN", True),
        ("acme", "ACME___TOKEN", True),
        ("acme-", "ACME___TOKEN", False),
        ("acme", "__TOKEN", False),
    ],
)
def test_a_secret_belongs_to_one_tenant(tenant, name, may):
    assert may_use_secret(tenant, name) is may

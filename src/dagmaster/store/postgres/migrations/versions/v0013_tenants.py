"""Add tenants: jobs, keys, workflows and what else belongs to one.

Revision ID: 0013
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `dag_tenants`, and a tenant to what belongs to one: `default` for all that exists.

    Services of earlier versions continue to run, and know one tenant. Their servers cannot publish workflows
    until they are replaced: create further tenants when all services have this version.
    """
    run_sql("v0013_tenants.sql")


def downgrade() -> None:
    """Remove tenants. It fails while there is another one than `default`."""
    run_sql("v0013_downgrade.sql")

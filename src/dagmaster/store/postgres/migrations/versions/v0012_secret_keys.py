"""Add the registry of keys for secret inputs, and the aliases of handlers.

Revision ID: 0012
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `dag_secret_keys`, which has no key until a job has a secret input.

    Where a workflow has secret inputs, these are stored in clear, as before, until there is a key.

    Services of earlier versions continue to run, and do not use it. They cannot read encrypted inputs:
    set a key when all services have this version.
    """
    run_sql("v0012_secret_keys.sql")


def downgrade() -> None:
    """Drop the registry. Encrypted inputs stay encrypted, and no earlier version can read them."""
    run_sql("v0012_downgrade.sql")

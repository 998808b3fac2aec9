"""Add the secret of a worker's registration.

Revision ID: 0010
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. Services of earlier versions continue to run; their workers have no secret."""
    run_sql("v0010_worker_secrets.sql")


def downgrade() -> None:
    """Remove it and the functions of the worker's role, which gets its rights on tables back."""
    run_sql("v0010_downgrade.sql")

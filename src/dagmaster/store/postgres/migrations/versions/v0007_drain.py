"""Add the drain of orchestrators and workers.

Revision ID: 0007
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns. Services of earlier versions continue to run."""
    run_sql("v0007_drain.sql")


def downgrade() -> None:
    """Remove them: services that drain claim again when they are started with the version before."""
    run_sql("v0007_downgrade.sql")

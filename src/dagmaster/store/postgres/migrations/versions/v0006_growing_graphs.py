"""Add nodes, groups and dependencies of graphs that grow.

Revision ID: 0006
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add tables. Services of earlier versions continue to run."""
    run_sql("v0006_growing_graphs.sql")


def downgrade() -> None:
    """Remove them: jobs with added nodes cannot continue."""
    run_sql("v0006_downgrade.sql")

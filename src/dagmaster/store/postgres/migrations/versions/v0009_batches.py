"""Add to batches of nodes which node's task added them, and why they were rejected.

Revision ID: 0009
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `added_by`, `is_superseded` and `rejection`.

    Services of earlier versions continue to run, and set none.
    """
    run_sql("v0009_batches.sql")


def downgrade() -> None:
    """Drop the columns: a node that is run again then adds its nodes next to those of its earlier run."""
    run_sql("v0009_downgrade.sql")

"""Add the node whose task added a batch of nodes.

Revision ID: 0009
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `added_by` and `is_superseded` to batches. Services of earlier versions continue to run, and set neither."""
    run_sql("v0009_added_by.sql")


def downgrade() -> None:
    """Drop the columns: a node that is run again then adds its nodes beside those of its earlier run."""
    run_sql("v0009_downgrade.sql")

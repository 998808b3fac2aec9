"""Add the command that cancels single nodes.

Revision ID: 0008
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Accept the kind `cancel_nodes`. Services of earlier versions continue to run."""
    run_sql("v0008_cancel_nodes.sql")


def downgrade() -> None:
    """Delete such commands that no owner has processed: the version before would reject them."""
    run_sql("v0008_downgrade.sql")

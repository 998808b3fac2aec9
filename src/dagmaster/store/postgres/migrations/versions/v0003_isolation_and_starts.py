"""Isolate the tasks of dead workers until the culprit is known; record when handlers start.

Revision ID: 0003
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns, functions and an index. Services of 0002 continue to run."""
    run_sql("v0003_isolation_and_starts.sql")


def downgrade() -> None:
    """Remove them. Which tasks are isolated, and when handlers started, is lost."""
    run_sql("v0003_downgrade.sql")

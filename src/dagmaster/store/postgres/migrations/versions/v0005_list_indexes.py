"""Add indexes of jobs by workflow and status, and of exclusive tasks by worker.

Revision ID: 0005
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add and replace indexes. Services of earlier versions continue to run."""
    run_sql("v0005_list_indexes.sql")


def downgrade() -> None:
    run_sql("v0005_downgrade.sql")

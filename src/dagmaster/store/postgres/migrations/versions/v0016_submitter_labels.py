"""Add the label of a submitter, which stands next to the name of the key.

Revision ID: 0016
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `dag_jobs.submitter_label`. Services of earlier versions submit jobs without one."""
    run_sql("v0016_submitter_labels.sql")


def downgrade() -> None:
    """Drop the labels."""
    run_sql("v0016_downgrade.sql")

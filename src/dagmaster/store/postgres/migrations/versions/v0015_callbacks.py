"""Add callbacks: the outbox of what receivers are told, the health of their endpoints, and signing secrets.

Revision ID: 0015
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add callbacks. They replace `dag_outbox`, which no version used.

    Whatever writes a job's state stores its callbacks, services of earlier versions too.
    """
    run_sql("v0015_callbacks.sql")


def downgrade() -> None:
    """Drop callbacks with their rows. It fails while some are not delivered."""
    run_sql("v0015_downgrade.sql")

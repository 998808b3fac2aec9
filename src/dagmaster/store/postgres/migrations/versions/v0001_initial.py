"""The tables of the runtime.

Revision ID: 0001
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables, and the roles where this user may."""
    run_sql("v0001_initial.sql")


def downgrade() -> None:
    """Remove the tables. The roles stay: others on the server may hold them."""
    run_sql("v0001_downgrade.sql")

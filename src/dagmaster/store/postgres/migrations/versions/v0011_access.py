"""Add owners of handlers' contracts, limits of keys, and sessions of browsers.

Revision ID: 0011
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables and columns.

    Services of earlier versions continue to run, and know neither narrowed keys nor sessions.
    """
    run_sql("v0011_access.sql")


def downgrade() -> None:
    """Drop them: narrowed keys, sessions, trust and pending changes of contracts are lost."""
    run_sql("v0011_downgrade.sql")

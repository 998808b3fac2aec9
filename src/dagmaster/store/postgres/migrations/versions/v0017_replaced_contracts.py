"""Keep what a trusted contract of a handler replaced.

Revision ID: 0017
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0017"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column that services of earlier versions neither read nor write."""
    run_sql("v0017_replaced_contracts.sql")


def downgrade() -> None:
    """Drop the column: `distrust` removes the contract of a caller, and none comes back."""
    run_sql("v0017_downgrade.sql")

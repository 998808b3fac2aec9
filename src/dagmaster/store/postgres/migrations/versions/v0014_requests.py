"""Add the requests of partners, and the platforms whose identifiers they send.

Revision ID: 0014
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add `dag_api_requests` and `dag_platforms`. Services of earlier versions do not use them."""
    run_sql("v0014_requests.sql")


def downgrade() -> None:
    """Drop both tables with their rows. Jobs stay."""
    run_sql("v0014_downgrade.sql")

"""Add API keys, the audit of the API, schemas of handlers, and metrics.

Revision ID: 0004
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add tables and nullable columns. Services of earlier versions continue to run."""
    run_sql("v0004_http_api.sql")


def downgrade() -> None:
    """Remove them. Keys, the audit of the API and the metrics of deleted jobs are lost."""
    run_sql("v0004_downgrade.sql")

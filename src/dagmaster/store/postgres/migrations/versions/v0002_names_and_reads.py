"""Rename stored words to the terms of the field; add job names, update times and indexes for lists.

Revision ID: 0002
"""

from __future__ import annotations

from dagmaster.store.postgres.migrations.scripts import run_sql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rename columns and stored values, then add what lists need."""
    run_sql("v0002_names_and_reads.sql")


def downgrade() -> None:
    """Restore the names of 0001. Job names and update times are lost."""
    run_sql("v0002_downgrade.sql")

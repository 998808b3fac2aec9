"""Runs the SQL of a migration as it was written: many statements, one script."""

from __future__ import annotations

from importlib.resources import files

from alembic import op


def run_sql(name: str) -> None:
    """Run a file that stands beside the versions."""
    script = files("dagmaster.store.postgres.migrations.versions").joinpath(name).read_text(encoding="utf-8")
    connection = op.get_bind().connection.dbapi_connection
    assert connection is not None  # noqa: S101 - for mypy: Alembic is connected while it migrates
    # The driver prepares what SQLAlchemy gives it, and only one statement can be prepared at a time.
    connection.run_async(lambda driver: driver.execute(script))

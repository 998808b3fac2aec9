"""Runs the SQL script of a migration, which has many statements."""

from __future__ import annotations

from importlib.resources import files

from alembic import op


def run_sql(name: str) -> None:
    """Run a file of the directory `versions`."""
    script = files("dagmaster.store.postgres.migrations.versions").joinpath(name).read_text(encoding="utf-8")
    connection = op.get_bind().connection.dbapi_connection
    assert connection is not None  # noqa: S101 - for mypy: Alembic is connected while it migrates
    # SQLAlchemy would prepare the script, and only a single statement can be prepared.
    connection.run_async(lambda driver: driver.execute(script))

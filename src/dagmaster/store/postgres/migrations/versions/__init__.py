"""One file a version: Python that Alembic finds, and the SQL it runs."""

"""The schema, version by version. Alembic runs this folder; nothing else imports it."""

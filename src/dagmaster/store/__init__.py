"""Stores: PostgreSQL, in memory, and the embedded server."""

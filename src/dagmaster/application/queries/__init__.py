"""Queries: everything that can be read, as async functions that take the `Application` and return views."""

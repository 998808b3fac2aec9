"""Orchestrators own jobs: they pass events to the engine, and commit its decisions to the store."""

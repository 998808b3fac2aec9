"""Orchestrators decide. They carry happenings to the engine, and decisions to the store."""

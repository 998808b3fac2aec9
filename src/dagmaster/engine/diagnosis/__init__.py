"""Explain why a node or a job is in its current state."""

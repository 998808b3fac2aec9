"""Workflow files and handlers as people write them: read, checked with all mistakes at once, compiled, drawn."""

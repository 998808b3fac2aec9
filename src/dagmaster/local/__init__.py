"""Run a workflow in one process."""

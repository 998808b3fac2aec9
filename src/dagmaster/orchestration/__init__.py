"""Graphs of Python code: contexts that store them, jobs, management. The objects are in `authoring/python`."""

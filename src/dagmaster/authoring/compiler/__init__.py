"""Compile and check a workflow document into a graph."""

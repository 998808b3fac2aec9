"""Graphs in Python: decorated functions whose calls build the document that YAML writes."""

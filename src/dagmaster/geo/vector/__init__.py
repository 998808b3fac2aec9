"""Handlers for vector data: load files of features into tables, simplify and dissolve them."""

"""Handlers for rasters, in `*_handlers.py`: each calls an ordinary function of a file next to it."""

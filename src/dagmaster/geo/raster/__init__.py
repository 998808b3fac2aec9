"""Handlers for rasters, in the files `*_handlers.py`: each calls an ordinary function of a file beside it."""

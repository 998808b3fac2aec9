"""Handlers for rasters. The shells are in `handlers`; each calls a plain function of a file beside it."""

"""Handlers for FATHOM flood maps: list tiles, stack return periods, merge grid cells, register them."""

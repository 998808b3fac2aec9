"""Handlers for FATHOM flood maps: tiles by return period, stacked, merged and registered."""

"""Handlers for the STAC catalog."""

"""Handlers for the STAC catalog: register items and collections, rebuild and repair them."""

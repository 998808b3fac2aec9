"""Geospatial rules shared by adapters, handlers and views: STAC items and extents, Arrow features, footprints."""

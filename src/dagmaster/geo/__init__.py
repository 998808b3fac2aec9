"""Geospatial rules shared by adapters, handlers and views: STAC, bounding boxes, datetimes, features, footprints."""

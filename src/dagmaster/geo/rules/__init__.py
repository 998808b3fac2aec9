"""Rules that handlers, catalog and tables share: STAC items, extents, boxes, datetimes, features."""

"""Everything geospatial: handlers for rasters, vector data and STAC; the catalog, the tables, and their rules."""

"""Feature tables: GeoParquet files and PostGIS."""

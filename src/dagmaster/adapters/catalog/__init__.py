"""STAC catalogs: Parquet files and pgstac."""

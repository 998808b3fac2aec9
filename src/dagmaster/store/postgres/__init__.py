"""The stores over PostgreSQL. Only this package writes SQL."""

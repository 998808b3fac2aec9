"""Handlers that look after what is stored."""

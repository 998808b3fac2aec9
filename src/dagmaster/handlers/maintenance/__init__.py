"""Handlers that maintain the storage and its catalog."""

"""Adapters of outside services to our ports."""

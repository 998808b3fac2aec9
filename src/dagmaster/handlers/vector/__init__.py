"""Handlers for features: points, lines and areas."""

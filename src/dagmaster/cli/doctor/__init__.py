"""Checks behind the doctor command."""

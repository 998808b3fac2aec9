"""Deterministic simulation of orchestrators and workers under faults."""

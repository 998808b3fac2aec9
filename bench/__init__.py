"""Benchmarks: figures measured side by side in one run.

Tests never assert a time; this package measures it.
"""

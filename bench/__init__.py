"""Benchmarks: figures, side by side in one run. Tests never time; this does."""

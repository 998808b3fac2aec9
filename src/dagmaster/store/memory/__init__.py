"""The stores in memory, for local runs, tests and the simulation."""

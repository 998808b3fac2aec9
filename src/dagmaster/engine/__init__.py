"""What a workflow means. Pure: no I/O, no clock, no randomness, no logging."""

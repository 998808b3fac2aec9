"""What a workflow means. Pure: no I/O, no clock, no chance, no logging."""

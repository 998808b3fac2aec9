"""What a process takes from its machine: the time, ids, event loops, files, and pauses between connections."""

"""What a process takes from its machine: time, ids, event loops, files, pauses between connections."""

"""What writes: a function for each command: its preconditions, a typed result, a wait for its effect."""

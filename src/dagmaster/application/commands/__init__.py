"""What writes: one function for each command, with its preconditions, a typed result, and a wait for its effect."""

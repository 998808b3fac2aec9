"""The gateway: what partners call. It reads with a role that can do nothing else, and forwards changes."""

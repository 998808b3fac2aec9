"""Workers execute: they run the handler of a task and report its outcome."""

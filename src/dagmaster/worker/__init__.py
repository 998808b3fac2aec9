"""Workers execute. They call a handler for one task and say what became of it; what follows, others decide."""

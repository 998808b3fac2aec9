"""What ships: handlers, each a thin shell around a plain function. They see a context, never the store."""

"""The expression language: Jinja's grammar, our own evaluator."""

"""Pages: frozen dataclasses, and the pure presenters that make them of views."""

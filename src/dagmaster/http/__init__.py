"""The HTTP API: parse a request, call `application`, answer with `to_dict()` of a view."""

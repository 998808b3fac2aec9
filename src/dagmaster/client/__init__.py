"""Clients of the HTTP API.

Their methods have the names, arguments and answers of the functions of `application`.
"""

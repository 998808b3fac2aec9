"""One type for each fact: stores return it, interfaces show it.

JSON, its schema and its parser come from the type.
"""

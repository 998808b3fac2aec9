"""Routes of the web page: parse, query, present, render."""

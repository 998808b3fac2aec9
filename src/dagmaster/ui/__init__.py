"""The web page under /ui: pages made by the server, of what `application` answers."""

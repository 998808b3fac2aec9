"""Outside services behind our ports: one file each."""

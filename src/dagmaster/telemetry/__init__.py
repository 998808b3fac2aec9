"""What services report about themselves: their logs."""

"""Read YAML safely, with positions."""

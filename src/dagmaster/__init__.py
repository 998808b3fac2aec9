"""dagmaster runs workflows that must not be lost."""

"""What handler authors and workers share: context, decorator, registry, signatures, definitions, mocks."""

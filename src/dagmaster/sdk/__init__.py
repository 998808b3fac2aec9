"""What the author of a handler and a worker share: context, decorator, registry, signatures, definitions, mocks."""

"""Read, check and compile workflow files and handlers; draw workflows."""

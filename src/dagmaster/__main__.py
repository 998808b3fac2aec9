"""`python -m dagmaster`: the command line."""

from dagmaster.cli.main import main

main()

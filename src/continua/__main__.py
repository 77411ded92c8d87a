"""`python -m continua`: the command."""

from continua.cli import main

main()

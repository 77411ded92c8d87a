"""`python -m continua`: the command."""

from continua_command import main

main()

"""The command, called in this process."""

from continua import cli

SETTINGS = ("--scale", "smoke", "--device", "cpu", "--threads", "1")


def run(capsys, *arguments):
    """The exit code, and what was printed on stdout and stderr."""
    code = cli.run([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return code, out, err

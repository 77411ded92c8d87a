"""The command, called in this process."""

import json

from continua import cli

SETTINGS = ("--scale", "smoke", "--device", "cpu", "--threads", "1")


def run(capsys, *arguments):
    """The exit code, and what was printed on stdout and stderr."""
    code = cli.run([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def reproduced(name, folder):
    """The report of a study at the smallest scale, as Markdown and as JSON."""
    assert cli.run(["reproduce", name, *SETTINGS, "--run-dir", str(folder)]) == 0
    return (folder / "report.md").read_text(), json.loads((folder / "report.json").read_text())

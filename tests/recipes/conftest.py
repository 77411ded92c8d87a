"""A run that several files look at; none may change it."""

import pytest

from continua import cli
from recipes.commands import SETTINGS


@pytest.fixture(scope="package")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits"
    assert cli.run(["train", "stateful/digits", *SETTINGS, "--run-dir", str(folder)]) == 0
    return folder

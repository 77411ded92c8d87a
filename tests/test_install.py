"""The wheel and the source distribution, installed in a folder of their own and used there."""

import email
import email.policy
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import continua_command

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
USE = """
import sys
from importlib import metadata
from pathlib import Path
import torch, continua as ct
place = Path(sys.argv[1])
assert place in Path(ct.__file__).parents, ct.__file__
assert metadata.version("continua-torch") == ct.__version__
assert (Path(ct.__file__).parent / "py.typed").exists()
assert (Path(ct.__file__).parent / "recipes" / "_page" / "uPlot.iife.min.js").exists()
block = ct.ODEBlock(torch.nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
print(ct.compress(block, ct.PiecewiseConstant(2))(torch.ones(1, 2)).shape)
"""


def python(*arguments, cwd, path=()):
    """This interpreter, with these folders before its own packages."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True, text=True, timeout=600, cwd=cwd, env=environment, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    """The build backend, in a folder of its own."""
    folder = tmp_path_factory.mktemp("backend")
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    if not any(metadata.distributions(name="pip")):
        pytest.skip("pip is not installed")
    got = python("-m", "pip", "install", "--quiet", "--target", folder, *needed, cwd=folder)
    if got.returncode:
        pytest.skip(f"the build backend cannot be had here: {got.stderr.strip()[-200:]}")
    return folder


@pytest.fixture(scope="module")
def built(backend, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    made = python("-m", "hatchling", "build", "-d", folder, cwd=ROOT, path=[backend])
    assert made.returncode == 0, made.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_what_is_built_works_elsewhere(kind, built, backend, tmp_path):
    (archive,) = built.glob(kind)
    assert archive.name.startswith("continua_torch-")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--target", tmp_path / "site")
    done = python("-m", "pip", "install", *options, archive, cwd=tmp_path, path=[backend])
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    used = python("-c", USE, site, cwd=tmp_path, path=[site])
    assert used.returncode == 0, used.stderr
    assert used.stdout == "torch.Size([1, 2])\n"
    script = python(site / "bin" / "continua", "--version", cwd=tmp_path, path=[site])
    assert script.stdout == f"continua {continua_command.version()}\n", script.stderr


@pytest.mark.slow
def test_the_description_has_no_link_that_leads_nowhere(built):
    """A package index shows the README without the repository around it."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        about = email.message_from_bytes(archive.read(name), policy=email.policy.default)
    assert len(about.get_all("Project-URL")) >= 3
    text = about.get_payload()
    assert "# continua" in text
    assert "compressed without data" in text
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets
    assert [target for target in targets if not target.startswith("https://")] == []


def test_the_readme_is_short_and_its_links_exist():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 110
    for target in re.findall(r"\]\((?!https://)([^)#]*)", text):
        assert (ROOT / target).exists(), target


def test_every_message_names_our_distribution():
    """`pip install continua` would install a stranger's package."""
    assert PROJECT["name"] == "continua-torch"
    texts = [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "pyproject.toml"]
    wrong = [
        f"{file}: {line.strip()}"
        for file in texts
        for line in file.read_text("utf-8").splitlines()
        if "continua[" in line or "pip install continua " in line
    ]
    assert not wrong

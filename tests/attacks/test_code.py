"""A file that names code to run."""

import sys

import pytest
import torch

import continua as ct
from attacks.crafted import craft
from continua import cli
from nets import Net

COMMANDS = ["evaluate", "refine", "compress", "heal", "sweep", "export", "gradcheck", "memory"]
NAMES = [
    "os:system",
    "builtins:exec",
    "torch.fx.graph_module:reduce_graph_module",
    "torch.fx._symbolic_trace:symbolic_trace",
    "torch.jit._serialization:load",
    "torch.hub:load",
    "torch.nn:Module",
    "torch.nn.modules.container:Sequential",
    "torch.nn:modules.linear.Linear",
    "continua.models:MODELS",
    "continua.models:ablate",
    "continua.models:nn.Linear",
    "continua.files:load",
    "continua.recipes._parse:parse_basis",
    "torch.nn:Linear.__init__",
    "torch.nn",
    "torch.nn:",
    ":",
    "",
    "torch.nn:Linear\n",
    "../evil:Net",
    "no_such_package:Net",
]


def payload(marker) -> dict:
    """What runs a shell command through torch.fx, whose annotation says that it makes a module."""
    return {
        "name": "torch.fx.graph_module:reduce_graph_module",
        "arguments": {
            "body": {"_code": "def forward(self): pass"},
            "import_block": f"import pathlib; pathlib.Path({str(marker)!r}).touch()",
        },
    }


def test_torch_fx_runs_nothing(tmp_path):
    folder = craft(tmp_path / "model", payload(tmp_path / "ran"))
    with pytest.raises(ct.FileError, match=r"reduce_graph_module.*factory=\.\.\.\)$"):
        ct.load(folder)
    # What is advised must not be the attack itself, and asking for it all the same does not help.
    for package in ("torch", "torch.fx", "torch.fx.graph_module"):
        with pytest.raises(ct.ContinuaError, match="run code of its own"):
            ct.load(folder, trust=[package])
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_it(command, tmp_path, capsys):
    folder = craft(tmp_path / "model", payload(tmp_path / "ran"))
    out = {"refine", "compress", "heal", "export"}
    more = [str(tmp_path / "out")] if command in out else []
    more += ["--teacher", str(folder)] if command == "heal" else []
    assert cli.run([command, str(folder), *more]) == 2
    said = capsys.readouterr().err
    assert "reduce_graph_module" in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", NAMES)
def test_only_listed_names(name, tmp_path):
    folder = craft(tmp_path, {"name": name, "arguments": {}})
    with pytest.raises(ct.FileError, match="not on the list"):
        ct.load(folder)


def test_the_sentence_has_both_remedies(tmp_path):
    folder = craft(tmp_path, {"name": "my_package.nets:Net", "arguments": {}})
    said = r"'my_package\.nets:Net'.*factory=.*trust=\['my_package'\].*--trust my_package$"
    with pytest.raises(ct.FileError, match=said):
        ct.load(folder)


def test_a_class_of_a_notebook_can_only_be_handed_over(tmp_path):
    folder = craft(tmp_path, {"name": "__main__:Net", "arguments": {}})
    with pytest.raises(ct.FileError, match=r"continua\.load\(folder, factory=\.\.\.\)$"):
        ct.load(folder)


@pytest.mark.parametrize("package", ["os", "builtins", "continua", "continua.files", "importlib"])
def test_packages_that_cannot_be_trusted(package, tmp_path):
    told = {"folder": str(tmp_path / "other"), "trust": ["nets"]}
    folder = craft(tmp_path, {"name": "continua.files._load:load", "arguments": told})
    with pytest.raises(ct.ContinuaError, match=f"trust='{package}' would let a file run"):
        ct.load(folder, trust=[package])


@pytest.mark.parametrize(
    "name",
    [
        "nets_evil:Net",
        "nets.:Net",
        ".nets:Net",
        "n\u0435ts:Net",  # a Cyrillic e
        "\uff4eets:Net",  # a wide n, which Python's own source code would read as n
        "nets\u200b:Net",
        "NETS:Net",
        "nets/../os:Net",
        "nets:",
        "nets:Net.__init__",
        "nets:Net.__class__",
        "nets:Net.__mro__",
        "nets:Net.forward.__globals__",
        "nets:Net:Net",
        "nets.__main__:Net",
        "nets:__builtins__.exec",
        "nets:__loader__.load_module",
    ],
)
def test_names_that_only_look_like_a_trusted_package(name, tmp_path):
    folder = craft(tmp_path, {"name": name, "arguments": {}})
    before = set(sys.modules)
    with pytest.raises(ct.FileError, match="factory"):
        ct.load(folder, trust=["nets"])
    assert set(sys.modules) == before


@pytest.fixture
def bait(tmp_path, monkeypatch):
    """A module that can be imported, and must not be."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "bait_for_continua.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path / "path")
    return {"name": "bait_for_continua:Net", "arguments": {}}


def test_nothing_is_imported_before_the_decision(bait, tmp_path):
    folder = craft(tmp_path / "model", bait)
    before = set(sys.modules)
    for trust in ([], ["bait"], ["bait_for_continua.nets"], ["bait_for_continua2"], ["nets", ""]):
        with pytest.raises(ct.FileError, match="not on the list"):
            ct.load(folder, trust=trust)
    assert set(sys.modules) == before


def test_code_beside_a_file_is_not_read(tmp_path, monkeypatch):
    folder = craft(tmp_path / "model", {"name": "model_code:Net", "arguments": {}})
    (folder / "model_code.py").write_text("raise SystemExit('read')")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", ".")])
    with pytest.raises(ct.FileError, match="not on the list"):
        ct.load(folder)
    with pytest.raises(ct.FileError, match="cannot be imported"):
        ct.load(folder, trust=["model_code"])


@pytest.mark.parametrize(
    "name", ["nets:nn.Linear", "nets:math.sqrt", "nets:ct.load", "nets:Tensor", "nets:not_a_model"]
)
def test_what_a_trusted_package_imports_is_not_trusted(name, tmp_path):
    folder = craft(tmp_path, {"name": name, "arguments": {}})
    with pytest.raises(ct.FileError, match="defined in the trusted package"):
        ct.load(folder, trust=["nets"])


def test_a_string_of_packages_is_a_mistake(tmp_path):
    folder = ct.save(ct.build(Net), tmp_path)
    with pytest.raises(ct.ContinuaError, match=r"trust is a list"):
        ct.load(folder, trust="nets")
    with pytest.raises(ct.ContinuaError, match=r"trust is a list"):
        ct.load(folder, trust=[sys.modules["nets"]])


def test_what_the_caller_hands_over_is_called(tmp_path):
    model = ct.build(Net, width=4).eval()
    ct.save(model, tmp_path)
    x = torch.randn(2, 3)
    for how in ({"factory": Net}, {"trust": ["nets"]}):
        assert torch.equal(ct.load(tmp_path, **how)(x), model(x))

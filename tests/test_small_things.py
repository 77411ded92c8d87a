"""Mistakes that newcomers make, and what they are told."""

import io
import subprocess
import sys

import pytest
import torch
from torch import nn

import continua as ct
import continua_command
from continua.cli._words import say, tabulate
from nets import make_pair

X = torch.ones(2, 3)


# -- fields ------------------------------------------------------------------------------------


class Decay(nn.Module):
    """As torchdiffeq wants it."""

    def forward(self, t, y):
        return -t * y


def test_the_depth_first_is_told_what_to_write():
    with pytest.raises(ct.ModuleError, match=r"Decay\.forward\(t, y\).*forward\(self, s, z, x\)"):
        ct.ODEBlock(Decay())


def test_functions_are_fields():
    solver = ct.RK4(steps=20)
    end = ct.ODEBlock(lambda z: -z, solver=solver)(X)
    torch.testing.assert_close(end, X * torch.exp(torch.tensor(-1.0)))
    half = ct.ODEBlock(lambda t, z: -t * z, solver=solver)(X)
    torch.testing.assert_close(half, X * torch.exp(torch.tensor(-0.5)))
    assert ct.ODEBlock(torch.tanh, solver=solver)(X).shape == X.shape
    assert "tanh" in repr(ct.ODEBlock(torch.tanh))


def test_a_module_may_still_take_more_than_the_state():
    class Pulled(nn.Module):
        def forward(self, z, target):
            return target - z

    end = ct.ODEBlock(Pulled(), solver=ct.RK4(steps=20))(X, 2 * X)
    torch.testing.assert_close(end, X * (2 - torch.exp(torch.tensor(-1.0))))


def test_what_is_no_field():
    net = nn.Linear(3, 3)
    for field in (lambda z: net(z) + 1, net.forward):
        with pytest.raises(ct.ModuleError, match=r"uses a Linear.*give the module itself"):
            ct.ODEBlock(field)
    with pytest.raises(ct.ModuleError, match=r"the class ReLU; call it: ReLU\(\)"):
        ct.ODEBlock(nn.ReLU)
    with pytest.raises(ct.ModuleError, match="not int"):
        ct.ODEBlock(3)


# -- verbs -------------------------------------------------------------------------------------


def test_compress_without_a_choice():
    block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(8), ct.Euler(steps=8))
    with pytest.raises(ct.ArgumentError) as caught:
        ct.compress(block)
    assert "compress(model, basis=PiecewiseConstant(4), steps=4)" in str(caught.value)
    assert "PiecewiseConstant(8) and Euler(steps=8)" in str(caught.value)


def test_the_model_as_it_is_remains_a_size():
    front = ct.sweep(make_pair(4), lambda m: 0.0, sizes=[{}, {"steps": 1}])
    assert [v.size for v in front.variants] == [{}, {"steps": 1}]
    assert len(ct.Elastic(make_pair(4), [{}, {"basis": ct.PiecewiseConstant(1)}]).sizes) == 2


def test_save_checks_the_factory(tmp_path):
    model = ct.compress(make_pair(4), ct.Constant(), steps=1)
    # Bases and steps come from the file, so that the factory may make another size.
    ct.save(model, tmp_path, factory=make_pair, arguments={"width": 4})
    assert ct.load(tmp_path, factory=make_pair)[0].basis == ct.Constant()
    with pytest.raises(ct.ArgumentError, match=r"has shape \[1, 8, 4\] here and \[1, 8, 3\] there"):
        ct.save(model, tmp_path, factory=make_pair, arguments={"width": 3})
    linear = nn.Linear(3, 4)
    with pytest.raises(ct.ArgumentError, match=r"'weight' has shape \[4, 3\] here and \[5, 3\]"):
        ct.save(linear, tmp_path, nn.Linear, {"in_features": 3, "out_features": 5})
    given = {"in_features": 3, "out_features": 4, "bias": False}
    with pytest.raises(ct.ArgumentError, match="only the model has 'bias'"):
        ct.save(linear, tmp_path, nn.Linear, given)
    with pytest.raises(ct.ArgumentError, match="does not make this model"):
        ct.save(model, tmp_path, nn.Linear, {"in_features": 3, "out_features": 5})


def test_save_checks_the_factory_that_build_recorded(tmp_path):
    model = ct.compress(ct.build(make_pair, width=4), ct.Constant(), steps=1)
    state = torch.get_rng_state()
    ct.save(model, tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    model[1] = nn.Linear(4, 5)
    with pytest.raises(ct.ArgumentError, match=r"make_pair.*only the model has '1.weight'"):
        ct.save(model, tmp_path)


# -- imports -----------------------------------------------------------------------------------


def modules_after(code):
    """The modules that are there after some code in a fresh interpreter."""
    tail = "; import sys; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code + tail], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("argument", ["--help", "-h", "--version", "-V"])
def test_help_and_version_do_without_torch(argument):
    found = modules_after(f"import continua_command; continua_command.main([{argument!r}])")
    assert not {"torch", "numpy", "continua"} & found


def test_importing_continua_takes_little_more_than_torch():
    """A count instead of a time: next to nothing but our own modules is new after torch."""
    ours = modules_after("import torch, continua") - modules_after(
        "import torch, safetensors.torch"
    )
    assert len({name for name in ours if not name.startswith("continua")}) <= 8


# -- the terminal ------------------------------------------------------------------------------


def test_the_quick_help_is_that_of_the_commands():
    commands = pytest.importorskip("continua.cli._commands").COMMANDS
    said = {name: command.__doc__ for name, command in commands.items()}
    assert said == continua_command.COMMANDS
    assert list(continua_command.COMMANDS) == list(said)


@pytest.mark.parametrize("columns", [30, 40, 80, 200])
def test_help_wraps_at_words(columns):
    text = continua_command.usage(columns)
    assert max(map(len, text.splitlines())) <= columns
    words = " ".join(continua_command.COMMANDS.values()).split()
    assert set(words) <= set(text.split())


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_row_that_does_not_fit_has_a_line_per_cell(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    table = "tensor  source  target\nblock.0.weight  PiecewiseConstant(8)  PiecewiseConstant(4)\n"
    out, piped = Terminal(), io.StringIO()
    tabulate(table, out)
    tabulate(table, piped)
    assert piped.getvalue() == table
    assert out.getvalue().split() == table.split()
    assert out.getvalue().splitlines()[0] == "tensor  source  target"
    assert max(map(len, out.getvalue().splitlines())) <= 40


def test_sentences_wrap_at_words_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    sentence = "there is no recipe 'digits'; did you mean 'stateful/digits'? " * 2
    for out, lines in ((Terminal(), 4), (io.StringIO(), 1)):
        say(sentence.strip(), out)
        assert out.getvalue().split() == sentence.split()
        assert out.getvalue().count("\n") == lines
        assert lines == 1 or max(map(len, out.getvalue().splitlines())) <= 40

import json
import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import continua as ct
from continua.models import continuous_net
from continua.transform import recipe_of
from nets import Net, make_net, make_pair, scrambled, shared_pair

load = partial(ct.load, trust=["nets"])


def assert_same(model, other):
    a, b = model.state_dict(), other.state_dict()
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)


def with_gradient(model, gradient):
    model.block.gradient = gradient
    return model


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    model = ct.build(Net, width=5, basis=ct.PiecewiseConstant(4), solver=ct.Euler(steps=4))
    scrambled(model.block)
    ct.save(model, tmp_path / "model")
    return tmp_path / "model", model


def test_round_trip(saved):
    folder, model = saved
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "config.json"}
    loaded = load(folder)
    assert_same(model, loaded)
    assert not loaded.training
    x = torch.randn(4, 3)
    assert torch.equal(loaded(x), model.eval()(x))


@pytest.mark.parametrize(
    "change",
    [
        ct.refine,
        lambda m: ct.compress(m, ct.Fourier(1), solver=ct.RK38(steps=3)),
        lambda m: ct.compress(m, ct.BSpline(4, degree=2), state_basis=ct.PiecewiseLinear(3)),
        lambda m: ct.compress(m, {"*.weight": ct.GaussianRBF(3), "*": ct.Legendre(2)}),
        lambda m: m.double(),
        lambda m: with_gradient(m, ct.Checkpoint("sqrt")),
        lambda m: with_gradient(m, ct.Adjoint("backsolve", solver=ct.Tsit5(1e-6, 1e-7))),
        lambda m: m.to(torch.bfloat16),
    ],
)
def test_changed_models_are_saved_as_they_are(saved, tmp_path, change):
    changed = change(saved[1])
    ct.save(changed, tmp_path / "changed")
    loaded = load(tmp_path / "changed")
    assert_same(changed, loaded)
    assert loaded.block.solver == changed.block.solver
    assert loaded.block.gradient == changed.block.gradient
    assert loaded.block.expansion.bases == changed.block.expansion.bases
    x = torch.randn(4, 3).to(changed.stem.weight.dtype)
    assert torch.equal(loaded(x), changed.eval()(x))
    ct.save(loaded, tmp_path / "again")
    assert_same(loaded, load(tmp_path / "again"))


def test_a_factory_function_a_factory_given_late_and_several_blocks(tmp_path):
    assert_same(m := ct.build(make_net, width=4), load(ct.save(m, tmp_path / "a")))
    model = make_pair(4)
    assert_same(model, load(ct.save(model, tmp_path / "b", make_pair, {"width": 4})))


def test_a_factory_that_is_handed_over_need_not_be_importable(tmp_path):
    def local(width: int):  # also not annotated
        return Net(width)

    model = ct.build(local, width=4)
    ct.save(model, tmp_path)
    assert_same(model, ct.load(tmp_path, factory=local))
    assert_same(model, ct.load(tmp_path, factory=Net))  # whatever its name
    with pytest.raises(ct.FileError, match=r"factory=.*, or trust its package"):
        ct.load(tmp_path)


def test_tied_tensors(tmp_path):
    model = ct.build(Net, tied=True)
    loaded = load(ct.save(model, tmp_path))
    assert loaded.head.weight is loaded.other_head.weight
    assert_same(model, loaded)


def test_saving_over_an_older_model(saved):
    folder, model = saved
    (folder / "notes.txt").write_text("mine")
    ct.save(ct.refine(model), folder)
    assert load(folder).block.solver.steps == 8
    assert (folder / "notes.txt").read_text() == "mine"
    assert len(list(folder.iterdir())) == 3


def test_a_failed_write_leaves_the_older_model(saved, monkeypatch):
    folder, model = saved

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ct.FileError, match="No space left"):
        ct.save(ct.refine(model), folder)
    monkeypatch.undo()
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "config.json"}
    assert_same(load(folder), model)


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be opened there")
def test_a_folder_is_synced_after_the_last_rename(saved, monkeypatch):
    folder, model = saved
    calls, sync, replace = [], os.fsync, os.replace

    def synced(fd):
        calls.append("folder" if os.path.samestat(os.fstat(fd), folder.stat()) else "file")
        sync(fd)

    def renamed(*arguments):
        calls.append("rename")
        replace(*arguments)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    ct.save(model, folder)
    assert calls[-1] == "folder"
    assert calls.index("file") < calls.index("rename") < calls.index("folder")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_two_that_save_at_once_write_one_after_the_other(saved, monkeypatch):
    """As replicas of a model in shards do: the weights of one and the config of the other."""
    folder, model = saved
    calls, replace = [], os.replace

    def renamed(*arguments):
        calls.append(threading.get_ident())
        time.sleep(0.05)
        replace(*arguments)

    monkeypatch.setattr(os, "replace", renamed)
    both = [threading.Thread(target=ct.save, args=(m, folder)) for m in (model, ct.refine(model))]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert calls[0] == calls[1] != calls[2] == calls[3]
    assert load(folder)


def test_loads_in_a_fresh_process(saved):
    folder, model = saved
    code = (
        f"import continua as ct, torch; m = ct.load({str(folder)!r}, trust=['nets']); "
        "torch.manual_seed(5); print(m(torch.randn(2, 3)).double().sum().item())"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": path, "PATH": ""},
    )  # fmt: skip
    torch.manual_seed(5)
    expected = model.eval()(torch.randn(2, 3)).double().sum().item()
    assert float(done.stdout) == pytest.approx(expected, rel=1e-5)


def edit(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= changes
    path.write_text(json.dumps(config))


def cut(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def recipe(name, **arguments):
    return {"name": name, "arguments": arguments}


DAMAGE = {
    "newer format": (lambda f: edit(f, format=99), "format 99, newer than 1"),
    "not ours": (lambda f: (f / "config.json").write_text("{}"), "no format number"),
    "no object": (lambda f: (f / "config.json").write_text("[]"), "no JSON object but list"),
    "cut weights": (lambda f: cut(f / "model.safetensors", 0.5), "was cut"),
    "empty weights": (lambda f: cut(f / "model.safetensors", 0), "has 0 bytes"),
    "cut config": (lambda f: cut(f / "config.json", 0.5), "cannot be read"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "does not exist, though"),
    "no config": (lambda f: (f / "config.json").unlink(), "does not exist; a saved model"),
    "flipped bit": (
        lambda f: (f / "model.safetensors").write_bytes(
            (f / "model.safetensors").read_bytes()[:-1] + b"\x01"
        ),
        "checksum",
    ),
    "unknown class": (lambda f: edit(f, factory=recipe("nets:Gone")), "'nets:Gone' cannot be"),
    "unknown module": (lambda f: edit(f, factory=recipe("nets.no_such:Net")), "no_such"),
    "not trusted": (lambda f: edit(f, factory=recipe("no_such:Net")), r"--trust no_such$"),
    "not a factory": (
        lambda f: edit(f, factory=recipe("nets:not_a_model", command="rm")),
        "neither an nn.Module class nor",
    ),
    "a system call": (lambda f: edit(f, factory=recipe("os:system", command="x")), "not on the"),
    "other width": (
        lambda f: edit(f, factory=recipe("nets:Net", width=7)),
        r"has shape \[4, 5\], the model needs \[4, 7\]",
    ),
    "wrong argument": (lambda f: edit(f, factory=recipe("nets:Net", depth=7)), "depth"),
    "failing class": (lambda f: edit(f, factory=recipe("nets:Broken")), "no such data set"),
    "other blocks": (lambda f: edit(f, blocks={}), "its factory makes 'block'"),
    "no checksum": (lambda f: edit(f, weights=None), "does not say what model.safetensors holds"),
    "no factory": (lambda f: edit(f, factory={}), "lacks the entry 'name'"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_named(saved, damage):
    folder, _ = saved
    spoil, match = DAMAGE[damage]
    spoil(folder)
    with pytest.raises(ct.FileError, match=match) as caught:
        load(folder)
    assert str(folder) in str(caught.value)


def test_unknown_basis_in_a_file(saved):
    folder, _ = saved
    config = json.loads((folder / "config.json").read_text())
    config["blocks"]["block"]["bases"]["1.weight"]["type"] = "Wavelet"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ct.FileError, match=r"unknown basis 'Wavelet'"):
        load(folder)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda p: ct.save(make_pair(3), p),
            "weights, not code, and how to make this Sequential again is not known",
        ),
        (lambda p: ct.build(dict, a=1), "makes dict, not an nn.Module|cannot be called so"),
        (lambda p: ct.build(Net, depth=3), "unexpected keyword argument 'depth'|got an unexpected"),
        (lambda p: ct.build(Net, width=torch.ones(3)), "JSON cannot hold"),
        (lambda p: load(p / "nowhere"), "does not exist"),
    ],
)
def test_refusals(tmp_path, make, match):
    with pytest.raises(ct.ContinuaError, match=match):
        make(tmp_path)


def test_an_unwritable_place(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ct.FileError, match="cannot write to"):
        ct.save(ct.build(Net), tmp_path / "file")


def test_a_gradient_among_the_arguments_comes_back(tmp_path):
    model = ct.build(
        continuous_net,
        basis=ct.PiecewiseConstant(2),
        solver=ct.RK4(steps=2),
        width=4,
        stages=1,
        gradient=ct.Adjoint(solver=ct.Dopri5(1e-4, 1e-4)),
    )
    ct.save(model, tmp_path / "model")
    assert load(tmp_path / "model").block1.gradient == model.block1.gradient


def test_a_file_names_the_defaults_too_and_one_that_does_not_is_read_with_them(tmp_path):
    model = ct.build(nn.Linear, in_features=2, out_features=1)
    ct.save(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["factory"]["arguments"]["bias"] is True
    del config["factory"]["arguments"]["bias"]  # as if the argument were newer than the file
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert recipe_of(load(tmp_path)) == recipe_of(model)


# -- all sizes in one file ---------------------------------------------------------------------


def test_an_elastic_model_is_one_file(tmp_path):
    torch.manual_seed(0)
    elastic = ct.Elastic(ct.build(Net, width=5), [4, 2, 1])
    x = torch.randn(8, 3)
    for step in range(4):
        elastic.loss(x, lambda out: out.square().mean(), step)
    ct.save(elastic, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "config.json"}
    loaded = load(tmp_path)
    assert_same(elastic, loaded)
    assert loaded.sizes == (4, 2, 1)
    for size in (4, 2, 1):
        plain = load(tmp_path, size=size)
        assert not plain.training
        assert_same(plain, elastic.at(size))
        assert isinstance(plain, Net)
        ct.save(plain, tmp_path / "plain")
        assert_same(load(tmp_path / "plain"), plain)


def test_sizes_of_an_elastic_file_may_be_dictionaries(tmp_path):
    size = {"basis": ct.PiecewiseConstant(2), "solver": ct.RK4(steps=1)}
    elastic = ct.Elastic(ct.build(Net, width=5), [{}, size])
    ct.save(elastic, tmp_path)
    assert load(tmp_path, size=size).block.solver == ct.RK4(steps=1)


def test_sizes_that_are_not_in_a_file(saved, tmp_path):
    with pytest.raises(ct.ArgumentError, match="a model of one size"):
        load(saved[0], size=2)
    ct.save(ct.Elastic(ct.build(Net), [4, 2]), tmp_path)
    with pytest.raises(ct.ArgumentError, match="no size 3; there are 4, 2"):
        load(tmp_path, size=3)
    config = json.loads((tmp_path / "config.json").read_text())
    config["elastic"]["sizes"] = [4, 3]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ct.FileError, match="sizes that cannot be"):
        load(tmp_path)


def test_weights_that_blocks_share_are_one_again(tmp_path):
    model = ct.build(shared_pair, width=3)
    loaded = load(ct.save(ct.refine(model), tmp_path))
    assert loaded[0].field[0].weight is loaded[1].field[0].weight
    assert loaded[0].basis == ct.PiecewiseConstant(4)

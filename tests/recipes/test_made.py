"""Models made from runs: compressed, refined, swept, exported, through the command."""

import csv
import json
import math
import shutil

import pytest
import torch

import continua as ct
import nets
from continua.data import load
from continua.models import continuous_net
from continua.recipes import Run
from continua.train import Classification, Training, fit
from recipes.commands import run


def test_compress_refine_and_export(trained, capsys, tmp_path):
    code, out, _ = run(capsys, "compress", trained, tmp_path / "half")
    assert code == 0
    assert "PiecewiseConstant(2)" in out
    code, out, _ = run(capsys, "evaluate", tmp_path / "half", "--device", "cpu")
    assert code == 0
    assert "450 samples" in out
    code, out, _ = run(
        capsys, "compress", trained, tmp_path / "rk", "--solver", "RK4(steps=2)", "--basis",
        "Chebyshev(3)", "--method", "interpolate",
    )  # fmt: skip
    assert code == 0
    assert "Chebyshev(3)" in out
    assert run(capsys, "refine", trained, tmp_path / "fine")[0] == 0
    assert run(capsys, "export", trained, tmp_path / "plain")[0] == 0
    model = ct.load(tmp_path / "plain")
    x = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(model(x), Run.open(trained).model()(x))


def test_compress_to_a_budget(trained, capsys, tmp_path):
    code, out, _ = run(
        capsys, "compress", trained, tmp_path / "small", "--budget", "0.7", "--samples", "128"
    )
    assert code == 0
    assert "same prediction" in out
    small, model = ct.load(tmp_path / "small"), Run.open(trained).model()
    sizes = [sum(p.numel() for p in one.parameters()) for one in (small, model)]
    assert sizes[0] <= 0.7 * sizes[1]
    assert run(capsys, "evaluate", tmp_path / "small", "--device", "cpu")[0] == 0
    for options, said in (
        (["--budget", "0.001"], "below the smallest"),
        (["--budget", "0.5", "--steps", "2"], "--budget chooses the steps"),
        (["--budget", "0.5", "--samples", "0"], "samples is at least 1"),
    ):
        code, _, err = run(capsys, "compress", trained, tmp_path / "other", *options)
        assert code == 2
        assert said in err


def test_compress_by_a_fit(trained, capsys, tmp_path):
    half, fitted = tmp_path / "half", tmp_path / "fitted"
    size = ("--basis", "PiecewiseConstant(2)", "--steps", "2")
    assert run(capsys, "compress", trained, half, *size)[0] == 0
    fit = ("--method", "fit", "--samples", "256")
    code, out, _ = run(capsys, "compress", trained, fitted, *size, *fit)
    assert code == 0
    assert out.startswith("outputs: ")
    one, other = (dict(ct.load(folder).named_parameters()) for folder in (half, fitted))
    assert torch.equal(one["block1.field.2.weight"], other["block1.field.2.weight"])
    assert not torch.equal(one["block1.field.5.weight"], other["block1.field.5.weight"])
    assert run(capsys, "evaluate", fitted, "--device", "cpu")[0] == 0
    code, _, err = run(capsys, "compress", trained, tmp_path / "other", *size, *fit[:3], "32")
    assert code == 2
    assert "at least 2 are needed" in err


def test_each_basis_is_halved_as_what_it_is(capsys, tmp_path):
    ct.save(ct.build(nets.mixed), tmp_path / "mixed")
    assert run(capsys, "compress", tmp_path / "mixed", tmp_path / "half")[0] == 2
    trust = ("--trust", "nets")
    assert run(capsys, "compress", *trust, tmp_path / "mixed", tmp_path / "half")[0] == 0
    (block,) = ct.transform.blocks(ct.load(tmp_path / "half", factory=nets.mixed)).values()
    assert block.expansion.weights == {
        "0.weight": ct.Fourier(2, period=2 * math.pi),
        "0.bias": ct.BSpline(4, degree=2),
        "2.weight": ct.PiecewiseConstant(4),
        "2.bias": ct.Constant(),
    }


def test_a_sweep(trained, capsys):
    code, out, _ = run(capsys, "sweep", trained, "--threads", 1, "--part", "test")
    assert code == 0
    table = (trained / "sweep" / "trials.csv").read_text()
    rows = list(csv.DictReader(table.splitlines()))
    assert rows[0]["method"] == "source"
    result = json.loads((trained / "result.json").read_text())
    assert float(rows[0]["accuracy"]) == result["test"]["accuracy"]
    kinds = {(r["basis"], r["size"], r["method"]) for r in rows}
    for basis in ("PiecewiseConstant", "PiecewiseLinear"):
        for method in ("project", "interpolate"):
            assert {(basis, "1", method), (basis, "2", method)} <= kinds
    assert len({tuple(r.values())[:5] for r in rows}) == len(rows)
    for name in ("accuracy.png", "steps.png", "latency.png", "weights.png", "state.png"):
        assert (trained / "sweep" / name).stat().st_size > 5000
    assert "parameters" in (trained / "sweep" / "summary.md").read_text()
    assert "accuracy.png" in out


def test_a_sweep_over_every_combination(trained, capsys, tmp_path):
    code, out, _ = run(
        capsys, "sweep", trained, "--product", "--bases", "DiscontinuousLinear", "Legendre",
        "--sizes", 1, 2, "--schemes", "Heun", "--steps", 1, 3, "--methods", "project",
        "--samples", 50, "--out", tmp_path / "s", "--part", "validation", "--json",
    )  # fmt: skip
    assert code == 0
    found = json.loads(out)
    assert found["samples"] == 50
    assert len(found["trials"]) == 1 + 4 + 2  # there is no DiscontinuousLinear(1)


def test_a_config_of_someone_else_is_not_replaced(trained, capsys, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "other"}')
    code, _, err = run(capsys, "compress", trained, tmp_path)
    assert code == 2
    assert "not of a continua model" in err
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_a_model_without_a_run_does_not_keep_the_origin_of_another(trained, capsys, tmp_path):
    out, alone = tmp_path / "out", tmp_path / "alone"
    run(capsys, "export", trained, out)
    shutil.copytree(out, alone)
    (alone / "origin.json").unlink()
    code, _, err = run(capsys, "compress", alone, out)
    assert code == 2
    assert "--force overwrites it" in err
    assert run(capsys, "compress", alone, out, "--force")[0] == 0
    code, _, err = run(capsys, "evaluate", out)
    assert code == 2
    assert "which data" in err


@pytest.mark.parametrize("command", ["evaluate", "sweep", "export"])
def test_a_file_is_no_folder(command, capsys, tmp_path):
    (tmp_path / "file").touch()
    out = [tmp_path / "out"] if command == "export" else []
    code, _, err = run(capsys, command, tmp_path / "file", *out)
    assert code == 2
    assert "is a file; runs and models are folders" in err


def test_a_model_made_from_a_run_is_swept(trained, capsys, tmp_path):
    small = tmp_path / "small"
    assert run(capsys, "compress", trained, small)[0] == 0
    options = ("--samples", "50", "--batch-size", "8", "--schemes", "Euler", "--bases", "Legendre")
    code, out, _ = run(capsys, "sweep", small, *options, "--json")
    assert code == 0
    first = json.loads(out)["trials"][0]
    assert (first["size"], first["method"]) == (2, "source")
    assert (small / "sweep" / "trials.csv").exists()
    (small / "origin.json").unlink()
    code, _, err = run(capsys, "sweep", small, *options)
    assert code == 2
    assert "which data" in err


def test_a_sweep_is_of_the_validation_part_and_fits_into_40_columns(
    trained, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("COLUMNS", "40")
    options = ("--schemes", "Euler", "--bases", "PiecewiseConstant", "--out", tmp_path)
    code, out, _ = run(capsys, "sweep", trained, *options)
    assert code == 0
    assert max(map(len, out.partition("Accuracy on")[0].splitlines())) <= 40
    assert "of the validation part" in " ".join(out.split())
    assert "PiecewiseConstant(2)" in out
    assert "…" not in out
    assert json.loads((tmp_path / "sweep.json").read_text())["part"] == "validation"


@pytest.mark.parametrize("verb", ["compress", "refine", "export"])
def test_a_model_is_not_written_over_its_source(verb, trained, capsys, tmp_path):
    model = tmp_path / "model"
    assert run(capsys, "compress", trained, model)[0] == 0
    before = (model / "model.safetensors").read_bytes()
    code, _, err = run(capsys, verb, model, tmp_path / "." / "model")
    assert code == 2
    assert "is the model itself" in err
    assert (model / "model.safetensors").read_bytes() == before


def test_a_folder_of_fit_is_opened_and_no_next_step_is_promised(capsys, tmp_path):
    training = Training(epochs=1, epoch_steps=2)
    task = Classification(load("digits"))

    def make():
        return ct.build(
            continuous_net,
            in_channels=1,
            width=8,
            basis=ct.PiecewiseConstant(2),
            solver=ct.Euler(steps=2),
        )

    fit(make, task, training, tmp_path / "fit", device="cpu")
    code, out, _ = run(capsys, "compress", tmp_path / "fit", tmp_path / "small")
    assert code == 0
    assert "PiecewiseConstant(1)" in out
    assert "Next" not in out


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_a_name_of_a_file_is_no_folder(name, trained, capsys, tmp_path):
    code, _, err = run(capsys, "export", trained, tmp_path / name)
    assert code == 2
    assert "looks like a file" in err
    assert run(capsys, "export", trained, tmp_path / name, "--format", "safetensors")[0] == 0


def test_a_run_as_onnx(trained, capsys, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    file = tmp_path / "model.onnx"
    code, out, err = run(capsys, "export", trained, file)
    assert (code, err) == (0, "")
    assert "ONNX opset" in out
    session = onnxruntime.InferenceSession(str(file))
    x = torch.randn(5, 1, 8, 8)
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    expected = Run.open(trained).model()(x).detach()
    torch.testing.assert_close(torch.as_tensor(y), expected, rtol=1e-4, atol=1e-4)
    assert run(capsys, "export", trained, tmp_path / "alone")[0] == 0
    (tmp_path / "alone" / "origin.json").unlink()
    code, _, err = run(capsys, "export", trained, file)
    assert code == 2
    assert "--force overwrites it" in err
    code, _, err = run(capsys, "export", tmp_path / "alone", file, "--force")
    assert code == 2
    assert "--shape 3 32 32" in err
    code, out, _ = run(
        capsys, "export", tmp_path / "alone", tmp_path / "onnx", "--format", "onnx", "--shape", "1",
        "8", "8", "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["error"] < 1e-4
    code, _, err = run(capsys, "export", trained, tmp_path / "out", "--shape", "1", "8", "8")
    assert code == 2
    assert "needs no --shape" in err


@pytest.mark.parametrize("option", ["--samples", "--batch-size"])
def test_a_sweep_of_a_negative_number_of_samples(option, trained, capsys):
    code, _, err = run(capsys, "sweep", trained, option, "-2", "--force")
    assert code == 2
    assert "at least 1, not -2" in err


def test_gradcheck_takes_a_run_folder(trained, capsys):
    code, out, _ = run(capsys, "gradcheck", trained, "--batch-size", "2")
    assert code == 0
    assert "block block1" in out
    code, _, err = run(capsys, "gradcheck", trained, "--shape", "-1", "8")
    assert code == 2
    assert "whole numbers" in err

"""`continua heal`: a compressed model trained by the one that it was made from."""

import json

import continua as ct
from recipes.commands import run


def test_heal(trained, capsys, tmp_path):
    half, healed = tmp_path / "half", tmp_path / "healed"
    assert run(capsys, "compress", trained, half)[0] == 0
    options = ["--teacher", trained, "--steps", "20", "--samples", "256", "--device", "cpu"]
    code, out, err = run(capsys, "heal", half, healed, *options)
    assert code == 0
    assert "same prediction" in out
    assert "healing 20/20: held-back loss" in err
    before, after = (ct.load(folder).state_dict() for folder in (half, healed))
    assert {name: t.shape for name, t in before.items()} == {n: t.shape for n, t in after.items()}
    assert run(capsys, "evaluate", healed, "--device", "cpu")[0] == 0
    code, _, err = run(capsys, "heal", half, healed, *options)
    assert code == 2
    assert "--force overwrites it" in err
    code, out, _ = run(capsys, "heal", half, healed, *options, "--json", "--force")
    assert code == 0
    assert json.loads(out)["out"] == str(healed)


def test_mistakes(trained, capsys, tmp_path):
    half = tmp_path / "half"
    assert run(capsys, "compress", trained, half)[0] == 0
    for arguments, said in (
        ([half, half, "--teacher", trained], "is the model itself"),
        ([half, tmp_path / "out", "--teacher", tmp_path / "none"], "there is no folder"),
        ([half, tmp_path / "out", "--teacher", trained, "--samples", "0"], "samples is at least 1"),
        ([half, tmp_path / "out"], "--teacher"),
    ):
        code, _, err = run(capsys, "heal", *arguments)
        assert code == 2
        assert said in err


def test_inputs_are_augmented_as_in_training(trained, capsys, tmp_path, monkeypatch):
    seen = []

    def augmented(images, generator, **how):
        seen.append(how)
        return images

    monkeypatch.setattr("continua.recipes._image_setup.augmented", augmented)
    options = ["--method", "fit", "--samples", "256", "--basis", "PiecewiseConstant(2)"]
    assert run(capsys, "compress", trained, tmp_path / "fitted", *options)[0] == 0
    assert seen
    assert {how["pad"] for how in seen} == {1}

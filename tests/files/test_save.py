"""What saving does to a model: nothing."""

import pytest
from torch import nn

import continua as ct


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.drop = nn.Linear(width, width), nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.inner(x))


def converted(width=2, depth=4):
    return ct.convert(plain(width, depth))


def plain(width=2, depth=4):
    return nn.Sequential(nn.Sequential(*[Residual(width) for _ in range(depth)]), nn.Tanh())


def test_saving_leaves_alone_what_a_factory_shares(tmp_path):
    block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    weight = block.field.weight

    def model_around_it():
        return nn.Sequential(block, nn.Linear(2, 1))

    ct.save(model_around_it(), tmp_path / "model", factory=model_around_it)
    assert block.field.weight is weight


@pytest.mark.parametrize("wrong", ["nets:Net", nn.Linear(2, 2)])
def test_a_factory_that_makes_no_models_is_named(wrong, tmp_path):
    ct.save(converted(), tmp_path / "model", factory=converted)
    said = "factory is a class or a function that makes the model, such as MyNet, not "
    with pytest.raises(ct.ArgumentError, match=said):
        ct.save(converted(), tmp_path / "other", factory=wrong)
    with pytest.raises(ct.FileError, match=said):
        ct.load(tmp_path / "model", factory=wrong)


def test_arguments_of_save_in_the_wrong_place(tmp_path):
    with pytest.raises(ct.ArgumentError, match=r"the model is an nn.Module, not str"):
        ct.save("model", converted(), factory=converted)
    with pytest.raises(ct.ArgumentError, match=r"arguments is a dictionary by name, .* not tuple"):
        ct.save(converted(), tmp_path / "model", factory=converted, arguments=(2, 4))


def test_the_class_before_the_conversion_does_not_make_the_converted_model(tmp_path):
    with pytest.raises(ct.ArgumentError, match=r"such as a function that calls continua.convert$"):
        ct.save(converted(), tmp_path / "model", factory=plain)


def test_the_weights_are_no_folder(tmp_path):
    folder = ct.save(converted(), tmp_path / "model", factory=converted)
    with pytest.raises(ct.FileError, match=r"model.safetensors is a file; load takes the folder"):
        ct.load(folder / "model.safetensors", factory=converted)


def test_a_setting_that_the_factory_makes_otherwise_is_told(tmp_path):
    def encoder(norm_first=True):
        layer = nn.TransformerEncoderLayer(4, 2, 8, norm_first=norm_first)
        return ct.convert(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))

    ct.save(encoder(), tmp_path / "model", factory=encoder)
    with pytest.warns(UserWarning, match="has norm_first=False here and True there") as told:
        ct.save(encoder(False), tmp_path / "model", factory=encoder)
    assert told[0].filename == __file__
    ct.save(encoder(False), tmp_path / "model", factory=encoder, arguments={"norm_first": False})


def test_a_compressed_model_has_the_settings_of_its_factory(tmp_path):
    model = converted()
    ct.save(ct.compress(model, ct.PiecewiseConstant(2), steps=2), tmp_path, factory=converted)

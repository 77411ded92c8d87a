"""What saving does to a model: nothing."""

from torch import nn

import continua as ct


def test_saving_leaves_alone_what_a_factory_shares(tmp_path):
    block = ct.ODEBlock(nn.Linear(2, 2), ct.PiecewiseConstant(4), ct.Euler(steps=4))
    weight = block.field.weight

    def model_around_it():
        return nn.Sequential(block, nn.Linear(2, 1))

    ct.save(model_around_it(), tmp_path / "model", factory=model_around_it)
    assert block.field.weight is weight

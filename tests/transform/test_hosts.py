"""Whole models of many architectures: converted, cut, and plain again."""

import pytest
import torch
from torch import nn

import continua as ct
from transform.hosts import CASES, HOSTED, made, outputs

DECODERS = ["GPT-2", "Llama", "Qwen2", "Qwen3", "OPT", "Mistral"]


def halved(model: nn.Module) -> nn.Module:
    """Half the layers of each block."""
    choices = {}
    for name, part in model.named_modules():
        if isinstance(part, ct.ODEBlock):
            n = max(part.solver.steps // 2, 1)
            choices[name] = {"basis": ct.PiecewiseConstant(n), "steps": n}
    return ct.compress(model, per_block=choices)


def assert_same(found, expected, tolerance=1e-5):
    assert found
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_a_converted_model_computes_the_same_and_a_smaller_one_reverts(name):
    model, given = made(name)
    expected = outputs(model, given)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    converted = ct.convert(model)
    assert type(converted) is type(model) or isinstance(model, nn.Sequential)
    assert_same(outputs(converted, given), expected)
    plain = ct.revert(converted)
    assert plain.state_dict().keys() == before.keys()
    for key, value in plain.state_dict().items():
        assert torch.equal(value, before[key])
    assert_same(outputs(plain, given), expected)

    small = halved(converted)
    found = outputs(small, given)
    plain = ct.revert(small)
    assert {type(part) for part in plain.modules()} <= {type(part) for part in model.modules()}
    assert_same(outputs(plain, given), found)
    assert len(plain.state_dict()) < len(before)
    assert_same(outputs(model, given), expected, tolerance=0)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_generate_with_their_cache(name):
    model, given = made(name)
    start = torch.tensor([[5, 9, 3]])

    def generated(model):
        return model.generate(start, max_new_tokens=64, do_sample=False)

    converted = ct.convert(model)
    assert generated(model).shape == (1, 67)
    assert torch.equal(generated(converted), generated(model))
    small = ct.compress(converted, ct.PiecewiseConstant(2), steps=2)
    assert small.config.num_hidden_layers == 2
    assert converted.config.num_hidden_layers == 4
    assert len(small(**given).past_key_values.layers) == 2
    assert torch.equal(generated(small), generated(ct.revert(small)))


@pytest.mark.parametrize("name", HOSTED)
def test_a_smaller_model_is_loaded_by_its_own_library_and_by_continua(name, tmp_path):
    model, given = made(name)
    small = halved(ct.convert(model))
    expected = outputs(small, given)
    ct.revert(small).save_pretrained(tmp_path / "theirs")
    again = type(model).from_pretrained(tmp_path / "theirs").eval()
    assert_same(outputs(again, given), expected)
    ct.save(small, tmp_path / "ours")
    again = ct.load(tmp_path / "ours", factory=type(model))
    assert_same(outputs(again, given), expected, tolerance=0)


def test_a_refined_model_takes_parts_of_layers():
    model, _ = made("BERT")
    fine = ct.refine(ct.convert(model))
    assert fine.config.num_hidden_layers == len(fine.encoder.layer) == 8
    z = torch.randn(2, 5, 32)
    state = z
    for layer in fine.encoder.layer:
        state = layer(state)
    torch.testing.assert_close(state, fine.encoder.layer.block0(z), rtol=1e-4, atol=1e-5)
    with pytest.raises(ct.ArgumentError, match="parts of layers"):
        ct.revert(fine)


def test_a_converted_model_trains_as_the_original_does():
    model, given = made("BERT")
    converted = ct.convert(model)
    pair = [(m, torch.optim.SGD(m.parameters(), lr=0.1)) for m in (model, converted)]
    for checkpointing in (False, True):
        for one, optimizer in pair:
            if checkpointing:  # of the model's own
                one.train().activation_checkpointing_enable()
                for part in one.modules():
                    part.p = 0.0 if isinstance(part, nn.Dropout) else getattr(part, "p", None)
            optimizer.zero_grad()
            one(**given, use_cache=False).last_hidden_state.square().mean().backward()
            optimizer.step()
        grad = converted.encoder.layer.block0.field.layer.output.dense.weight.grad
        expected = torch.stack([layer.output.dense.weight.grad for layer in model.encoder.layer])
        torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-6)
    assert_same(outputs(converted.eval(), given), outputs(model.eval(), given))


@pytest.mark.parametrize("name", ["ViT", "T5", "GPT-2"])
def test_heal_and_fit_follow_the_states_of_blocks(name):
    model, given = made(name)
    converted = ct.convert(model)
    generator = torch.Generator().manual_seed(0)

    def batch():
        return {
            key: torch.randn(value.shape, generator=generator)
            if value.is_floating_point()
            else torch.randint(1, 2 if "mask" in key else 60, value.shape, generator=generator)
            for key, value in given.items()
        }

    batches = [batch() for _ in range(4)]
    small = ct.compress(converted, ct.PiecewiseConstant(2), steps=2)
    fitted = ct.compress(
        converted, ct.PiecewiseConstant(2), steps=2, method="fit", calibrate=batches
    )
    healed = ct.heal(small, converted, batches, steps=8, check_every=4, lr=1e-3)

    def error(other):
        pairs = zip(outputs(other, batches[1]), outputs(converted, batches[1]), strict=True)
        return sum(float((a - b).square().mean()) for a, b in pairs)

    assert error(fitted) < error(small)
    assert error(healed) < error(small)
    assert_same(outputs(ct.revert(healed), given), outputs(healed, given))


def test_units_that_end_in_an_activation_are_healed_and_not_fitted():
    model, given = made("ResNet")
    converted = ct.convert(model)
    choice = {"basis": ct.PiecewiseConstant(1), "steps": 1}
    with pytest.raises(ct.ModuleError, match=r"^method='fit' changes.*an activation.*then heal$"):
        ct.compress(converted, **choice, method="fit", calibrate=[given] * 2)
    batches = [{"pixel_values": torch.randn(8, 3, 32, 32)} for _ in range(4)]
    converted = ct.recalibrate(converted, batches)
    small = ct.compress(converted, **choice, calibrate=batches)
    healed = ct.heal(small, converted, batches, steps=12, check_every=6)
    (expected, *_), (before, *_), (after, *_) = (
        outputs(one, batches[1]) for one in (converted, small, healed)
    )
    assert (after - expected).square().mean() < (before - expected).square().mean()


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "ResNet", "Swin"])
def test_converted_models_compile_to_one_graph(name):
    model, given = made(name)
    converted = ct.convert(model)
    for one in (converted, halved(converted)):
        torch.compiler.reset()
        compiled = torch.compile(one, backend="eager", fullgraph=True)
        expected = outputs(one, given)
        assert_same(outputs(compiled, given), expected)
        assert_same(outputs(one, given), expected, tolerance=0)  # nothing is left behind
    torch.compiler.reset()


def test_a_compiled_model_trains_and_reads_its_weights_anew():
    model, given = made("BERT")
    converted = ct.convert(model)
    torch.compiler.reset()
    compiled = torch.compile(converted, backend="eager", fullgraph=True)
    for _ in range(2):
        for one in (converted, compiled):
            converted.zero_grad()
            one(**given, use_cache=False).last_hidden_state.square().mean().backward()
            grads = [p.grad.clone() for p in converted.parameters() if p.grad is not None]
            if one is converted:
                expected = grads
        assert_same(grads, expected)
        with torch.no_grad():
            for p in converted.parameters():
                p.mul_(0.9)
    torch.compiler.reset()


def test_solvers_that_are_no_layers_are_refused():
    converted = ct.convert(made("BERT")[0])
    with pytest.raises(ct.ArgumentError, match=r"one by one.*not of RK4"):
        ct.compress(converted, solver=ct.RK4(steps=2))


def test_a_shared_layer_that_is_called_many_times_is_named():
    from transform.hosts import WIDE, WORDS, of

    model = of("AlbertModel", **WIDE, **WORDS, num_hidden_layers=4, embedding_size=16)
    with pytest.raises(ct.ModuleError, match="AlbertModel has no two like layers in a row"):
        ct.convert(model)

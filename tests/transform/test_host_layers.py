"""What a model hands to its layers and takes from them: states, attention, caches, indices."""

import functools

import pytest
import torch
from torch import nn

import continua as ct
from transform.hosts import HOSTED, IMAGE, WIDE, WORDS, made, of, tensors
from transform.test_hosts import assert_same, halved

#: models that give no attention weights, or only if they are made otherwise
WITHOUT_ATTENTION = ["ConvNeXt", "ResNet", "Mamba", "BigBird", "ModernBERT", "DINOv2"]


def called(model: nn.Module, given, **wanted):
    with torch.no_grad():
        return model(**given, **wanted)


@pytest.mark.parametrize("name", HOSTED)
def test_hidden_states_and_attention_weights_are_the_same(name):
    model, given = made(name)
    wanted = {"output_hidden_states": True}
    if name not in WITHOUT_ATTENTION:
        model.set_attn_implementation("eager")
        wanted["output_attentions"] = True
    fresh = called(ct.convert(model), given, **wanted)
    expected = called(model, given, **wanted)
    hooked = called(ct.convert(model), given, **wanted)  # with the hooks that transformers set
    given_out = [key for key in expected if list(tensors(expected[key]))]
    keys = [key for key in given_out if "hidden_states" in key or "attentions" in key]
    assert any("hidden_states" in key for key in keys)
    assert any("attentions" in key for key in keys) == ("output_attentions" in wanted)
    for key in keys:
        assert_same(list(tensors(fresh[key])), list(tensors(expected[key])))
        assert_same(list(tensors(hooked[key])), list(tensors(expected[key])))


def test_a_smaller_model_gives_a_state_and_attention_weights_per_step():
    model, given = made("BERT")
    model.set_attn_implementation("eager")
    small = ct.compress(ct.convert(model), ct.PiecewiseConstant(2), steps=2)
    found = called(small, given, output_hidden_states=True, output_attentions=True)
    assert (len(found.hidden_states), len(found.attentions)) == (3, 2)
    assert_same([found.hidden_states[-1]], [found.last_hidden_state])


@pytest.mark.parametrize("name", ["Llama", "Whisper encoder"])
def test_a_cache_of_the_larger_model_is_refused(name):
    model, given = made(name)
    converted = ct.convert(model)
    cache = called(converted, given).past_key_values
    small = halved(converted)
    with pytest.raises(ct.ArgumentError, match=r"the cache has \d layers and the model [12]: "):
        called(small, given, past_key_values=cache)
    again = called(small, given).past_key_values
    called(small, given, past_key_values=again)


def test_layers_behind_a_cut_run_move_up():
    model, given = made("Gemma3")
    converted = ct.convert(model)
    assert [(run.start, run.stop) for run in ct.stacks(model) if not run.reason] == [(0, 5), (6, 8)]
    small = halved(converted)
    types = ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"]
    assert (small.config.num_hidden_layers, small.config.layer_types) == (4, types)
    plain = ct.revert(small)
    for one in (small, plain):
        assert [layer.self_attn.layer_idx for layer in one.model.layers] == [0, 1, 2, 3]
        assert len(called(one, given).past_key_values.layers) == 4
    start = torch.tensor([[5, 9, 3]])
    tokens = [m.generate(start, max_new_tokens=16, do_sample=False) for m in (small, plain)]
    assert torch.equal(*tokens)
    # A block that has run knows that it has moved when another one is cut in its place.
    block = converted.model.layers.block0
    called(converted, given)
    stacks = ct.compress(block, ct.PiecewiseConstant(2), steps=2)
    block.rebase(
        {n: (b, stacks.field.get_parameter(n)) for n, b in stacks.expansion.bases.items()},
        ct.Euler(steps=2),
    )
    assert [layer.self_attn.layer_idx for layer in converted.model.layers] == [0, 1, 2, 3, 4]
    called(converted, given)


def test_layers_that_recur_in_groups():
    model, _ = made("ModernBERT")
    first, run = ct.stacks(model)
    assert "differ at 'attn_norm'" in first.reason
    assert str(run).startswith("layers[1-6]: ModernBertEncoderLayer in groups of 3")
    small = halved(ct.convert(model))
    assert len(small.layers) == small.config.num_hidden_layers == 4


def test_the_states_of_a_backbone_follow():
    model, given = made("DINOv2")
    small = halved(ct.convert(model))
    assert model.config.out_indices == [1, 3, 4]
    assert (small.config.out_indices, small.stage_names) == ([1, 2], ["stem", "stage1", "stage2"])
    assert len(called(small, given).feature_maps) == 2


def test_identities_in_the_place_of_dropout_are_dropout_of_rate_0():
    model, _ = made("BEiT")
    (run,) = ct.stacks(model)
    assert (run.start, run.stop) == (0, 4)
    rates = [layer.drop_path.drop_prob for layer in ct.convert(model).layers]
    assert rates[0] == 0.0
    assert rates == sorted(rates)
    assert rates[3] == pytest.approx(0.1)


def test_a_config_that_cannot_follow_is_named_when_the_model_is_plain():
    model = of(
        "GPTNeoModel", hidden_size=32, num_layers=4, num_heads=4, window_size=4, **WORDS,
        bos_token_id=1, eos_token_id=2,
        attention_types=[[["global", "local"], 2]],
    )  # fmt: skip
    small = ct.compress(ct.convert(model), ct.PiecewiseConstant(1), steps=1)
    with pytest.warns(UserWarning, match=r"config of GPTNeoModel does not say how many layers"):
        assert len(ct.revert(small).h) == 2


def test_a_model_that_counts_its_layers_itself_is_told_so():
    model = of("XLMModel", emb_dim=32, n_layers=4, n_heads=4, vocab_size=64)
    given = {"input_ids": torch.ones(1, 3, dtype=torch.long)}
    converted = ct.convert(model.eval())
    assert_same([called(converted, given)[0]], [called(model, given)[0]])
    with pytest.warns(
        UserWarning, match=r"an entry in 'layer_norm1', 'layer_norm2' for each layer"
    ):
        small = ct.compress(converted, ct.PiecewiseConstant(2), steps=2)
    with pytest.raises(IndexError, match="layer 2 is asked for, and there are 2"):
        called(small, given)


def test_a_class_with_arguments_of_its_own_is_handed_over_as_a_partial(tmp_path):
    kind = functools.partial(type(made("BERT")[0]), add_pooling_layer=False)
    model = kind(made("BERT")[0].config).eval()
    converted = ct.convert(model)
    ct.save(converted, tmp_path)
    with pytest.raises(ct.FileError, match=r"lacks 'pooler\.dense"):
        ct.load(tmp_path, factory=type(model))
    again = ct.load(tmp_path, factory=kind)
    given = made("BERT")[1]
    assert_same([called(again, given)[0]], [called(model, given)[0]])


def test_two_models_in_one():
    model = of(
        "CLIPModel", text_config={**WIDE, **WORDS, "num_hidden_layers": 4},
        vision_config={**WIDE, **IMAGE, "num_hidden_layers": 6}, projection_dim=16,
    )  # fmt: skip
    small = halved(ct.convert(model))
    assert small.config.text_config.num_hidden_layers == 2
    assert small.config.vision_config.num_hidden_layers == 3
    part = ct.convert(model, only="vision*")
    assert [name for name, m in part.named_modules() if isinstance(m, ct.ODEBlock)] == [
        "vision_model.encoder.layers.block0"
    ]

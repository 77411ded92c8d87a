"""Small models of many architectures, with random weights, and what they are called with."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from continua.models import resnet

transformers = pytest.importorskip("transformers", reason="needs the extra `transformers`")

WIDE = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
WORDS = {"vocab_size": 64, "max_position_embeddings": 128}
LLAMA = {**WIDE, **WORDS, "num_hidden_layers": 4, "num_key_value_heads": 2}
IMAGE = {"image_size": 16, "patch_size": 4, "num_channels": 3}


def words(**more: Any) -> dict[str, Any]:
    ids = torch.arange(20).view(2, 10) % 60 + 1
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, 7:] = 0
    return {"input_ids": ids, "attention_mask": mask, **more}


def image(size: int = 16) -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, size, size, generator=_generator())}


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def _t5() -> dict[str, Any]:
    return {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 5, "num_heads": 4}


def _wav2vec2() -> dict[str, Any]:
    convolutions = {"conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
    convolutions |= {"num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16}
    return {**WIDE, **convolutions, "num_hidden_layers": 4, "num_conv_pos_embedding_groups": 4}


def _whisper() -> dict[str, Any]:
    sizes = {"d_model": 32, "encoder_layers": 4, "decoder_layers": 3, "vocab_size": 64}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48}
    sizes |= {"decoder_ffn_dim": 48, "num_mel_bins": 8, "max_source_positions": 16}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return sizes | special


class Torch(nn.Module):
    """An encoder or a decoder of torch, with a mask."""

    def __init__(self, kind: str):
        super().__init__()
        layer = getattr(nn, f"Transformer{kind}Layer")(32, 4, 48, batch_first=True)
        more = {"enable_nested_tensor": False} if kind == "Encoder" else {}
        self.stack = getattr(nn, f"Transformer{kind}")(layer, 4, nn.LayerNorm(32), **more)
        for parameter in self.parameters():
            nn.init.normal_(parameter, 0.1, 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        if isinstance(self.stack, nn.TransformerDecoder):
            return self.stack(x, 0.5 * x, tgt_mask=mask)
        return self.stack(x, mask=mask, is_causal=True)


class Both(nn.Module):
    """The encoder and the decoder of torch together."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Transformer(32, 4, 3, 3, 48, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x, 0.5 * x)


def states() -> dict[str, Any]:
    return {"x": torch.randn(2, 6, 32, generator=_generator())}


def of(name: str, **config: Any) -> nn.Module:
    """A model of `transformers` by the name of its class."""
    kind = getattr(transformers, name)
    return kind(kind.config_class(**config))


def decoder(name: str, **config: Any) -> Callable[[], nn.Module]:
    special = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    return lambda: of(name, **special, **config)


def bert_like(name: str, **config: Any) -> Callable[[], nn.Module]:
    return lambda: of(name, **WIDE, **WORDS, num_hidden_layers=4, **config)


Case = tuple[Callable[[], nn.Module], Callable[[], dict[str, Any]]]
CASES: dict[str, Case] = {
    "BERT": (bert_like("BertModel"), words),
    "DistilBERT": (
        lambda: of("DistilBertModel", dim=32, n_heads=4, hidden_dim=48, n_layers=4, **WORDS),
        words,
    ),
    "RoBERTa": (bert_like("RobertaModel"), words),
    "GPT-2": (
        decoder("GPT2LMHeadModel", n_embd=32, n_head=4, n_layer=4, vocab_size=64, n_positions=128),
        words,
    ),
    "Llama": (decoder("LlamaForCausalLM", **LLAMA), words),
    "Qwen2": (decoder("Qwen2ForCausalLM", **LLAMA), words),
    "Qwen3": (decoder("Qwen3ForCausalLM", **LLAMA, head_dim=8), words),
    "ViT": (lambda: of("ViTModel", **WIDE, **IMAGE, num_hidden_layers=4), image),
    "DeiT": (lambda: of("DeiTModel", **WIDE, **IMAGE, num_hidden_layers=4), image),
    "Swin": (
        lambda: of(
            "SwinModel", embed_dim=8, depths=[2, 4], num_heads=[2, 2], window_size=2, patch_size=4,
            image_size=32,
        ),
        lambda: image(32),
    ),
    "ConvNeXt": (
        lambda: of("ConvNextModel", hidden_sizes=[8, 16], depths=[2, 4], num_stages=2),
        lambda: image(32),
    ),
    "ResNet": (
        lambda: of(
            "ResNetModel", embedding_size=8, hidden_sizes=[8, 16], depths=[3, 5],
            layer_type="basic",
        ),
        lambda: image(32),
    ),
    "ResNet of continua": (
        lambda: resnet(units=4, width=4, stages=2),
        lambda: {"input": image()["pixel_values"]},
    ),
    "Whisper encoder": (
        lambda: of("WhisperModel", **_whisper()),
        lambda: {
            "input_features": torch.randn(2, 8, 32, generator=_generator()),
            "decoder_input_ids": words()["input_ids"],
        },
    ),
    "T5": (
        lambda: of("T5Model", **_t5()),
        lambda: words(decoder_input_ids=words()["input_ids"]),
    ),
    "TransformerEncoder": (lambda: Torch("Encoder"), states),
    "TransformerDecoder": (lambda: Torch("Decoder"), states),
    # Beyond the architectures that were built for.
    "MPNet": (bert_like("MPNetModel"), words),
    "ELECTRA": (bert_like("ElectraModel", embedding_size=16), words),
    "BigBird": (bert_like("BigBirdModel", attention_type="original_full"), words),
    "Longformer": (bert_like("LongformerModel", attention_window=4), words),
    "ModernBERT": (
        lambda: of(
            "ModernBertModel", **WIDE, **WORDS, num_hidden_layers=7, local_attention=4,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
        ),
        words,
    ),
    "OPT": (
        decoder(
            "OPTForCausalLM", hidden_size=32, num_attention_heads=4, ffn_dim=48,
            num_hidden_layers=4, word_embed_proj_dim=32, **WORDS,
        ),
        words,
    ),
    "Mistral": (decoder("MistralForCausalLM", **LLAMA), words),
    "Gemma3": (
        decoder(
            "Gemma3ForCausalLM", **{**LLAMA, "num_hidden_layers": 8}, head_dim=8, sliding_window=4
        ),
        words,
    ),
    "Mamba": (
        decoder(
            "MambaForCausalLM", hidden_size=32, num_hidden_layers=4, vocab_size=64, state_size=4
        ),
        lambda: {"input_ids": words()["input_ids"]},
    ),
    "DINOv2": (
        lambda: of(
            "Dinov2Backbone", hidden_size=32, num_attention_heads=4, num_hidden_layers=4,
            mlp_ratio=2, out_indices=[1, 3, 4], **IMAGE,
        ),
        image,
    ),
    "BEiT": (lambda: of("BeitModel", **WIDE, **IMAGE, num_hidden_layers=4), image),
    "CLIP vision": (
        lambda: of("CLIPVisionModel", **WIDE, **IMAGE, num_hidden_layers=4),
        image,
    ),
    "wav2vec2": (
        lambda: of("Wav2Vec2Model", **_wav2vec2()),
        lambda: {"input_values": torch.randn(2, 400, generator=_generator())},
    ),
    "nn.Transformer": (Both, states),
}  # fmt: skip

#: those of transformers
HOSTED = [name for name in CASES if "Transformer" not in name and "continua" not in name]


def made(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model in evaluation mode, its layers far apart, and what it is called with."""
    torch.manual_seed(0)
    model = CASES[name][0]().eval()
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if value.is_floating_point() and "num_batches" not in key:
                value.add_(0.02 * torch.rand_like(value))
    return model, CASES[name][1]()


def outputs(model: nn.Module, given: dict[str, Any]) -> list[torch.Tensor]:
    """All tensors that a model returns, caches left out."""
    with torch.no_grad():
        out = model(**given)
    if isinstance(out, torch.Tensor):
        return [out]
    found = [out[key] for key in out if key not in ("past_key_values", "cache_params")]
    return list(tensors(found))


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists and tuples, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors(one)

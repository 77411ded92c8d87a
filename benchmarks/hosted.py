"""Time and memory of `convert` on a whole model, and inference of the converted model.

A BERT of 12 layers and the sizes of BERT-base with random weights, from its config alone; nothing
is downloaded. Inference is interleaved, call by call, in process time on one thread, and the
fastest call of each counts: on a busy machine the others measure the machine. Needs the extra
`transformers`.

    OMP_NUM_THREADS=1 python benchmarks/hosted.py [--rounds 40] [--layers 12] [--length 32]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from datetime import date

import torch
import transformers

import continua as ct

GOAL_SECONDS, GOAL_MEMORY, GOAL_RATIO = 2.0, 1.1, 1.03


def bert(layers: int) -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=layers)
    return transformers.BertModel(config).eval()


def peak() -> int:
    """The largest memory this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def converting(layers: int) -> None:
    """Print the seconds of `convert(copy=False)`, and by how much the peak of memory rises.

    The seconds are of the process, as those of inference.
    """
    model = bert(layers)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    before = peak()
    started = time.process_time()
    ct.convert(model, copy=False)
    seconds = time.process_time() - started
    print(seconds, 1 + (peak() - before) / size)


@torch.inference_mode()
def inference(layers: int, length: int, rounds: int) -> None:
    model = bert(layers)
    made = {"original": model, "converted": ct.convert(model)}
    for batch in (1, 16):
        ids = torch.randint(1, 1000, (batch, length))
        best = dict.fromkeys(made, float("inf"))
        for i in range(max(rounds // batch, 6)):
            order = list(made) if i % 2 else list(made)[::-1]
            for name in order:
                started = time.process_time()
                made[name](input_ids=ids)
                best[name] = min(best[name], time.process_time() - started)
        ratio = best["converted"] / best["original"]
        print(
            f"batch {batch:>2}, {length} tokens: original {1000 * best['original']:.1f} ms, "
            f"converted {1000 * best['converted']:.1f} ms, ratio {ratio:.3f} (goal {GOAL_RATIO})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--alone", action="store_true", help="what a process of its own does")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.alone:
        converting(options.layers)
        return
    print(f"{date.today()}, torch {torch.__version__}, transformers {transformers.__version__}")
    command = [sys.executable, __file__, "--alone", "--layers", str(options.layers)]
    found = []
    for _ in range(3):
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        found.append([float(word) for word in done.stdout.split()])
    seconds, memory = (min(values) for values in zip(*found, strict=True))
    print(
        f"convert(copy=False): {seconds:.2f} s (goal {GOAL_SECONDS:g}), peak memory {memory:.3f} "
        f"times the weights (goal {GOAL_MEMORY})"
    )
    inference(options.layers, options.length, options.rounds)


if __name__ == "__main__":
    main()

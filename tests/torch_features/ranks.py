"""What two processes do together; started by test_processes.py."""

import copy
import os
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import continua as ct
from continua.train import average_statistics
from torch_features.device import DEVICE, KINDS, inputs, made


def solve(block, x):
    """Runs in a spawned worker."""
    with torch.no_grad():
        return block(x)


def main(rank: int, port: int, folder: str) -> None:
    warnings.simplefilter("ignore")  # of torch about its own code, which is not tested here
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=2)
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    found = {"statistics": statistics(rank), "sharded": {}, "said": said(folder)}
    for kind in KINDS:
        found["sharded"][repr(kind)] = sharded(kind)
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def statistics(rank: int) -> dict:
    """Batch-norm statistics of a forward with half of a batch each, before and after averaging."""
    block, x = made(KINDS[0], norm=True), inputs(8)
    block(x[4 * rank : 4 * rank + 4])
    before = {name: b.clone() for name, b in block.named_buffers()}
    average_statistics(block)
    return {"before": before, "after": dict(block.named_buffers())}


def sharded(kind) -> str:
    """A training step of a sharded model against the same model in one piece."""
    whole = nn.Sequential(nn.Linear(3, 3, dtype=torch.float64).to(DEVICE), made(kind))
    model, x = copy.deepcopy(whole), inputs()
    mesh = init_device_mesh(DEVICE, (2,))
    fully_shard(model[1], mesh=mesh)
    fully_shard(model, mesh=mesh)
    pair = [(m, torch.optim.SGD(m.parameters(), lr=0.1)) for m in (model, whole)]
    for each, optimizer in pair:
        each(x).square().mean().backward()
        optimizer.step()
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    for name, value in whole.state_dict().items():
        if not torch.allclose(full[name].to(value), value, rtol=1e-6, atol=1e-8):
            return f"{name} differs"
    return "same"


def said(folder: str) -> dict[str, str]:
    """What is said to uses of a model in shards."""
    mesh = init_device_mesh(DEVICE, (2,))
    block = made(KINDS[0])
    fully_shard(block.field[0], mesh=mesh)
    model = made(KINDS[0])
    fully_shard(model, mesh=mesh)
    calls = {
        "child": lambda: block(inputs()),
        "refine": lambda: ct.refine(model),
        "compress": lambda: ct.compress(model, steps=1),
        "save": lambda: ct.save(model, folder, nn.Linear, {"in_features": 1, "out_features": 1}),
        "unroll": lambda: ct.unroll(model),
    }
    return {name: sentence(call) for name, call in calls.items()}


def sentence(call) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"

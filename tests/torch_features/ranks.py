"""What two processes do together; started by test_processes.py."""

import copy
import os
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

import continua as ct
from continua.train import average_statistics
from torch_features.device import DEVICE, KINDS, inputs, made

#: parts of a model that are sharded: the block, or parts of its field
PARTS = (("1", ""), ("1.field.0", "1.field.2", ""), ("1.field.0", "1.field"))


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
    found = {"statistics": statistics(rank), "sharded": {}, "said": said()}
    found["gathered"] = gathered(folder)
    for kind in KINDS:
        for parts in PARTS:
            found["sharded"][repr(kind), parts] = sharded(kind, parts)
    found["apart"] = apart(rank, folder)
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


def sharded(kind, parts) -> str:
    """Training steps of a model with sharded parts against the same model in one piece."""
    torch.manual_seed(3)
    whole = nn.Sequential(nn.Linear(3, 3, dtype=torch.float64).to(DEVICE), made(kind))
    model, x = copy.deepcopy(whole), inputs()
    mesh = init_device_mesh(DEVICE, (2,))
    for part in parts:
        fully_shard(model.get_submodule(part), mesh=mesh)
    pair = [(m, torch.optim.SGD(m.parameters(), lr=0.1)) for m in (model, whole)]
    for each, optimizer in pair:
        for _ in range(2):
            optimizer.zero_grad()
            each(x).square().mean().backward()
            optimizer.step()
    with torch.no_grad():
        for _ in range(2):  # the second repeats what the first has read
            if not torch.allclose(model.eval()(x), whole.eval()(x), rtol=1e-6, atol=1e-8):
                return "an evaluation differs"
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    for name, value in whole.state_dict().items():
        if not torch.allclose(full[name].to(value), value, rtol=1e-6, atol=1e-8):
            return f"{name} differs"
    return "same"


def said() -> dict[str, str]:
    """What is said to uses of a model in shards."""
    mesh = init_device_mesh(DEVICE, (2,))
    block = made(KINDS[0])
    fully_shard(block.field[0], mesh=mesh)
    model = made(KINDS[0])
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = {"child": lambda: block.at(0.5), "refine": lambda: ct.refine(model, optimizer)}
    return {name: sentence(call) for name, call in calls.items()}


class Net(nn.Module):
    """A block between layers, of which the last is tied to the first."""

    def __init__(self):
        super().__init__()
        self.first, self.block = nn.Linear(3, 3).double(), made(KINDS[0], ct.PiecewiseConstant(4))
        self.last = nn.Linear(3, 3).double()
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.block(self.first(x)))


def gathered(folder: str) -> dict[str, bool]:
    """Whether verbs make of a model in shards what they make of it in one piece."""
    torch.manual_seed(2)
    one, x = ct.build(Net).to(DEVICE), inputs()
    model = copy.deepcopy(one)
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))  # a hook of one's own stays
    mesh = init_device_mesh(DEVICE, (2,))
    for part in (model.block.field[0], model.block, model):
        fully_shard(part, mesh=mesh)
    model(x).sum().backward()  # as in the middle of a training
    verbs = {
        "refine": ct.refine,
        "compress": lambda m: ct.compress(m, ct.PiecewiseConstant(2)),
        "fit": lambda m: ct.compress(
            m, ct.PiecewiseConstant(2), method="fit", calibrate=[x, 2 * x]
        ),
        "unroll": lambda m: ct.unroll(m.eval()),
    }
    found = {}
    for name, verb in verbs.items():
        made_of = verb(model)
        plain = type(made_of).__mro__[1].__name__ != "FSDPModule"
        found[name] = plain and torch.equal(made_of(x), verb(one)(x))
    found["hook"] = len(calls) > 1
    for name, each in {"one": one, "shards": model, "refined": ct.refine(model)}.items():
        if name != "one" or dist.get_rank() == 0:
            ct.save(each, Path(folder, name))
    dist.barrier()
    same = [Path(folder, name, "model.safetensors").read_bytes() for name in ("one", "shards")]
    found["save"] = same[0] == same[1]
    found["load"] = torch.equal(
        ct.load(Path(folder, "refined"), factory=Net)(x.cpu()), ct.refine(one).eval().cpu()(x.cpu())
    )
    found["still works"] = torch.equal(model(x), one(x))
    return found


def apart(rank: int, folder: str) -> str:
    """A model in shards on the second process alone."""
    mesh = DeviceMesh(DEVICE, [1])
    model, place = ct.build(nn.Linear, in_features=3, out_features=2), Path(folder, "apart")
    if rank == 0:
        model.weight = nn.Parameter(distribute_tensor(model.weight, mesh))
        return sentence(lambda: ct.save(model, place))
    expected = copy.deepcopy(model)
    fully_shard(model, mesh=mesh)
    ct.save(model, place)
    return str(torch.equal(ct.load(place).weight, expected.weight))


def sentence(call) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"

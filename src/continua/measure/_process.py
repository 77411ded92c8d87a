"""The peak memory of a process that runs nothing but one forward and backward."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from continua._errors import ArgumentError, ContinuaError
from continua.files import load, read_json, save, write_json

Loss = Callable[[Any], Tensor]

REQUEST, INPUTS, MODEL = "request.json", "inputs.safetensors", "model"
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
START = "import sys; from continua.measure._process import answer; answer(sys.argv[1])"

# Large tensors get pages of their own, which are freed at once: the peak is then that of tensors,
# not of what an allocator keeps in reserve.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}


def scalar(out: Any, loss: Loss | None) -> Tensor:
    """The number to differentiate."""
    if loss is None:
        if not isinstance(out, Tensor):
            raise ArgumentError(
                f"the model returns a {type(out).__name__}, not a tensor; give a loss that makes "
                "a number of it"
            )
        value = out.sum()
    else:
        value = loss(out)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ArgumentError(f"a loss gives one number as a tensor, not {value!r}")
    if not value.requires_grad:
        raise ArgumentError(
            "there is nothing to differentiate: neither a parameter nor an input that the output "
            "depends on requires a gradient"
        )
    return value


def process_peak(model: nn.Module, inputs: Sequence[Any], loss: Loss | None) -> int:
    """By how much one forward and backward raises the peak of a new process, in bytes.

    It reads the model from files, since a fork starts with the memory of its parent.
    """
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if len(tensors) < len(inputs):
        raise ArgumentError("confirm=True takes inputs that are tensors; give those alone")
    request = {
        "training": [name for name, m in model.named_modules() if m.training],
        "frozen": [name for name, p in model.named_parameters() if not p.requires_grad],
        "differentiated": [x.requires_grad for x in tensors],
        "device": str(next((t.device for t in (*model.parameters(), *tensors)), "cpu")),
        "loss": None,
    }
    if loss is not None:
        module, name = getattr(loss, "__module__", None), getattr(loss, "__qualname__", "")
        request["loss"] = _importable(f"{module}:{name}", "loss")
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        try:
            save(model, folder / MODEL)
        except ArgumentError as error:
            raise ArgumentError(f"confirm=True hands the model on as files: {error}") from error
        saved = read_json(folder / MODEL / "config.json")
        request["factory"] = _importable(saved["factory"]["name"], "factory")
        save_file({str(i): x.detach().contiguous() for i, x in enumerate(tensors)}, folder / INPUTS)
        write_json(folder / REQUEST, request)
        command = [sys.executable, "-c", START, place]
        env = os.environ | ALLOCATOR | {"PYTHONPATH": paths}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ContinuaError(
            f"the process that was to confirm the peak ended with code {done.returncode}: "
            f"{lines[-1]}"
        )
    return int(done.stdout.split()[-1])  # the import of the model may print, too


def _importable(name: str, what: str) -> str:
    """The name of a function, as in `module:name`, if another process can import it."""
    module, _, function = name.partition(":")
    if module in ("None", "?", "__main__") or not function.isidentifier():
        raise ArgumentError(
            f"confirm=True needs a {what} that another process can import, not {name!r}; "
            "move it to the top level of a module"
        )
    return name


def answer(folder: str) -> None:
    """Run in the new process: read the request in a folder, and print the bytes."""
    torch.set_num_threads(1)
    request = read_json(Path(folder) / REQUEST)
    device = request["device"]
    # The parent process wrote the request, and chose what is named in it.
    model = load(Path(folder) / MODEL, device, factory=pkgutil.resolve_name(request["factory"]))
    for name, module in model.named_modules():
        module.training = name in request["training"]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in request["frozen"])
    tensors = load_file(Path(folder) / INPUTS, device)
    inputs = [tensors[str(i)].requires_grad_(d) for i, d in enumerate(request["differentiated"])]
    loss = request["loss"] and pkgutil.resolve_name(request["loss"])

    def run() -> None:
        torch.autograd.backward(scalar(model(*inputs), loss))
        for t in (*model.parameters(), *inputs):
            t.grad = None

    run()  # loads what is loaded on first use
    sys.stdout.write("\n" + str(_gpu_rise(run) if device.startswith("cuda") else _cpu_rise(run)))


def _cpu_rise(run: Callable[[], None]) -> int:
    """By how much a call raises the peak memory of this process."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # a C library of another make
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):  # then the peak so far is what counts
        RESET.write_text("5")
    before = _peak()
    run()
    return _peak() - before


def _gpu_rise(run: Callable[[], None]) -> int:
    """By how much a call raises the peak memory of the GPU."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _peak() -> int:
    """The peak memory of this process, in bytes."""
    if STATUS.exists():  # getrusage remembers the parent's peak through fork and exec
        lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        return 1024 * int(lines["VmHWM"].split()[0])
    try:
        import resource
    except ImportError:
        raise ContinuaError("this system does not report the peak memory of a process") from None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak

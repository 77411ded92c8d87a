"""Two processes train together and agree on every turn."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch


def together(folder: Path) -> list[dict]:
    """What both processes found."""
    here = Path(__file__)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(here.parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(here.parent / "pair.py"), str(folder), str(rank)],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=90)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this torch cannot train on several processes",
)
def test_two_processes(tmp_path):
    first, second = together(tmp_path)
    # Both end with the same model, whether the run was stopped or not.
    assert first["weights"] == second["weights"]
    assert first["weights"][0] == first["weights"][1]
    assert first["last"][0] == first["last"][1]
    # One Ctrl-C in one of them stops both, after the same batch.
    assert "stopped in epoch 2 of 3" in first["stopped"]
    assert first["stopped"] == second["stopped"]
    # What happens once happens in the first.
    assert first["counts"]["evaluate"] == 6
    assert first["counts"]["write"] > 6
    assert second["counts"] == {"evaluate": 0, "write": 0, "watch": 0}
    stopped, whole = first["metrics"]
    assert stopped == whole
    assert [line["functions"] for line in whole] == [1, 2, 1]
    # The measures are over the samples of both: 32 of 36 in four batches of eight.
    assert all((line["train"]["accuracy"] * 32) % 1 == 0 for line in whole)
    assert any((line["train"]["accuracy"] * 16) % 1 for line in whole)

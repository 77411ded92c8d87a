"""One of two processes that train together; started by test_processes.py."""

import hashlib
import json
import sys
from pathlib import Path

import torch

from continua.train import Checkpoints, Interrupted, _loop, fit
from train.subjects import Small, course, metrics, small, task


def main(folder: Path, rank: int) -> None:
    counts = {"evaluate": 0, "write": 0, "watch": 0}

    def counted(name, function):
        def wrapped(*arguments, **options):
            counts[name] += 1
            return function(*arguments, **options)

        return wrapped

    _loop.evaluate = counted("evaluate", _loop.evaluate)
    Checkpoints.write = counted("write", Checkpoints.write)
    training = course(epochs=3, refine_epochs=(1,), project_epochs=(2,), clip=1.0)

    def stop(now):
        counts["watch"] += 1
        if counts["watch"] == 7:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)  # in the first process only

    try:
        fit(small, task(), training, folder / "run", device="cpu", watch=stop)
        stopped = None
    except Interrupted as error:
        stopped = str(error)
    outcome = fit(small, task(), training, folder / "run", device="cpu", watch=stop)
    whole = fit(small, task(), training, folder / "whole", device="cpu")
    torch.distributed.barrier()
    found = {
        "counts": counts,
        "stopped": stopped,
        "weights": [weights(outcome.model), weights(whole.model)],
        "last": [weights(Checkpoints(folder / name).last()) for name in ("run", "whole")],
        "metrics": [metrics(folder / name) for name in ("run", "whole")],
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


def weights(model) -> str:
    import continua as ct

    model = ct.load(model, factory=Small) if isinstance(model, Path) else model
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

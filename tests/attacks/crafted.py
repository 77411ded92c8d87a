"""Files as an attacker writes them: whole, with the right checksums, and hostile."""

import hashlib
import json
from pathlib import Path

from safetensors.torch import save as save_tensors
from torch import Tensor


def craft(folder: Path, factory: dict, tensors: dict[str, Tensor] | None = None, **config) -> Path:
    """A folder with a config of the attacker's choice, and weights that match it."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = save_tensors(tensors or {})
    (folder / "model.safetensors").write_bytes(weights)
    digest = hashlib.sha256(weights).hexdigest()
    whole = {"format": 1, "factory": factory, "blocks": {}} | config
    whole.setdefault("weights", {"bytes": len(weights), "sha256": digest})
    (folder / "config.json").write_text(json.dumps(whole))
    return folder


def with_tensors(folder: Path, tensors: dict[str, Tensor]) -> Path:
    """A saved model with other weights, and the checksum of those."""
    config = json.loads((folder / "config.json").read_text())
    weights = save_tensors(tensors)
    config["weights"] |= {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()}
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def with_checksums(checkpoint: Path) -> None:
    """A checkpoint that was changed by someone who knows about checksums."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(checkpoint.iterdir())
        if path.name != "SHA256SUMS"
    ]
    (checkpoint / "SHA256SUMS").write_text("".join(lines))

"""Models on a hub: a repository is a saved folder with a model card."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from continua._errors import ArgumentError, FileError, first_line
from continua.transform import Choice, Elastic

from ._card import Table, card, sizes_section
from ._disk import parse_json, read_bytes
from ._extras import import_extra
from ._factory import Factory
from ._load import load
from ._save import CONFIG, WEIGHTS, model_files

CARD = "README.md"
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp")


def push_to_hub(
    model: nn.Module,
    repo: str,
    *,
    front: Table | None = None,
    measure: str = "value",
    figure: str | os.PathLike[str] | None = None,
    task: str | None = None,
    base_model: str | None = None,
    license: str | None = None,
    factory: Factory | None = None,
    arguments: Mapping[str, Any] | None = None,
    private: bool | None = None,
    token: str | None = None,
    endpoint: str | None = None,
) -> str:
    """Upload a model to a repository of the Hugging Face hub, with a model card.

    The repository holds what `save` writes, and a `README.md` with the metadata of the hub, how to
    load the model, and its sizes. All sizes of an `Elastic` are one repository. The files are one
    commit. A repository that exists gets the new files in the place of the old ones.

    Needs the extra `hub`.

    Args:
        model: what `save` takes.
        repo: as in `"me/my-net"`; it is made if it does not exist.
        front: what `sweep` gave, a table in the card.
        measure: what its values are, such as `"accuracy, %"`.
        figure: an image file for the card, such as one of `continua.plot.sweep`.
        task: as the hub calls it, such as `"image-classification"`.
        base_model: the repository of the model that this one was made from.
        license: as the hub calls it, such as `"apache-2.0"`.
        factory: see `save`.
        arguments: see `save`.
        private: whether a new repository is private; None for the default of the account.
        token: of the account; None for the one that `hf auth login` stored.
        endpoint: the address of another hub.

    Returns:
        The address of the repository.

    Example:
        >>> import continua as ct
        >>> front = ct.sweep(elastic, accuracy, x=images)  # doctest: +SKIP
        >>> ct.push_to_hub(  # doctest: +SKIP
        ...     elastic, "me/my-net", front=front, license="apache-2.0"
        ... )
    """
    hub = _hub(repo)
    image = _image(figure)
    metadata = hub.ModelCardData(
        license=license,
        base_model=base_model,
        pipeline_tag=task,
        library_name="continua",
        tags=["continua"],
    ).to_yaml()
    facts = {"Task": task, "Base model": base_model, "Licence": license}
    if isinstance(model, Elastic):
        facts["Sizes"] = f"{', '.join(map(repr, model.sizes))}, all in one file"
    files = model_files(model, factory, arguments)
    name = parse_json(files[CONFIG], CONFIG)["factory"]["name"]
    text = card(model, repo, name, metadata, facts)
    if front is not None:
        text += sizes_section(front, measure)
    text += "".join(f"\n![{measure} of the sizes]({name})\n" for name in image)
    files |= {CARD: text.encode(), **image}
    operations = [hub.CommitOperationAdd(name, content) for name, content in files.items()]
    api = hub.HfApi(endpoint=endpoint, token=token)
    try:
        url = api.create_repo(repo, private=private, exist_ok=True)
        api.create_commit(repo, operations, commit_message="Upload a model of continua")
    except Exception as error:  # of the hub, of the network, or on metadata that it refuses
        raise FileError(f"{repo} cannot be uploaded: {first_line(error)}") from error
    return str(url)


def from_pretrained(
    repo_or_folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    *,
    size: Choice | None = None,
    factory: Factory | None = None,
    trust: Sequence[str] = (),
    allow_nan: bool = False,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
) -> nn.Module:
    """The model in a folder or in a repository of the Hugging Face hub, in evaluation mode.

    Of a repository, `config.json` and `model.safetensors` are downloaded, once, and loaded as
    `load` does: nothing in them decides which code runs.

    Args:
        repo_or_folder: a folder, or a repository such as `"me/my-net"`, for which the extra `hub`
            is needed. A folder that exists is preferred.
        device: where to put the model.
        size: of an `Elastic`, as a plain model; None for what was saved.
        factory: see `load`. For a converted model of `transformers` this is its class.
        trust: see `load`.
        allow_nan: whether weights may be NaN.
        revision: a branch, a tag or a commit; a commit is always the same model.
        token: for a private repository; None for the one that `hf auth login` stored.
        endpoint: the address of another hub.

    Example:
        >>> import continua as ct
        >>> ct.from_pretrained("me/my-net", size=4)  # doctest: +SKIP
    """
    folder = name = os.fspath(repo_or_folder)
    if not os.path.isdir(folder):
        hub = _hub(name)
        api = hub.HfApi(endpoint=endpoint, token=token)
        try:
            files = [CONFIG, WEIGHTS]
            folder = api.snapshot_download(name, revision=revision, allow_patterns=files)
        except Exception as error:  # of the hub or of the network
            raise FileError(
                f"{name} is no folder, and cannot be downloaded: {first_line(error)}"
            ) from error
    return load(folder, device, size=size, factory=factory, trust=trust, allow_nan=allow_nan)


def _hub(repo: str) -> Any:
    """The package of the hub, if `repo` can be the name of a repository."""
    hub = import_extra("huggingface_hub", f"{repo!r} is on a hub", "hub")
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except ValueError as error:
        raise ArgumentError(
            f"{repo!r} is neither a folder nor the name of a repository, such as 'me/my-net'"
        ) from error
    return hub


def _image(figure: str | os.PathLike[str] | None) -> dict[str, bytes]:
    """The name and the content of an image."""
    if figure is None:
        return {}
    path = Path(figure)
    if path.suffix.lower() not in IMAGES:
        raise ArgumentError(f"figure is an image, {', '.join(IMAGES)}, not {path.name!r}")
    return {f"figure{path.suffix.lower()}": read_bytes(path)}

"""Data that can be indexed: DataLoaders, torch datasets, Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, IterableDataset, Subset, default_collate

from continua._errors import ArgumentError, ShapeError
from continua.data import Dataset

from ._task import Classification, PartName, Tally, Task, classification_loss

#: what a column of targets is called
TARGETS = ("labels", "label", "targets", "target", "y")
#: the share of the training part that stands in for a part that is not given
HELD_OUT = 0.1


class Samples(Task):
    """A loss on samples of any data that can be indexed.

    A sample is a pair (input, target), or a dictionary with a target called label, labels, target,
    targets or y; a single other entry is what the model is called with, several are its keyword
    arguments. Targets that are whole numbers are classes, for the cross-entropy; others are
    values, for the mean square error.

    Of a DataLoader, `dataset` and `collate_fn` are used: the order is that of the training, so
    that a run can go on where it stopped, and so is the batch size. A part that is not given is a
    tenth of the training part, always the same one.

    Args:
        train: a DataLoader, or anything with a length whose items are samples.
        validation: the same.
        test: the same.

    Example:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> data = TensorDataset(torch.randn(100, 4), torch.randint(3, (100,)))
        >>> task = Samples(DataLoader(data, batch_size=8))
        >>> task.size("train"), task.size("validation"), task.size("test"), task.measure
        (80, 10, 10, 'accuracy')
    """

    def __init__(self, train: Any, validation: Any = None, test: Any = None):
        parts = {"train": train, "validation": validation, "test": test}
        self.parts = {name: _open(part, name) for name, part in parts.items() if part is not None}
        first = self._samples("train", [0])
        self.names: list[str] | None = None
        if isinstance(first, Mapping):
            target = next((name for name in TARGETS if name in first), None)
            if target is None:
                raise ArgumentError(
                    f"a sample has {', '.join(map(repr, first))}, of which none is a target; "
                    f"call one {', '.join(TARGETS)}"
                )
            self.names = [*(name for name in first if name != target), target]
        elif not isinstance(first, Sequence) or len(first) != 2:
            raise ArgumentError(
                f"a sample is a pair (input, target) or a dictionary, not {type(first).__name__}"
            )
        *_, targets = self._tensors(first)
        self.classes = not (targets.is_floating_point() or targets.is_complex())
        self.measure = "accuracy" if self.classes else "error"
        self.higher = self.classes
        self._split()

    def _split(self) -> None:
        """Take parts that are not given from the training part."""
        data, collate = self.parts["train"]
        missing = [name for name in ("validation", "test") if name not in self.parts]
        if len(data) <= len(missing):
            raise ArgumentError(
                f"the training part has {len(data)} samples, too few to take the "
                f"{' and '.join(missing)} part from; give those too"
            )
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist()
        size = max(int(HELD_OUT * len(data)), 1)
        for name in missing:
            taken, order = order[:size], order[size:]
            self.parts[name] = (Subset(data, taken), collate)
        if len(order) < len(data):
            self.parts["train"] = (Subset(data, sorted(order)), collate)

    def size(self, part: PartName) -> int:
        return len(self.parts[part][0])

    def shorten(self, samples: int | None, held_out: int | None) -> None:
        """Keep the first samples only, of the training part and of the other two."""
        for name, most in (("train", samples), ("validation", held_out), ("test", held_out)):
            data, collate = self.parts[name]
            if most is not None and most < len(data):
                self.parts[name] = (Subset(data, range(most)), collate)

    def batch(
        self, part: PartName, index: Tensor, generator: torch.Generator | None
    ) -> Sequence[Tensor]:
        return self._tensors(self._samples(part, index.tolist()))

    def inputs(self, batch: Sequence[Tensor]) -> Any:
        if self.names is None or len(self.names) == 2:
            return batch[0]
        return dict(zip(self.names[:-1], batch[:-1], strict=True))

    def loss(self, model: nn.Module, batch: Sequence[Tensor]) -> tuple[Tensor, Tally]:
        inputs, targets = self.inputs(batch), batch[-1]
        outputs = model(**inputs) if isinstance(inputs, dict) else model(inputs)
        outputs = getattr(outputs, "logits", outputs)
        if not self.classes:
            if outputs.shape != targets.shape:
                raise ShapeError(
                    f"the model gives {list(outputs.shape)} for targets {list(targets.shape)}"
                )
            loss, tally = mse_loss(outputs, targets), Tally()
            for name in ("error", "loss"):
                tally.add(name, float(loss.detach()) * len(targets), len(targets))
            return loss, tally
        if outputs.shape[:-1] != targets.shape:
            raise ShapeError(
                f"the model gives {list(outputs.shape)} for targets {list(targets.shape)}; it must "
                "give one score per class and target"
            )
        return classification_loss(outputs, targets.long())

    def _samples(self, part: str, index: Sequence[int]) -> Any:
        data, collate = self.parts[part]
        try:
            return collate([data[i] for i in index])
        except TypeError as error:
            raise ArgumentError(
                f"samples of the {part} part cannot be put in a batch: {error}; of a Hugging Face "
                "dataset take .with_format('torch') and the columns that the model needs"
            ) from error

    def _tensors(self, batch: Any) -> list[Tensor]:
        tensors = list(batch) if self.names is None else [batch[name] for name in self.names]
        for value in tensors:
            if not isinstance(value, Tensor):
                raise ArgumentError(f"a batch is made of tensors, not {type(value).__name__}")
        return tensors


def task_of(data: Any) -> Task:
    """The task for some data: a `Task` itself, a `Dataset`, or a mapping of parts to samples.

    Args:
        data: where it is a mapping, it has train and perhaps validation and test, each a
            DataLoader or anything with a length whose items are samples, as a Hugging Face
            `DatasetDict` has them.
    """
    if isinstance(data, Task):
        return data
    if isinstance(data, Dataset):
        return Classification(data)
    if isinstance(data, Mapping):
        known = {"train", "validation", "test"}
        if "train" not in data or data.keys() - known:
            raise ArgumentError(
                f"data has the parts train, validation and test, not {', '.join(map(str, data))}"
            )
        return Samples(**data)
    raise ArgumentError(
        "data is a continua.data.Dataset, a continua.train.Task, or a mapping such as "
        f"{{'train': loader, 'test': loader}}, not {type(data).__name__}"
    )


Collate = Callable[[list[Any]], Any]


def _open(part: Any, name: str) -> tuple[Any, Collate]:
    """The samples of a part, and the function that makes a batch of them."""
    collate: Collate = default_collate
    if isinstance(part, DataLoader):
        part, collate = part.dataset, part.collate_fn
    if isinstance(part, IterableDataset) or not hasattr(part, "__getitem__"):
        raise ArgumentError(
            f"the {name} part can only be read from its beginning; a run that goes on where it "
            "stopped needs samples by number: give a list of them"
        )
    if len(part) == 0:
        raise ArgumentError(f"the {name} part is empty")
    return part, collate

"""Data: readers of the official layouts, downloads, generated sets and augmentation."""

from ._augment import augmented, flip, pad_crop
from ._dataset import Dataset, Part
from ._digits import Split, digits
from ._load import Entry, catalogue, load
from ._source import Source
from ._sources import DATASETS
from ._treebank import treebank
from ._video import Store, VideoDataset

__all__ = [
    "Dataset",
    "Part",
    "load",
    "treebank",
    "DATASETS",
    "Source",
    "catalogue",
    "Entry",
    "augmented",
    "flip",
    "pad_crop",
    "Split",
    "digits",
    "Store",
    "VideoDataset",
]

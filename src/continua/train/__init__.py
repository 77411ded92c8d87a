"""Training: one loop, its schedules and its checkpoints."""

from ._checkpoint import Checkpoints, Position, load_checkpoint
from ._config import Training
from ._evaluate import evaluate
from ._files import LOCK, held_alone, make_folder
from ._history import METRICS, read_history
from ._loop import Interrupted, fit
from ._outcome import Outcome
from ._process import average_statistics
from ._progress import Progress, Watch, silent, told_left
from ._random import seed
from ._samples import Samples, task_of
from ._size import functions, half_bases
from ._task import Augment, Classification, PartName, Tally, Task
from ._tracker import TrackerName
from ._video import VideoPrediction

__all__ = [
    "LOCK",
    "METRICS",
    "Augment",
    "Checkpoints",
    "Classification",
    "Interrupted",
    "Outcome",
    "PartName",
    "Position",
    "Progress",
    "Samples",
    "Tally",
    "Task",
    "TrackerName",
    "Training",
    "VideoPrediction",
    "Watch",
    "average_statistics",
    "evaluate",
    "fit",
    "functions",
    "half_bases",
    "held_alone",
    "load_checkpoint",
    "make_folder",
    "read_history",
    "seed",
    "silent",
    "task_of",
    "told_left",
]

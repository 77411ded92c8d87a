"""Training: one loop, its schedules and its checkpoints."""

from ._checkpoint import Checkpoints, Position, load_checkpoint
from ._config import Training
from ._evaluate import evaluate
from ._files import LOCK, held_alone, make_folder
from ._history import METRICS, Outcome, read_history
from ._loop import Interrupted, fit
from ._process import average_statistics
from ._progress import Progress, Watch, format_time_left, silent
from ._random import seed
from ._samples import Samples, task_of
from ._size import functions, half_bases
from ._task import Augment, Classification, PartName, Tally, Task
from ._tracker import TrackerName
from ._video import VideoPrediction

__all__ = [
    "Training", "fit", "Outcome", "Interrupted", "evaluate", "seed", "average_statistics",
    "Task", "Classification", "Samples", "VideoPrediction", "Tally", "Augment", "PartName",
    "task_of", "functions", "half_bases",
    "Progress", "Watch", "silent", "format_time_left", "TrackerName",
    "Checkpoints", "Position", "load_checkpoint", "read_history", "METRICS",
    "LOCK", "held_alone", "make_folder",
]  # fmt: skip

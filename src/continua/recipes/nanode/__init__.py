"""Time Dependence in Non-Autonomous Neural ODEs (Davis et al. 2020): one file per table."""

from . import _crossing, _memory, _rows, _table1, _video

RECIPES = (*_video.RECIPES, *_rows.RECIPES)

STUDIES = (
    *_memory.STUDIES,
    *_video.STUDIES,
    *_crossing.STUDIES,
    *_table1.STUDIES,
)

__all__ = ["RECIPES", "STUDIES"]

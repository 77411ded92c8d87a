"""Time Dependence in Non-Autonomous Neural ODEs (Davis et al. 2020): one file per table."""

from . import (
    _compress,
    _crossing,
    _figures,
    _memory,
    _polynomials,
    _rows,
    _table1,
    _video,
)

RECIPES = (*_video.RECIPES, *_rows.RECIPES, *_polynomials.RECIPES)

STUDIES = (
    *_memory.STUDIES,
    *_video.STUDIES,
    *_crossing.STUDIES,
    *_table1.STUDIES,
    *_figures.STUDIES,
    *_compress.STUDIES,
    *_polynomials.STUDIES,
)

__all__ = ["RECIPES", "STUDIES"]

"""Time Dependence in Non-Autonomous Neural ODEs (Davis et al. 2020): one file per table."""

from . import _memory, _video

RECIPES = (*_video.RECIPES,)

STUDIES = (*_memory.STUDIES, *_video.STUDIES)

__all__ = ["RECIPES", "STUDIES"]

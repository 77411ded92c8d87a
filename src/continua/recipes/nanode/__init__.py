"""Time Dependence in Non-Autonomous Neural ODEs (Davis et al. 2020): one file per table."""

from . import _memory

STUDIES = (*_memory.STUDIES,)

__all__ = ["STUDIES"]

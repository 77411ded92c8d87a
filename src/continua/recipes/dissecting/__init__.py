"""Dissecting Neural ODEs (Massaroli et al. 2020): one file per figure."""

from . import (
    _adaptive,
    _annuli,
    _density,
    _flows,
    _functional,
    _galerkin,
    _reflection,
    _table1,
    _tracking,
)

RECIPES = _table1.RECIPES

STUDIES = (
    *_reflection.STUDIES,
    *_adaptive.STUDIES,
    *_tracking.STUDIES,
    *_annuli.STUDIES,
    *_flows.STUDIES,
    *_table1.STUDIES,
    *_galerkin.STUDIES,
    *_density.STUDIES,
    *_functional.STUDIES,
)

__all__ = ["RECIPES", "STUDIES"]

"""Dissecting Neural ODEs (Massaroli et al. 2020): one file per figure."""

from . import _adaptive, _annuli, _flows, _reflection, _table1, _tracking

RECIPES = _table1.RECIPES

STUDIES = (
    *_reflection.STUDIES,
    *_adaptive.STUDIES,
    *_tracking.STUDIES,
    *_annuli.STUDIES,
    *_flows.STUDIES,
    *_table1.STUDIES,
)

__all__ = ["RECIPES", "STUDIES"]

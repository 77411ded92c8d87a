"""Dissecting Neural ODEs (Massaroli et al. 2020): one file per figure."""

from . import _adaptive, _annuli, _flows, _reflection, _tracking

STUDIES = (
    *_reflection.STUDIES,
    *_adaptive.STUDIES,
    *_tracking.STUDIES,
    *_annuli.STUDIES,
    *_flows.STUDIES,
)

__all__ = ["STUDIES"]

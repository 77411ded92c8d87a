"""Stateful ODE-Nets (Queiruga et al. 2021): one file per table or figure."""

from . import _compression, _integrators, _norms, _tagging
from ._images import cifar10, cifar10_resnet, cifar100, digits, mnist
from ._sentences import TAGGERS
from ._toy import circles

RECIPES = (
    digits, mnist, cifar10, cifar10_resnet, cifar100, circles, *TAGGERS,
    _integrators.small, _norms.small,
)  # fmt: skip

STUDIES = (
    *_compression.STUDIES, *_integrators.STUDIES, *_norms.STUDIES, *_tagging.STUDIES,
)  # fmt: skip

__all__ = ["RECIPES", "STUDIES"]

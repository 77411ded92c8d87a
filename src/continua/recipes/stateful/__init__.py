"""Stateful ODE-Nets (Queiruga et al. 2021): one file per table or figure."""

from ._images import cifar10, cifar10_resnet, cifar100, digits, mnist
from ._sentences import TAGGERS
from ._toy import circles

RECIPES = (digits, mnist, cifar10, cifar10_resnet, cifar100, circles, *TAGGERS)

__all__ = ["RECIPES"]

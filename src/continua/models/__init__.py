"""Networks with ODE blocks inside."""

from ._image import Activation, Stitch, continuous_net

__all__ = ["Activation", "Stitch", "continuous_net"]

"""Numbers in words, and the exit code of success."""

from __future__ import annotations

DONE = 0
#: something was measured and found wrong
FAILED = 1


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.2f} %"


def clock(seconds: float) -> str:
    """A duration in words."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"

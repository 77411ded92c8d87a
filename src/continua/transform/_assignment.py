"""The assignment problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def assignment(cost: NDArray[np.float64]) -> NDArray[np.int64]:
    r"""The column of each row in the cheapest one-to-one assignment of rows to columns.

    .. math:: \min_\pi \sum_i c_{i\,\pi(i)}

    Shortest augmenting paths (Jonker and Volgenant 1987): the columns have prices, and a row that
    is not assigned yet displaces others along the path that costs least. The work is
    :math:`O(n^3)`, one row of the matrix at a time.

    Args:
        cost: `[n, n]`, finite.

    Example:
        >>> assignment(np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]]))
        array([1, 0, 2])
    """
    n = len(cost)
    price = cost.min(0)
    row_of, column_of = np.full(n, -1), np.full(n, -1)
    for j, i in enumerate(cost.argmin(0)):  # each column to its cheapest row, if that is free
        if column_of[i] < 0:
            row_of[j], column_of[i] = i, j
    for free in np.flatnonzero(column_of < 0):
        distance = np.full(n, np.inf)
        before = np.full(n, free)  # the row from which the path comes to a column
        open_ = np.ones(n, dtype=bool)
        i, reach = free, 0.0
        while True:
            j = column_of[i]
            own = cost[i, j] - price[j] if j >= 0 else 0.0
            through = reach + cost[i] - price - own
            shorter = open_ & (through < distance)
            distance[shorter], before[shorter] = through[shorter], i
            j = int(np.where(open_, distance, np.inf).argmin())
            reach = distance[j]
            if row_of[j] < 0:
                break
            open_[j] = False
            i = row_of[j]
        closed = ~open_
        price[closed] += distance[closed] - reach
        while True:  # back along the path
            i = before[j]
            row_of[j] = i
            column_of[i], j = j, column_of[i]
            if i == free:
                break
    return column_of

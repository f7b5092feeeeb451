"""Looking addresses up in sorted columns."""

from __future__ import annotations

import numpy as np

from gdbext.heap.model import U64


def rows_of(address: U64, wanted: U64) -> "np.typing.NDArray[np.int64]":
    """Return for each wanted address its row in the sorted ``address``, or -1."""
    if not len(address):
        return np.full(len(wanted), -1, np.int64)
    rows = np.searchsorted(address, wanted)
    rows[rows == len(address)] = 0
    return np.where(address[rows] == wanted, rows, -1).astype(np.int64)

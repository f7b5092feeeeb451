"""Blocks by what they are called in pictures: their type, or, where it is not known, their size."""

from __future__ import annotations

from typing import Optional

import numpy as np

from gdbext.analysis.types.model import BlockTypes
from gdbext.heap.model import U32, U64
from gdbext.memory.intervals import I64
from gdbext.wording import grouped

_LARGEST = np.uint64(1 << 40)


def kinds_of(size: U64, code: Optional[U32]) -> I64:
    """Return a number for what each block is called: the position of its type, or below 0 its size.

    :param code: of :class:`BlockTypes`, of these blocks; None where types are not known.
    """
    sizes = -1 - np.minimum(size, _LARGEST).astype(np.int64)
    return sizes if code is None else np.where(code == 0, sizes, code.astype(np.int64))


def kind_name(kind: int, types: Optional[BlockTypes]) -> str:
    """Return what blocks of a number are called."""
    if kind < 0 or types is None:
        return f"{grouped(-1 - kind)} bytes"
    return types.types[kind].name


def folded_name(name: str) -> str:
    """Return a name as one frame of a folded stack."""
    return name.replace(";", ",").replace("\n", " ")

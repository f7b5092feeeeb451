"""Of each leaked type one block, with what keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.analysis.leaks.groups import LEAK_ROOT, group_leaks
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.path import leaked_paths
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.types.kinds import kinds_of
from gdbext.analysis.types.model import BlockTypes
from gdbext.report import Kind, column

_MOST = 12


@dataclass(frozen=True)
class LeakExample:
    """Why one leaked block is: the pointers that lead to it from the leak root that keeps it.

    :param type: of the blocks that it is an example of; None: not known.
    :param block: the example.
    :type block: address
    :param kept_by: what keeps it, in words.
    :param steps: each pointer in words, the leak root's first; none where nothing points at it.
    :type steps: texts
    """

    type: Optional[str] = column("type")
    block: int = column("for example", Kind.ADDRESS)
    kept_by: str = column("kept by")
    steps: Sequence[str] = column("pointers", Kind.OBJECT)


def leak_examples(reach: Reach, places: Places, types: Optional[BlockTypes]) -> Iterator[LeakExample]:
    """Iterate over an example of each of the leaked types, or sizes, that have most bytes.

    One that another leaked block points at is preferred: it says more than a leak root does.
    """
    groups = group_leaks(reach)
    rows = groups.rows[np.argsort(groups.role == LEAK_ROOT, kind="stable")]
    kinds, first, kind = np.unique(
        kinds_of(reach.size[rows], None if types is None else types.code[rows]), return_index=True, return_inverse=True
    )
    cost = np.bincount(kind, reach.size[rows], len(kinds))
    chosen = rows[first[np.argsort(-cost, kind="stable")[:_MOST]]].tolist()
    for row, (kept_by, steps) in zip(chosen, leaked_paths(reach, places, chosen)):
        yield LeakExample(places.block_type(row), int(reach.address[row]), kept_by, tuple(steps))

"""Leaked blocks in folded form, for flame graph tools: the type of the leak root, then that of what it keeps."""

from __future__ import annotations

from typing import Iterator, Optional

import numpy as np

from gdbext.analysis.leaks.groups import NO_LEADER, group_leaks
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.types.kinds import folded_name, kind_name, kinds_of
from gdbext.analysis.types.model import BlockTypes

_SEVERAL = "several leak roots"


def fold_leaks(reach: Reach, types: Optional[BlockTypes]) -> Iterator[str]:
    """Iterate over lines "leaked;type of the leak root;type bytes", most bytes first; of a leak root alone one name.

    :param types: None where they are not known: sizes are in their place.
    """
    groups = group_leaks(reach)
    size = reach.size[groups.rows]
    code = kinds_of(size, None if types is None else types.code[groups.rows])
    places = np.arange(len(groups))
    above = np.where(groups.leader == NO_LEADER, 0, groups.leader)
    several, alone = groups.leader == NO_LEADER, groups.leader == places
    kinds, kind = np.unique(code, return_inverse=True)
    first = np.where(several, len(kinds), kind[above] if len(kind) else kind)
    key = (first * (len(kinds) + 1) + np.where(alone, len(kinds), kind)).astype(np.int64)
    keys, at = np.unique(key, return_inverse=True)
    sums = np.bincount(at, size, len(keys)).astype(np.int64)
    names = [folded_name(kind_name(one, types)) for one in kinds.tolist()]
    for chosen in np.argsort(-sums, kind="stable").tolist():
        root, kept = divmod(int(keys[chosen]), len(kinds) + 1)
        path = ["leaked", names[root] if root < len(kinds) else _SEVERAL, *names[kept : kept + 1]]
        yield f"{';'.join(path)} {sums[chosen]}\n"

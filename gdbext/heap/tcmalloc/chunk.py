"""The memory that tcmalloc hands out for its own structures: 8 MiB at once, the last of them in part.

From gperftools' ``src/common.cc`` (``MetaDataAlloc``), the same from 2.7 to 2.18: a pointer to what is left and how
much that is, side by side.
"""

from __future__ import annotations

from typing import Iterator, List, Sequence, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.reading import mapped_ranges
from gdbext.memory.bulk import words_at
from gdbext.memory.intervals import Coverage, columns
from gdbext.process import Module
from gdbext.target import Target

_CHUNK = 8 << 20  # kMetadataAllocChunkSize
_PAGE = 4096
Piece = Tuple[int, int]


def find_chunk(target: Target, module: Module, known: Sequence[Piece], spans: Coverage) -> List[Piece]:
    """Return start and end of the last 8 MiB as a list of one; of none where they are not found.

    :param known: start and end of structures, some of which lie there.
    :param spans: where none does.
    """
    found = {end for end in _ends(target, module) if any(end - _CHUNK <= low and high <= end for low, high in known)}
    pieces = columns((end - _CHUNK, end) for end in sorted(found))
    sound = mapped_ranges(target.index).holds_whole(*pieces) & (spans.below(pieces[0]) == spans.below(pieces[1]))
    return list(zip(*(column[sound][:1].tolist() for column in pieces)))


def _ends(target: Target, module: Module) -> Iterator[int]:
    """Iterate over where such memory may end: a pointer and what is left there, in either order."""
    for region in target.index.within(module.base, module.end):
        if not (region.readable and region.writable):
            continue
        try:
            words = words_at(target.memory, target.abi, region.start, region.size // 8)
        except FaultError:
            continue
        for left, room in ((words[:-1], words[1:]), (words[1:], words[:-1])):
            fits = (room > 0) & (room < _CHUNK) & (left > _CHUNK) & ((left + room) % np.uint64(_PAGE) == 0)
            yield from (left + room)[fits].tolist()

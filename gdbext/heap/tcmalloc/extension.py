"""The block that tcmalloc keeps for itself: the ``MallocExtension`` that its own one replaces at start, for ever.

From gperftools' ``src/malloc_extension.cc`` (``InitModule``), at 2.8.1 and 2.10; 2.16 has it in static memory.
"""

from __future__ import annotations

from typing import Iterator, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.freelists import PROGRAM
from gdbext.heap.tcmalloc.model import Tcmalloc
from gdbext.memory.bulk import gather_words

_SIZE = 8  # it has a pointer to its virtual functions, and nothing else
_NAME = "15MallocExtension"


def for_each_extension(heap: Tcmalloc) -> Iterator[Tuple[int, int]]:
    """Iterate over start and end of such blocks."""
    address, size = heap.objects.columns
    used = address[(size == _SIZE) & (heap.objects.held == PROGRAM)]
    words, known = gather_words(heap.target.memory, heap.target.abi, used)
    module = heap.location.module
    inside = known & (words >= np.uint64(module.base)) & (words < np.uint64(module.end))
    for at in np.flatnonzero(inside).tolist():
        if _is_extension(heap, int(words[at])):
            yield int(used[at]), int(used[at]) + _SIZE


def _is_extension(heap: Tcmalloc, functions: int) -> bool:
    """Whether a table of virtual functions is ``MallocExtension``'s: by the name of its type information before it."""
    reader = heap.target.reader
    try:
        return reader.find_string(reader.word(reader.word(functions - 8) + 8), len(_NAME) + 1) == _NAME
    except FaultError:
        return False

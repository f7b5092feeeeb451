"""The few loops that dominate, over raw memory and numpy arrays only.

``reference`` (chunks of malloc), ``chains`` (linked chains), ``columns`` and ``pointers`` define each in Python and
numpy. ``native`` has the same functions from the library in ``native/``, where it is built; callers import from here
and do not know which one runs. ``GDBEXT_KERNELS`` chooses: ``reference``, or ``native``, which is the default.
"""

from __future__ import annotations

import os

from gdbext.kernels import chains, columns, pointers, reference
from gdbext.kernels.chains import (
    MOST_NODES,
    OUTSIDE,
    Chains,
    LinkRules,
    Span,
    close_cycles,
    decode_links,
    gather_scalars,
    walk_chain,
)
from gdbext.kernels.columns import SKIPPED, ChunkRun
from gdbext.kernels.native import find_library
from gdbext.kernels.pointers import MAYBE_REACHED, NOT_REACHED, REACHED, BlockIndex, Hits, PointerRules
from gdbext.kernels.reference import ChunkRules, find_chunk, words_of

VARIABLE = "GDBEXT_KERNELS"

if os.environ.get(VARIABLE) == "reference":
    NATIVE, WHY = None, f"{VARIABLE} asks for it"
else:
    NATIVE, WHY = find_library()

IN_USE = "reference" if NATIVE is None else "native"

if NATIVE is None:
    walk_chunks, read_chunks, walk_chains = reference.walk_chunks, columns.read_chunks, chains.walk_chains
    rows_of, count_values = columns.rows_of, columns.count_values
    slab_regions, page_census = columns.slab_regions, columns.page_census
    scan_pointers, mark_blocks = pointers.scan_pointers, pointers.mark_blocks
else:
    walk_chunks, read_chunks, walk_chains = NATIVE.walk_chunks, NATIVE.read_chunks, NATIVE.walk_chains
    rows_of, count_values = NATIVE.rows_of, NATIVE.count_values
    slab_regions, page_census = NATIVE.slab_regions, NATIVE.page_census
    scan_pointers, mark_blocks = NATIVE.scan_pointers, NATIVE.mark_blocks

__all__ = [
    "IN_USE",
    "MAYBE_REACHED",
    "MOST_NODES",
    "NOT_REACHED",
    "OUTSIDE",
    "REACHED",
    "SKIPPED",
    "WHY",
    "BlockIndex",
    "Chains",
    "ChunkRules",
    "ChunkRun",
    "Hits",
    "LinkRules",
    "PointerRules",
    "Span",
    "close_cycles",
    "count_values",
    "decode_links",
    "find_chunk",
    "gather_scalars",
    "mark_blocks",
    "page_census",
    "read_chunks",
    "rows_of",
    "scan_pointers",
    "slab_regions",
    "walk_chain",
    "walk_chains",
    "walk_chunks",
    "words_of",
]

"""The few loops that dominate, over raw memory and numpy arrays only.

``reference`` (chunks of malloc), ``chains`` (linked chains), ``columns``, ``pointers``, ``graph`` and ``dominators``
define each in Python and numpy. ``native`` has the same functions from the library in ``native/``, where it is built;
callers import from here and do not know which one runs. ``GDBEXT_KERNELS`` chooses: ``reference``, or ``native``,
which is the default.
"""

from __future__ import annotations

import os
from typing import Callable, Optional, Sequence

from gdbext.kernels import chains, columns, dominators, graph, pointers, reference, tally
from gdbext.kernels.chains import (
    MOST_NODES,
    OUTSIDE,
    Chains,
    LinkRules,
    Span,
    Spans,
    close_cycles,
    decode_links,
    walk_chain,
)
from gdbext.kernels.columns import SKIPPED, ChunkRun
from gdbext.kernels.dominators import SUPER
from gdbext.kernels.graph import NONE, ROOT, Edges, TooManyEdges, Tree
from gdbext.kernels.native import DAMAGED, find_library
from gdbext.kernels.native_graph import NativeGraphs
from gdbext.kernels.pointers import (
    MAYBE_REACHED,
    MOST_HEADERS,
    NOT_REACHED,
    REACHED,
    BlockIndex,
    Hits,
    PointerRules,
    follow_words,
    reveal,
)
from gdbext.kernels.reference import ChunkRules, find_chunk, words_of
from gdbext.kernels.tally import MOST_TALLIED, SAMPLED, SOUND, Tally, sampled

VARIABLE = "GDBEXT_KERNELS"

if os.environ.get(VARIABLE) == "reference":
    NATIVE, WHY = None, f"{VARIABLE} asks for it"
else:
    NATIVE, WHY = find_library()

IN_USE = "reference" if NATIVE is None else "native"
_remarks = [f"the library of native kernels {WHY}; the slower reference kernels run"] if WHY.startswith(DAMAGED) else []


def take_remark() -> Optional[str]:
    """Return what the user is to know of the kernels, once; None where there is nothing to say."""
    return _remarks.pop() if _remarks else None


if NATIVE is None:
    walk_chunks, read_chunks, walk_chains = reference.walk_chunks, columns.read_chunks, chains.walk_chains
    rows_of, count_values = columns.rows_of, columns.count_values
    slab_regions, page_census = columns.slab_regions, columns.page_census
    tally_chains, gather_scalars = tally.tally_chains, chains.gather_scalars
    hold_spans: Callable[[Sequence[Span], str], Spans] = Spans
    scan_pointers, mark_blocks, find_blocks = pointers.scan_pointers, pointers.mark_blocks, pointers.find_blocks
    block_edges, find_components, breadth_first = graph.block_edges, graph.find_components, graph.breadth_first
    find_dominators, sum_up_tree = dominators.find_dominators, dominators.sum_up_tree
else:
    walk_chunks, read_chunks, walk_chains = NATIVE.walk_chunks, NATIVE.read_chunks, NATIVE.walk_chains
    rows_of, count_values = NATIVE.rows_of, NATIVE.count_values
    slab_regions, page_census = NATIVE.slab_regions, NATIVE.page_census
    tally_chains, gather_scalars, hold_spans = NATIVE.tally_chains, NATIVE.gather_scalars, NATIVE.hold_spans
    scan_pointers, mark_blocks, find_blocks = NATIVE.scan_pointers, NATIVE.mark_blocks, NATIVE.find_blocks
    GRAPHS = NativeGraphs(NATIVE)
    block_edges, find_components, breadth_first = GRAPHS.block_edges, GRAPHS.find_components, GRAPHS.breadth_first
    find_dominators, sum_up_tree = GRAPHS.find_dominators, GRAPHS.sum_up_tree

__all__ = [
    "IN_USE",
    "MAYBE_REACHED",
    "MOST_HEADERS",
    "MOST_NODES",
    "MOST_TALLIED",
    "NONE",
    "NOT_REACHED",
    "OUTSIDE",
    "REACHED",
    "SAMPLED",
    "ROOT",
    "SKIPPED",
    "SOUND",
    "SUPER",
    "WHY",
    "BlockIndex",
    "Chains",
    "ChunkRules",
    "ChunkRun",
    "Edges",
    "Hits",
    "LinkRules",
    "PointerRules",
    "Span",
    "Spans",
    "Tally",
    "TooManyEdges",
    "Tree",
    "block_edges",
    "breadth_first",
    "close_cycles",
    "count_values",
    "decode_links",
    "find_blocks",
    "find_chunk",
    "find_components",
    "find_dominators",
    "follow_words",
    "gather_scalars",
    "hold_spans",
    "mark_blocks",
    "page_census",
    "read_chunks",
    "reveal",
    "rows_of",
    "sampled",
    "scan_pointers",
    "slab_regions",
    "tally_chains",
    "sum_up_tree",
    "take_remark",
    "walk_chain",
    "walk_chains",
    "walk_chunks",
    "words_of",
]

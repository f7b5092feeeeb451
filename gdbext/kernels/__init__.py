"""The few loops that dominate, over raw memory and numpy arrays only.

``reference`` (chunks of malloc) and ``chains`` (linked chains) hold each in Python and numpy. A native version of
the same functions may stand beside them; callers import from here and do not know which one runs.
"""

from __future__ import annotations

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
    walk_chains,
)
from gdbext.kernels.reference import ChunkRules, find_chunk, walk_chunks, words_of

IN_USE = "reference"

__all__ = [
    "IN_USE",
    "MOST_NODES",
    "OUTSIDE",
    "Chains",
    "ChunkRules",
    "LinkRules",
    "Span",
    "close_cycles",
    "decode_links",
    "find_chunk",
    "gather_scalars",
    "walk_chain",
    "walk_chains",
    "walk_chunks",
    "words_of",
]

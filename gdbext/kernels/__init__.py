"""The few loops that dominate, over raw memory and numpy arrays only.

``reference`` holds each in Python and numpy. A native version of the same functions may stand beside
it; callers import from here and do not know which one runs.
"""

from __future__ import annotations

from gdbext.kernels.reference import ChunkRules, find_chunk, walk_chunks, words_of

IN_USE = "reference"

__all__ = ["IN_USE", "ChunkRules", "find_chunk", "walk_chunks", "words_of"]

"""Small heaps of any blocks, with reachability, types and edges as a test wants them."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from gdbext.abi import X86_64
from gdbext.analysis.blocks.livefacts import Live, count_references
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.mark import live_blocks, read_reach
from gdbext.analysis.reach.model import Marked, RootHits, Roots, RootWord
from gdbext.analysis.types.model import BlockTypes, TypeName
from gdbext.debuginfo import NoDebugInfo
from gdbext.heap.model import Arena, Blocks, Heap, State
from gdbext.kernels import Edges, Hits, PointerRules
from gdbext.memory.fake import FakeMemory
from gdbext.progress import SILENT
from gdbext.report import ThreadRef
from gdbext.target import Target

NO_ARENA = 0xFFFFFFFF
TYPES = ("unknown", "Session", "struct item", "C string")
# Threads attached to the arenas; of the last one it is not known.
THREADS = ((ThreadRef(1, 10, "main"), ThreadRef(2, 11, "worker-1")), (), (ThreadRef(3, 12, "worker-2"),), None)

NOTHING = Target(FakeMemory([]), X86_64)


def heap_of(rows: Sequence[tuple[int, int, State, int]], allocator: str = "glibc", **extra: Any) -> Heap:
    """Return a heap of four arenas with blocks of address, size, state, arena."""
    columns = [list(each) for each in zip(*sorted(rows))] or [[], [], [], []]
    kinds = (np.uint64, np.uint64, np.uint8, np.uint32)
    arenas = [Arena(at, 0xA000 + 0x100 * at, "thread", None, threads) for at, threads in enumerate(THREADS)]
    return Heap(allocator, Blocks(*(np.array(each, kind) for each, kind in zip(columns, kinds))), arenas, **extra)


def live_of(
    heaps: Sequence[Heap],
    states: Sequence[int],
    edges: Sequence[tuple[int, int]] = (),
    roots: Sequence[int] = (),
    codes: Sequence[int] = (),
    levels: Sequence[int] = (),
    target: Target = NOTHING,
    missing: Sequence[Any] = (),
) -> Live:
    """Return what is known of the live blocks, each by row; lists that are too short go on with zeros.

    :param edges: rows that point at rows.
    :param roots: rows that a register points at.
    """
    blocks, problems = live_blocks(heaps)
    rows = len(blocks)
    words = [RootWord("register", "rax", int(blocks.index.address[row]), 1) for row in roots]
    no_hits = Hits(np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.bool_))
    hits = RootHits(no_hits, [(at, row, False) for at, row in enumerate(roots)])
    marked = Marked(blocks, Roots((), words, missing), hits, (), filled(states, rows, np.uint8), problems)
    reach = Reach(target, heaps, marked, PointerRules(8), SILENT)
    counts = np.bincount([source for source, _ in edges], minlength=rows) if rows else np.empty(0, np.int64)
    first = np.concatenate((np.zeros(1, np.uint64), np.cumsum(counts, dtype=np.uint64)))
    to = np.array([goal for _, goal in sorted(edges)], np.uint32)
    reach.edges = Edges(first, to, np.zeros(len(to), np.bool_))
    types = BlockTypes(
        [TypeName(name, "debug info" if at else "unknown") for at, name in enumerate(TYPES)],
        filled(codes, rows, np.uint32),
        filled(levels, rows, np.uint8),
    )
    return Live(reach, types, count_references(reach))


def filled(values: Sequence[int], count: int, kind: Any) -> Any:
    whole = np.zeros(count, kind)
    whole[: min(len(values), count)] = values[:count]
    return whole


def reaching(heaps: Sequence[Heap], target: Target) -> "dict[str, Any]":
    """Return what a command's context offers of reachability; types are not known."""

    def block_types(reach: Reach) -> BlockTypes:
        rows = len(reach)
        return BlockTypes([TypeName("unknown", "unknown")], filled([], rows, np.uint32), filled([], rows, np.uint8))

    return {
        "reach": lambda reading: read_reach(target, heaps, reading, SILENT),
        "known_reach": lambda reading: None,
        "block_types": block_types,
        "root_names": NoDebugInfo(),
        "types": NoDebugInfo(),
    }

"""The native kernels against the reference, on memory made here: seconds, ratio, and how both grow with size."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402  the checkout is put into the path first

from gdbext.kernels import chains, columns, dominators, graph, native, native_graph, pointers, tally  # noqa: E402
from gdbext.kernels.chains import MOST_NODES, LinkRules  # noqa: E402
from gdbext.kernels.pointers import BlockIndex, PointerRules  # noqa: E402
from gdbext.kernels.reference import ChunkRules, words_of  # noqa: E402

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
BASE = 0x10_0000_0000
_AT_ONCE = 1 << 19  # chunks, as the walker asks for them
_OTHER = np.ones(1 << 26, np.uint64)  # more than caches hold
Timed = Callable[[Any], object]


def chunk_walk(count: int, rng: Any) -> Timed:
    """Chunks of 32 to 128 bytes in a row."""
    sizes = (rng.integers(2, 9, count) * 16).astype(np.uint64)
    places = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64) // 8
    memory = np.zeros(int(places[-1]) + 2, np.uint64)
    memory[places[:-1] + 1] = sizes | np.uint64(1)
    words, rules, stop = words_of(memory.tobytes(), 8, sys.byteorder), ChunkRules(8, 32, 16), int(places[-1])

    def walk(kernels: Any) -> None:
        at = 0
        while at < stop:
            at = kernels.read_chunks(words, BASE, at, stop, rules, _AT_ONCE).end

    return walk


def _bins(count: int, rng: Any) -> "tuple[list[tuple[int, bytes]], Any]":
    """So many nodes in twice as many bins, two to a chain, anywhere in memory."""
    order = rng.permutation(count)
    nodes = np.zeros((count, 2), np.uint64)  # link, hash of four bytes
    first, second = order[0::2][: len(order[1::2])], order[1::2]
    nodes[first, 0] = BASE + 16 * second.astype(np.uint64)
    nodes[:, 1] = np.where(rng.random(count) < 0.125, 0x5EED, rng.integers(0, 1 << 32, count)).astype(np.uint64)
    heads = np.zeros(2 * count, np.uint64)
    heads[rng.permutation(2 * count)[: len(first)]] = BASE + 16 * first.astype(np.uint64)
    return [(BASE, nodes.tobytes())], heads


def bin_sums(count: int, rng: Any) -> Timed:
    """All bins as ``walklist`` sums them up: nodes, the longest chain, how chains end."""
    spans, heads = _bins(count, rng)
    return lambda kernels: kernels.tally_chains(spans, heads, None, LinkRules(0, 8))


def bin_nodes(count: int, rng: Any) -> Timed:
    """All bins with the addresses of all their nodes, in order."""
    spans, heads = _bins(count, rng)
    return lambda kernels: kernels.walk_chains(spans, heads, None, LinkRules(0, 8), MOST_NODES)


def list_walk(count: int, rng: Any) -> Timed:
    """One list through nodes anywhere in memory."""
    order = rng.permutation(count)
    links = np.zeros(count, np.uint64)
    links[order[:-1]] = BASE + 8 * order[1:].astype(np.uint64)
    spans, head = [(BASE, links.tobytes())], np.array([BASE + 8 * int(order[0])], np.uint64)
    return lambda kernels: kernels.walk_chains(spans, head, None, LinkRules(0, 8), MOST_NODES)


def _blocks(count: int, rng: Any) -> "tuple[BlockIndex, bytes]":
    """Blocks, and their contents: three words in ten lead to a block."""
    sizes = (rng.integers(2, 9, count) * 16).astype(np.uint64)
    address = (BASE + np.cumsum(sizes) - sizes).astype(np.uint64)
    words = int(sizes.sum()) // 8
    memory = rng.integers(0, 1 << 20, words).astype(np.uint64)
    chosen = rng.random(words) < 0.3
    memory[chosen] = address[rng.integers(0, count, int(chosen.sum()))]
    return BlockIndex(address, sizes), memory.tobytes()


def _anew(index: BlockIndex) -> BlockIndex:
    """Return the same blocks without what kernels keep of them between calls."""
    return BlockIndex(index.address, index.size)


def pointer_scan(count: int, rng: Any) -> Timed:
    """The contents of so many blocks."""
    index, memory = _blocks(count, rng)
    return lambda kernels: kernels.scan_pointers([(BASE, memory)], _anew(index), PointerRules(8))


def mark(count: int, rng: Any) -> Timed:
    """So many blocks from ten roots."""
    index, memory = _blocks(count, rng)
    live, roots = np.ones(count, np.bool_), np.zeros(count, np.uint8)
    roots[:10] = pointers.REACHED
    return lambda kernels: kernels.mark_blocks([(BASE, memory)], _anew(index), PointerRules(8), live, roots)


def edges(count: int, rng: Any) -> Timed:
    """The edges between so many blocks."""
    index, memory = _blocks(count, rng)
    live = np.ones(count, np.bool_)
    return lambda kernels: kernels.block_edges([(BASE, memory)], _anew(index), PointerRules(8), live)


def _graph(count: int, rng: Any) -> graph.Edges:
    """So many rows of up to three edges to anywhere, one in thirty into the middle."""
    degrees = rng.integers(0, 4, count)
    first = np.concatenate(([0], np.cumsum(degrees))).astype(np.uint64)
    to = rng.integers(0, count, int(first[-1])).astype(np.uint32)
    return graph.Edges(first, to, rng.random(len(to)) < 1 / 30)


def components(count: int, rng: Any) -> Timed:
    """Of a random graph."""
    made, wanted = _graph(count, rng), np.ones(count, np.bool_)
    return lambda kernels: kernels.find_components(made, wanted)


def breadth_first(count: int, rng: Any) -> Timed:
    """From a thousand roots."""
    made, live, roots = _graph(count, rng), np.ones(count, np.bool_), np.zeros(count, np.uint8)
    roots[rng.integers(0, count, 1000)] = pointers.REACHED
    return lambda kernels: kernels.breadth_first(made, roots, live)


def dominator_tree(count: int, rng: Any) -> Timed:
    """From a thousand roots, and the sums over it."""
    made, entry, roots = _graph(count, rng), rng.integers(0, count, 1000).astype(np.uint32), 100
    entries, size = (np.arange(1000) % roots).astype(np.uint32), np.ones(count + roots, np.uint64)
    return lambda kernels: kernels.sum_up_tree(kernels.find_dominators(made, entry, entries), size)


KERNELS = {
    "chunk walk": chunk_walk,
    "bin sums": bin_sums,
    "bin nodes": bin_nodes,
    "list walk": list_walk,
    "pointer scan": pointer_scan,
    "mark": mark,
    "edges": edges,
    "components": components,
    "breadth first": breadth_first,
    "dominators": dominator_tree,
}
GRAPHS = (edges, components, breadth_first, dominator_tree)


class Reference:
    """The reference's functions under the names that the native kernels have."""

    read_chunks = staticmethod(columns.read_chunks)
    walk_chains = staticmethod(chains.walk_chains)
    tally_chains = staticmethod(tally.tally_chains)
    scan_pointers = staticmethod(pointers.scan_pointers)
    mark_blocks = staticmethod(pointers.mark_blocks)
    block_edges = staticmethod(graph.block_edges)
    find_components = staticmethod(graph.find_components)
    breadth_first = staticmethod(graph.breadth_first)
    find_dominators = staticmethod(dominators.find_dominators)
    sum_up_tree = staticmethod(dominators.sum_up_tree)


def measure(sizes: Sequence[int], repeat: int, most_reference: int) -> "Iterator[dict[str, Any]]":
    """Iterate over kernels and sizes: median seconds of each, their ratio, and growth from the size before.

    Growth is of the least seconds of runs with empty caches, as a core's memory is in none when it is first looked
    at: what has just fitted into them would seem to grow faster than it does.

    :param most_reference: the largest size at which the reference runs too.
    """
    library, why = native.find_library()
    if library is None:
        raise SystemExit(f"bench/run: no native kernels: {why}")
    graphs = native_graph.NativeGraphs(library)
    for name, make in KERNELS.items():
        before: Optional[float] = None
        for size in sizes:
            job = make(size, np.random.default_rng(1))
            own = graphs if make in GRAPHS else library
            cold = min(_seconds(job, own, cold=True) for _ in range(repeat))
            fast = [_seconds(job, own) for _ in range(repeat)]
            slow = [_seconds(job, Reference) for _ in range(repeat)] if size <= most_reference else []
            yield {
                "kernel": name,
                "size": size,
                "native": statistics.median(fast),
                "cold": cold,
                "reference": statistics.median(slow) if slow else None,
                "ratio": statistics.median(one / other for one, other in zip(slow, fast)) if slow else None,
                "growth": cold / before if before else None,
            }
            before = cold


def _seconds(job: Timed, kernels: Any, cold: bool = False) -> float:
    if cold:
        _OTHER.sum()
    start = time.perf_counter()
    job(kernels)
    return time.perf_counter() - start

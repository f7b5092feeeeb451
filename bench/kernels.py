"""The native kernels against the reference, on memory made here: seconds, ratio, and how both grow with size."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402  the checkout is put into the path first

from gdbext.kernels import chains, columns, native, pointers  # noqa: E402
from gdbext.kernels.chains import MOST_NODES, LinkRules  # noqa: E402
from gdbext.kernels.pointers import BlockIndex, PointerRules  # noqa: E402
from gdbext.kernels.reference import ChunkRules, words_of  # noqa: E402

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
BASE = 0x10_0000_0000
_AT_ONCE = 1 << 19  # chunks, as the walker asks for them
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


def bin_walk(count: int, rng: Any) -> Timed:
    """So many nodes in twice as many bins, two to a chain, anywhere in memory."""
    order = rng.permutation(count)
    links = np.zeros(2 * count, np.uint64)
    first, second = order[0::2][: len(order[1::2])], order[1::2]
    links[2 * first] = BASE + 16 * second.astype(np.uint64)
    heads = np.zeros(2 * count, np.uint64)
    heads[rng.permutation(2 * count)[: len(first)]] = BASE + 16 * first.astype(np.uint64)
    spans = [(BASE, links.tobytes())]
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


def pointer_scan(count: int, rng: Any) -> Timed:
    """The contents of so many blocks."""
    index, memory = _blocks(count, rng)
    return lambda kernels: kernels.scan_pointers([(BASE, memory)], index, PointerRules(8))


def mark(count: int, rng: Any) -> Timed:
    """So many blocks from ten roots."""
    index, memory = _blocks(count, rng)
    live, roots = np.ones(count, np.bool_), np.zeros(count, np.uint8)
    roots[:10] = pointers.REACHED
    return lambda kernels: kernels.mark_blocks([(BASE, memory)], index, PointerRules(8), live, roots)


KERNELS = {
    "chunk walk": chunk_walk,
    "bin walk": bin_walk,
    "list walk": list_walk,
    "pointer scan": pointer_scan,
    "mark": mark,
}


class Reference:
    """The reference's functions under the names that the native kernels have."""

    read_chunks = staticmethod(columns.read_chunks)
    walk_chains = staticmethod(chains.walk_chains)
    scan_pointers = staticmethod(pointers.scan_pointers)
    mark_blocks = staticmethod(pointers.mark_blocks)


def measure(sizes: Sequence[int], repeat: int, most_reference: int) -> "Iterator[dict[str, Any]]":
    """Iterate over kernels and sizes: median seconds of each, and their ratio.

    :param most_reference: the largest size at which the reference runs too.
    """
    library, why = native.find_library()
    if library is None:
        raise SystemExit(f"bench/run: no native kernels: {why}")
    for name, make in KERNELS.items():
        for size in sizes:
            job = make(size, np.random.default_rng(1))
            fast = [_seconds(job, library) for _ in range(repeat)]
            slow = [_seconds(job, Reference) for _ in range(repeat)] if size <= most_reference else []
            yield {
                "kernel": name,
                "size": size,
                "native": statistics.median(fast),
                "reference": statistics.median(slow) if slow else None,
                "ratio": statistics.median(one / other for one, other in zip(slow, fast)) if slow else None,
            }


def _seconds(job: Timed, kernels: Any) -> float:
    start = time.perf_counter()
    job(kernels)
    return time.perf_counter() - start

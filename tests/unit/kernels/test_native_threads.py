"""Answers of the native kernels that work in several threads: no answer says how many, or which did what."""

from __future__ import annotations

import numpy as np
import pytest

from gdbext import progress
from gdbext.kernels import native, native_graph
from gdbext.kernels.chains import MOST_NODES, LinkRules
from gdbext.kernels.pointers import BlockIndex, PointerRules

KERNELS, WHY = native.find_library()
pytestmark = pytest.mark.skipif(KERNELS is None, reason=f"no native kernels: {WHY}")
BASE = 0x7F00_0000_0000
THREADS = (1, 2, 4, 7)


def fields(found):
    columns = [getattr(found, name) for name in found.__dataclass_fields__]
    return [each.tobytes() if isinstance(each, np.ndarray) else each for each in columns]


def links(rng, sound):
    """Links of chains in all directions, some of which lead nowhere or in circles unless they are sound."""
    count = 1 << 17
    to = rng.integers(0, count, count)
    if sound:
        to = np.minimum(np.arange(count) + 1 + to % 1000, count - 1)  # each leads up
    words = to.astype(np.uint64) * np.uint64(8) + np.uint64(BASE)
    words[rng.integers(0, count, count // 2)] = 0
    words[-1] = 0
    firsts = np.where(rng.random(count // 2) < 0.5, rng.integers(0, count, count // 2) * 8 + BASE, 0)
    return [(BASE, words.tobytes())], firsts.astype(np.uint64)


def blocks(rng, mangled):
    """Blocks, a few of them large, that point at each other: with many open at a time, and long lists."""
    count = 1 << 16
    size = np.full(count, 32)
    size[rng.integers(0, count, 2)] = 2 << 20
    ends = np.cumsum(size)
    address = (BASE + ends - size).astype(np.uint64)
    words = rng.integers(0, 1 << 20, int(ends[-1]) // 8).astype(np.uint64)
    chosen = rng.random(len(words)) < 0.5
    words[chosen] = address[rng.integers(0, count, int(chosen.sum()))] + rng.integers(0, 9, int(chosen.sum())) // 8 * 8
    if mangled:
        words ^= (BASE + 8 * np.arange(len(words)).astype(np.uint64)) >> np.uint64(12)
    roots = np.where(rng.random(count) < 0.0005, rng.integers(1, 3, count), 0).astype(np.uint8)
    live = rng.random(count) < 0.95
    return [(BASE, words.tobytes())], BlockIndex(address, size.astype(np.uint64)), live, roots


def walked(rng, variant):
    spans, firsts = links(rng, variant)
    # Two bounds: on all nodes, which some parts have too few of, and of each chain.
    return lambda: [
        *fields(KERNELS.walk_chains(spans, firsts, None, LinkRules(0, 8), MOST_NODES)),
        *fields(KERNELS.walk_chains(spans, firsts, None, LinkRules(0, 8), 9, 50_000)),
    ]


def tallied(rng, variant):
    spans, firsts = links(rng, True)
    most = 1 << 40 if variant else 1000
    return lambda: [
        fields(found) if found else None
        for found in (KERNELS.tally_chains(spans, firsts, None, LinkRules(0, 8), total) for total in (most, 1 << 31))
    ]


def scanned(rng, mangled):
    spans, index, live, _ = blocks(rng, mangled)
    rules = PointerRules(8, mangled=mangled)
    return lambda: [
        *fields(KERNELS.scan_pointers(spans, index, rules)),
        *fields(KERNELS.scan_pointers(spans, index, rules, live, 1000)),
    ]


def marked(rng, mangled):
    spans, index, live, roots = blocks(rng, mangled)
    return lambda: [KERNELS.mark_blocks(spans, index, PointerRules(8, mangled=mangled), live, roots).tobytes()]


def joined(rng, mangled):
    spans, index, live, _ = blocks(rng, mangled)
    graphs = native_graph.NativeGraphs(KERNELS)
    return lambda: fields(graphs.block_edges(spans, index, PointerRules(8, mangled=mangled), live))


@pytest.mark.parametrize("variant", [False, True])
@pytest.mark.parametrize("kernel", [walked, tallied, scanned, marked, joined])
def test_no_answer_depends_on_the_number_of_threads(monkeypatch, kernel, variant):
    answer = kernel(np.random.default_rng(5), variant)
    found = []
    for threads in (*THREADS, *THREADS):
        monkeypatch.setattr(native, "STEP_MILLISECONDS", 1 if len(found) < len(THREADS) else 50)  # left, or in one go
        monkeypatch.setattr(progress._checks, "threads", threads)
        found.append(answer())
    assert found[0] and all(each == found[0] for each in found)

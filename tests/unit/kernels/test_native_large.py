"""The native kernels against the reference where what they do for speed sets in, and on many chunks."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from gdbext.kernels import columns, native, pointers
from gdbext.kernels.pointers import BlockIndex, PointerRules
from gdbext.kernels.reference import MOST_CHUNKS, ChunkRules, words_of

KERNELS, WHY = native.find_library()
pytestmark = pytest.mark.skipif(KERNELS is None, reason=f"no native kernels: {WHY}")
BASE = 0x7F00_0000_0000


def same(found, expected):
    for name in expected.__dataclass_fields__:
        left, right = getattr(found, name), getattr(expected, name)
        assert np.array_equal(left, right), name


# -- chunks -------------------------------------------------------------------------------------------


def heap(rng, word, chunks, noise, large):
    """Chunks in a row, a third of them free, a few with a wrong size behind, with data that looks like sizes.

    :param noise: the share of words of data that could be a size.
    :param large: the share of chunks that are large.
    """
    granule = 2 * word
    granules = rng.integers(2, 9, chunks)
    granules[rng.random(chunks) < large] = 40_000
    sizes = (granules * granule).astype(np.uint64)
    at = np.concatenate(([0], np.cumsum(granules) * 2)).astype(np.int64)
    used = rng.random(chunks) > 0.33
    memory = np.where(rng.random(at[-1] + 2) < noise, rng.choice([33, 48, 64, 35], at[-1] + 2), 0).astype(np.uint64)
    memory[at[1:]] = np.where(rng.random(chunks) < 0.99, sizes, 5)
    memory[at[:-1] + 1] = sizes | np.concatenate(([1], used[:-1])).astype(np.uint64)
    memory[at[-1] + 1] = 0x2_0000 | int(used[-1])
    return memory.astype(f"=u{word}").tobytes(), at


@pytest.mark.parametrize("word", [4, 8])
@pytest.mark.parametrize(("noise", "large"), [(0, 0), (0.01, 0), (0.6, 0), (0.05, 0.0005), (0, 0.002)])
def test_many_chunks(word, noise, large):
    rng = np.random.default_rng(1)
    data, at = heap(rng, word, 30_000, noise, large)
    words, rules, stop = words_of(data, word, "little"), ChunkRules(word, 4 * word, 2 * word), int(at[-1])
    for limit in (MOST_CHUNKS, 29_999, 17_001):
        arguments = (words, BASE, 0, stop, rules, limit)
        same(KERNELS.read_chunks(*arguments), columns.read_chunks(*arguments))


@pytest.mark.parametrize("bad", [0, 8, 24, 1 << 40])
def test_many_chunks_and_one_that_is_damaged(bad):
    rng = np.random.default_rng(2)
    data, at = heap(rng, 8, 30_000, 0.01, 0)
    memory = np.frombuffer(data, np.uint64).copy()
    for row in (5_000, 20_001):
        memory[at[row] + 1] = bad
        arguments = (words_of(memory.tobytes(), 8, "little"), BASE, 0, int(at[-1]), ChunkRules(8, 32, 16), 1 << 20)
        same(KERNELS.read_chunks(*arguments), columns.read_chunks(*arguments))
        memory[at[row] + 1] = 33


# -- pointers -----------------------------------------------------------------------------------------


def graph(rng, count, granule, gap, word=8):
    """Blocks with gaps between them, and memory of which a third of the words points at or near one."""
    sizes = rng.integers(0, 6, count) * granule
    address = np.cumsum(sizes + granule * (1 + (rng.random(count) < 0.1) * rng.integers(0, gap, count)))
    address = (address + (BASE if word == 8 else 0x1000) - sizes).astype(np.uint64)
    words = rng.integers(0, 1 << 40, 20_000).astype(np.uint64)
    chosen = rng.random(len(words)) < 0.4
    near = rng.integers(-2, 3, int(chosen.sum())) * rng.integers(0, 2 * granule, int(chosen.sum()))
    words[chosen] = address[rng.integers(0, count, int(chosen.sum()))] + near.astype(np.uint64)
    index = BlockIndex(address, np.minimum(sizes, granule * 6).astype(np.uint64))
    return index, [(0x100, words.astype(f"<u{word}").tobytes())]


SPREADS = [
    (word, granule, gap)
    for word in (4, 8)
    for granule in (1, 3, 8, 16, 4096)
    for gap in (1, 50, 100_000)
    if word == 8 or granule * gap <= 1 << 20  # else it would take more than 32 bits
]


@pytest.mark.parametrize("word, granule, gap", SPREADS)
def test_many_words(word, granule, gap):
    index, spans = graph(np.random.default_rng(3), 2_000, granule, gap, word)
    for rules in (PointerRules(word), PointerRules(word, clear=7), PointerRules(word, clear=1, mangled=True)):
        expected = pointers.scan_pointers(spans, index, rules)
        assert len(expected)
        same(KERNELS.scan_pointers(spans, index, rules), expected)


def test_an_index_is_built_once_and_goes_with_its_blocks(monkeypatch):
    index, spans = graph(np.random.default_rng(4), 500, 16, 5)
    built, make = [], native._Built

    def noted(*arguments):
        index = make(*arguments)
        built.append(weakref.ref(index))
        return index

    monkeypatch.setattr(native, "_Built", noted)
    for _ in range(3):
        KERNELS.scan_pointers(spans, index, PointerRules(8))
    live, roots = np.ones(len(index), np.bool_), np.ones(len(index), np.uint8)
    KERNELS.mark_blocks(spans, index, PointerRules(8), live, roots)
    assert len(built) == 1 and built[0]() is not None
    del index
    gc.collect()
    assert built[0]() is None


def test_blocks_that_overlap_are_refused_every_time():
    index = BlockIndex(np.array([8, 16], np.uint64), np.array([9, 1], np.uint64))
    for _ in range(2):
        with pytest.raises(native.NativeError, match="refuse an argument"):
            KERNELS.scan_pointers([(0, bytes(8))], index, PointerRules(8))


def test_an_interrupt_ends_the_building_of_an_index(monkeypatch):
    count = 1 << 20
    index = BlockIndex(np.arange(count, dtype=np.uint64) * np.uint64(32), np.full(count, 16, np.uint64))
    told, steps = KERNELS._told, []

    def interrupted(answer):
        steps.append(answer)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return told(answer)

    monkeypatch.setattr(native, "STEP_MILLISECONDS", 0)
    monkeypatch.setattr(KERNELS, "_told", interrupted)
    with pytest.raises(KeyboardInterrupt):
        KERNELS.scan_pointers([(0, bytes(8))], index, PointerRules(8))
    monkeypatch.undo()
    assert len(KERNELS.scan_pointers([(0, bytes(8))], index, PointerRules(8))) == 1


# -- columns ------------------------------------------------------------------------------------------


def test_rows_of_many_addresses():
    rng = np.random.default_rng(5)
    address = np.unique(rng.integers(0, 1 << 22, 300_000).astype(np.uint64))
    wanted = rng.integers(0, 1 << 22, 600_001).astype(np.uint64)
    assert np.array_equal(KERNELS.rows_of(address, wanted), columns.rows_of(address, wanted))


def test_more_pages_than_are_counted_in_one_call():
    data = np.zeros(1 << 22, np.uint8)
    data[4096 * 7 + 9] = data[4096 * 100] = 1
    starts = np.zeros(100, np.uint64)
    ends = np.full(100, (1 << 64) - 1, np.uint64)
    spans = [(0x1000, data.tobytes())]
    found, expected = (kernels.page_census(spans, starts, ends, 4096) for kernels in (KERNELS, columns))
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]

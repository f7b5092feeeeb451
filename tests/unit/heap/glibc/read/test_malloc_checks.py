"""Damages that malloc aborts on, as docs/glibc-checks.md lists them: each has its kind, and the heap before it none."""

from __future__ import annotations

import pytest

from gdbext.abi import X86_64
from gdbext.heap.glibc.heap import neutral
from gdbext.heap.glibc.read.build import read_heap
from gdbext.progress import SILENT
from tests.support.ptmalloc import HeapBuilder


def laid_out(release):
    builder = HeapBuilder(X86_64, release)
    thread = builder.add_thread()
    cached = [thread.cache(0x40) for _ in range(3)] if thread.cached else []
    fast = [builder.main.chunk(0x50, "fastbin") for _ in range(3)] if release in ("2.31", "2.36") else []
    freed = []
    for state in ("unsorted", "unsorted", "bin", "bin"):
        builder.main.chunk(0x60)
        freed.append(builder.main.chunk(0x200, state))
    builder.main.chunk(0x60)
    return builder.build(), thread, cached, fast, freed


def found(image):
    return {one.kind for one in neutral(read_heap(image.target(), SILENT)).problems if one.corruption}


@pytest.mark.parametrize("release", ["2.31", "2.36", "2.42", "2.43"])
def test_the_heap_before_the_damage_has_none(release):
    assert found(laid_out(release)[0]) == set()


@pytest.mark.parametrize("which", [0, 2])
@pytest.mark.parametrize(
    "word, value, kind",
    [(1, 0x13, "chunk-size"), (2, 0x1230, "bin-link"), (3, 0x1230, "bin-link"), (64, 0x1F0, "prev-size")],
)
def test_a_chunk_of_the_unsorted_or_a_small_bin(which, word, value, kind):
    image, _, _, _, freed = laid_out("2.36")
    image.poke(freed[which] + 8 * word, value)
    assert kind in found(image)


@pytest.mark.parametrize("release", ["2.31", "2.36"])
@pytest.mark.parametrize("word, value, kind", [(1, 0x71, "fastbin-size"), (2, 0x12348, "list-link")])
def test_a_chunk_of_a_fastbin(release, word, value, kind):
    image, _, _, fast, _ = laid_out(release)
    image.poke(fast[1] + 8 * word, value)
    assert kind in found(image)


@pytest.mark.parametrize("release", ["2.31", "2.36", "2.42"])
@pytest.mark.parametrize("word, value, kind", [(1, 0x71, "tcache-size"), (2, 0x12348, "list-link")])
def test_a_chunk_of_a_tcache(release, word, value, kind):
    image, _, cached, _, _ = laid_out(release)
    image.poke(cached[1] + 8 * word, value)
    assert kind in found(image)


def test_more_chunks_in_a_tcache_than_it_counts():
    image, thread, _, _, _ = laid_out("2.36")
    image.poke(thread.tcache + 2 * image.builder.sizes.tcache_index(0x40), 1, 2)
    assert found(image) == {"tcache-count"}

"""Damages that malloc aborts on, as docs/glibc-checks.md lists them: each has its kind, and the heap before it none."""

from __future__ import annotations

import pytest

from gdbext.abi import AARCH64, I386, X86_64, Abi
from gdbext.heap.glibc.heap import neutral
from gdbext.heap.glibc.read.build import read_heap
from gdbext.progress import SILENT
from tests.support.ptmalloc import KEYLESS, RELEASES, HeapBuilder

BIG_ENDIAN = Abi(8, "big", "s390x")
PAIRS = [(X86_64, release) for release in RELEASES] + [
    (I386, "2.31"),
    (I386, "2.43"),
    (AARCH64, "2.36"),
    (AARCH64, "2.44"),
    (BIG_ENDIAN, "2.28-rhel8"),
    (BIG_ENDIAN, "2.36"),
]
CACHING = [pair for pair in PAIRS if pair[1] != "2.23"]
KEYED = [pair for pair in PAIRS if pair[1] not in KEYLESS]
FAST = [pair for pair in PAIRS if pair[1] not in ("2.43", "2.44")]


def of(pairs):
    """Each third of them; the rest in the full run."""
    rows = [pair if at % 3 == 0 else pytest.param(*pair, marks=pytest.mark.full) for at, pair in enumerate(pairs)]
    return pytest.mark.parametrize("abi, release", rows, ids=lambda value: getattr(value, "machine", value))


class LaidOut:
    """A heap with chunks on every kind of list; ``freed`` are two unsorted, two small and two large ones."""

    def __init__(self, abi, release):
        self.builder = HeapBuilder(abi, release)
        self.word, self.sizes = self.builder.sizes.word, self.builder.sizes
        self.thread = self.builder.add_thread()
        self.size = self.sizes.minimum + 4 * self.sizes.alignment
        caching, fast = self.thread.cached, "fastbinsY" in self.builder.malloc_state
        self.cached = [self.thread.cache(self.size) for _ in range(3 if caching else 0)]
        self.other = [self.thread.cache(self.size + self.sizes.alignment) for _ in range(2 if caching else 0)]
        main, small, large = self.builder.main, 20 * self.sizes.alignment, self.sizes.least_large + 0x100
        self.fast = [main.chunk(self.sizes.minimum, "fastbin") for _ in range(3 if fast else 0)]
        self.freed = []
        for state, size in (("unsorted", small), ("unsorted", large), ("bin", small), ("bin", large)):
            for _ in range(2):
                main.chunk(self.size)
                self.freed.append((main.chunk(size, state), size))
        main.chunk(self.size)
        for size in (0x21000, 0x34000):
            self.builder.add_mmapped(size)
        self.image = self.builder.build()

    def poke(self, chunk, word, value):
        self.image.poke(chunk + self.word * word, value)

    def lock(self):
        self.image.poke(self.state("mutex"), 1, 4)

    def state(self, member, at=0):
        """Return the address of a member of the main arena."""
        return self.builder.main.address + self.builder.malloc_state.offset(member) + at

    def bin_head(self, size, end, unsorted=False):
        index = 1 if unsorted else self.sizes.bin_index(size)
        return self.state("bins", (2 * index - 2 + end) * self.word)

    def problems(self):
        return neutral(read_heap(self.image.target(), SILENT)).problems

    def found(self):
        return {one.kind for one in self.problems() if one.corruption}


@of(PAIRS)
def test_the_heap_before_the_damage_has_none(abi, release):
    assert not LaidOut(abi, release).problems()


# -- bins ----------------------------------------------------------------------------------------------

BINNED = [(X86_64, "2.23"), (X86_64, "2.36"), (I386, "2.31"), (BIG_ENDIAN, "2.36"), (AARCH64, "2.44")]


@of(BINNED)
@pytest.mark.parametrize("which", range(0, 8, 2))
@pytest.mark.parametrize(
    "word, value, kind", [(1, 0x13, "chunk-size"), (2, 0x1230, "bin-link"), (3, 0x1230, "bin-link")]
)
def test_a_chunk_of_a_bin(abi, release, which, word, value, kind):
    heap = LaidOut(abi, release)
    heap.poke(heap.freed[which][0], word, value)
    assert kind in heap.found()


@of(BINNED)
@pytest.mark.parametrize("which", range(0, 8, 2))
def test_the_chunk_behind_a_chunk_of_a_bin(abi, release, which):
    for word, change, kind in (
        (0, lambda heap, size: size - heap.sizes.alignment, "prev-size"),
        (1, lambda heap, size: heap.size | 1, "bin-in-use"),
        (1, lambda heap, size: 3, "chunk-size"),
    ):
        heap = LaidOut(abi, release)
        chunk, size = heap.freed[which]
        heap.poke(chunk + size, word, change(heap, size))
        assert kind in heap.found()


@of(BINNED)
@pytest.mark.parametrize("which", range(0, 8, 2))
@pytest.mark.parametrize("end", [0, 1])
def test_the_ends_of_a_bin(abi, release, which, end):
    heap = LaidOut(abi, release)
    chunk, size = heap.freed[which + 1 - end]
    heap.image.poke(heap.bin_head(size, end, unsorted=which < 4), chunk)
    assert "bin-link" in heap.found()


@of(PAIRS)
@pytest.mark.parametrize("which", [4, 6])
def test_a_bin_whose_bit_is_not_set(abi, release, which):
    heap = LaidOut(abi, release)
    index = heap.sizes.bin_index(heap.freed[which][1])
    place = heap.state("binmap", index // 32 * 4)
    held = int.from_bytes(heap.image.memory().read(place, 4), abi.byteorder)
    assert held >> index % 32 & 1
    heap.image.poke(place, held ^ 1 << index % 32, 4)
    (problem,) = heap.problems()
    assert (problem.kind, problem.address, problem.corruption) == ("bin-map", place, True)
    kind = "small" if which == 4 else "large"
    assert problem.message.startswith(f"{kind} bin {index}: its bit in binmap is 0, expected 1")


def test_a_bin_whose_bit_is_not_set_while_its_arena_is_locked():
    heap = LaidOut(X86_64, "2.36")
    heap.image.poke(heap.state("binmap"), 0, 4)
    heap.lock()
    (problem,) = heap.problems()
    assert (problem.kind, problem.corruption) == ("bin-map", False)
    assert problem.message.endswith("; its arena is in flux")


@of(PAIRS)
def test_a_set_bit_of_an_empty_bin_is_sound(abi, release):
    heap = LaidOut(abi, release)
    for block in range(4):
        heap.image.poke(heap.state("binmap", 4 * block), 0xFFFFFFFF, 4)
    assert not heap.problems()


@of(PAIRS)
@pytest.mark.parametrize("word", [4, 5])
def test_a_large_chunk_waits_in_the_unsorted_bin_without_a_skip_list(abi, release, word):
    heap = LaidOut(abi, release)
    small, large = heap.freed[0][0], heap.freed[2][0]
    heap.poke(small, word, 0x1230)  # a small chunk has none: the program's data is still there
    assert not heap.problems()
    heap.poke(large, word, 0x1230)
    (problem,) = heap.problems()
    assert (problem.kind, problem.address, problem.corruption) == ("bin-nextsize", large, True)
    assert problem.message.endswith("is 0x1230, expected 0x0, as it is in no bin of its size yet")
    heap.lock()
    assert heap.found() == {"bin-nextsize"}  # malloc aborts on it with the lock held
    heap.poke(large, word, heap.freed[6][0])
    (problem,) = heap.problems()
    assert not problem.corruption and problem.message.endswith("; its arena is in flux")


@of(PAIRS)
def test_two_chunks_of_bins_side_by_side(abi, release):
    builder = HeapBuilder(abi, release)
    size = builder.sizes.least_large
    builder.main.chunk(size)
    _, second = (builder.main.chunk(size + step * 0x80, "bin") for step in (0, 8))
    builder.main.chunk(size)
    for lock in (0, 1):
        builder.main.mutex = lock
        (problem,) = neutral(read_heap(builder.target(), SILENT)).problems
        assert (problem.kind, problem.address, problem.corruption) == ("free-adjacent", second, not lock)


@of(BINNED)
@pytest.mark.parametrize("which", range(0, 8, 2))
def test_a_chunk_in_a_bin_has_no_flag_of_a_thread_arena(abi, release, which):
    heap = LaidOut(abi, release)
    chunk, size = heap.freed[which]
    heap.poke(chunk, 1, size | 1 | 4)
    (problem,) = heap.problems()
    assert (problem.kind, problem.address, problem.corruption) == ("chunk-flags", chunk, True)
    assert problem.message == "flag bits are 5: NON_MAIN_ARENA does not fit a chunk in a bin"
    heap.lock()
    (problem,) = heap.problems()
    assert not problem.corruption and problem.message.endswith("; its arena is in flux")


@of(PAIRS)
@pytest.mark.parametrize(
    "value, kind", [(0x7FFFF001, "top-size"), (1, "top-header"), (0x1008 | 1, "top-header"), (None, "free-unlisted")]
)
def test_the_head_of_top(abi, release, value, kind):
    heap = LaidOut(abi, release)
    top = heap.builder.main.top
    head = heap.image.peek(top + heap.word)
    heap.poke(top, 1, head & ~1 if value is None else value)
    assert kind in heap.found()


def old_heap(abi, release):
    """Return a thread arena of two heaps, and where the fenceposts of its first are."""
    builder = HeapBuilder(abi, release)
    builder.add_thread()
    arena = builder.add_thread(builder.add_arena()).arena
    arena.chunk(builder.sizes.least_large)
    arena.new_heap()
    arena.chunk(builder.sizes.least_large)
    image = builder.build()
    return image, arena, arena.segments[0].end - 2 * builder.sizes.header


@of(PAIRS)
def test_the_fenceposts_of_an_old_heap(abi, release):
    image, _, fence = old_heap(abi, release)
    assert not neutral(read_heap(image.target(), SILENT)).problems
    image.poke(fence + abi.pointer_size, 0x1230)
    assert any(one.corruption for one in neutral(read_heap(image.target(), SILENT)).problems)


@of(PAIRS)
def test_the_heap_info_of_an_old_heap(abi, release):
    image, arena, _ = old_heap(abi, release)
    image.put(image.builder.heap_info, arena.segments[0].start, ar_ptr=image.builder.main.address)
    assert "heap-info" in {one.kind for one in neutral(read_heap(image.target(), SILENT)).problems if one.corruption}


@of(PAIRS)
def test_system_mem_and_the_end_of_top(abi, release):
    heap = LaidOut(abi, release)
    heap.image.put(heap.builder.malloc_state, heap.builder.main.address, system_mem=0x1000)
    assert [(one.kind, one.corruption) for one in heap.problems()] == [("system-mem", False)]


# -- fastbins ------------------------------------------------------------------------------------------


@of(FAST)
def test_a_chunk_of_a_fastbin(abi, release):
    for word, value, kind in ((1, 0x71, "fastbin-size"), (2, 0x12348, "list-link")):
        heap = LaidOut(abi, release)
        heap.poke(heap.fast[1], word, value)
        assert kind in heap.found()


@of(FAST)
def test_a_chunk_twice_in_a_fastbin(abi, release):
    heap = LaidOut(abi, release)
    heap.image.poke(heap.fast[0] + 2 * heap.word, link(heap, heap.fast[0], heap.fast[2]))
    assert "double-free" in heap.found()


def link(heap, chunk, to):
    """Return what a link from a chunk's user memory to ``to`` is."""
    return (chunk + 2 * heap.word) >> 12 ^ to if heap.builder.safe_linking else to


# -- thread caches -------------------------------------------------------------------------------------


@of(CACHING)
def test_a_chunk_of_a_tcache(abi, release):
    for word, value, kind in ((1, 0x91, "tcache-size"), (2, 0x12344, "list-link")):
        heap = LaidOut(abi, release)
        heap.poke(heap.cached[1], word, value)
        assert kind in heap.found()


@of(CACHING)
def test_a_chunk_twice_in_a_tcache(abi, release):
    heap = LaidOut(abi, release)
    last = heap.cached[0]
    heap.poke(last, 2, link(heap, last, heap.cached[2] + 2 * heap.word))
    assert "double-free" in heap.found()


def recount(heap, count):
    """Let the cache count another number of chunks in the class of three."""
    cache = heap.builder.tcache
    member = cache.struct.member("counts")
    stored = heap.builder.tcache_count - count if cache.counts_down else count
    place = heap.thread.tcache + member.offset + heap.sizes.tcache_index(heap.size) * member.size
    heap.image.poke(place, stored, member.size)


@of(CACHING)
@pytest.mark.parametrize("count, damage", [(0, True), (1, True), (2, False), (3, None), (4, False), (6, True)])
def test_the_count_of_a_tcache_and_its_list(abi, release, count, damage):
    heap = LaidOut(abi, release)
    recount(heap, count)
    found = [(one.kind, one.corruption) for one in heap.problems()]
    assert found == ([] if damage is None else [("tcache-count", damage)])


@of(CACHING)
@pytest.mark.parametrize("head", [0, 0x4141414141414141])
def test_the_head_of_a_tcache_list(abi, release, head):
    heap = LaidOut(abi, release)
    member = heap.builder.tcache.struct.member("entries")
    place = heap.thread.tcache + member.offset + heap.sizes.tcache_index(heap.size) * member.size
    heap.image.poke(place, head & abi.word_mask)
    assert heap.found() == {"list-link" if head else "tcache-count"}


@of(KEYED)
@pytest.mark.parametrize("which", [0, 1])
def test_a_cached_chunk_that_was_written_to(abi, release, which):
    heap = LaidOut(abi, release)
    chunk = heap.cached[which]
    heap.poke(chunk, 3, 0x4141)
    (problem,) = heap.problems()
    assert (problem.kind, problem.address, problem.corruption) == ("tcache-key", chunk, True)
    wanted = heap.builder.key_of(heap.thread)
    assert problem.message.endswith(f"is 0x4141, expected {wanted:#x}: written after it was freed")


@of(KEYED)
@pytest.mark.parametrize("which, key", [(2, 0x4141), (1, 0)])
def test_a_key_that_its_thread_was_perhaps_about_to_change(abi, release, which, key):
    heap = LaidOut(abi, release)
    heap.poke(heap.cached[which], 3, key)
    (problem,) = heap.problems()
    assert (problem.kind, problem.corruption) == ("tcache-key", False)
    assert problem.message.endswith("written after it was freed, or its thread was in between")


@of([pair for pair in CACHING if pair not in KEYED])
def test_before_there_were_keys_the_word_is_the_programs(abi, release):
    heap = LaidOut(abi, release)
    for chunk in heap.cached:
        heap.poke(chunk, 3, heap.builder.data + 0x340)
    heap.poke(heap.other[0], 3, 0x4141)
    assert not heap.problems()


@of([(X86_64, "2.36"), (I386, "2.43")])
def test_a_word_that_is_not_in_the_data_of_the_libc_is_no_key(abi, release):
    heap = LaidOut(abi, release)
    for chunk in heap.cached + heap.other:
        heap.poke(chunk, 3, 0x5A5A5A5A)
    heap.poke(heap.cached[0], 3, 0x4141)
    assert not heap.problems()


# -- chunks with a mapping of their own ----------------------------------------------------------------


@of(PAIRS)
@pytest.mark.parametrize("word, damage", [(0, 0x340), (1, 0xFE0), (1, 2), (1, 0x5A5A00)])
@pytest.mark.parametrize("which", [0, 1])
def test_a_mapped_chunk_whose_header_does_not_fit(abi, release, which, word, damage):
    heap = LaidOut(abi, release)
    start, size = heap.builder.mmapped[which]
    chunk = start + -heap.sizes.header % heap.sizes.alignment
    value = heap.image.peek(chunk + word * heap.word) ^ damage
    heap.poke(chunk, word, value)
    missing, header = heap.problems()
    assert (missing.kind, missing.corruption) == ("mmapped-count", False)
    assert missing.message.startswith("found 1 mmapped chunks of ")
    assert (header.kind, header.address, header.corruption) == ("mmapped-header", chunk, True)
    assert f"{'prev_size is' if word == 0 else 'and size'} {value:#x}" in header.message


@of(PAIRS)
def test_another_mapping_is_not_taken_for_the_chunk_that_is_missing(abi, release):
    heap = LaidOut(abi, release)
    (start, size), _ = heap.builder.mmapped
    chunk = start + -heap.sizes.header % heap.sizes.alignment
    for content in (0x4141, 0):  # nothing of a header is left: it may be anything
        for word in (0, 1):
            heap.poke(chunk, word, content)
        assert [one.kind for one in heap.problems()] == ["mmapped-count"]
    other = LaidOut(abi, release)
    other.poke(chunk, 0, 0x4140)
    other.image.map(other.builder._next_mmap, size)  # which of the two it is nobody knows
    assert [one.kind for one in other.problems()] == ["mmapped-count"]

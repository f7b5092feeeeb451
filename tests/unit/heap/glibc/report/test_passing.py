"""Moments of malloc, as its source has them: no damage in an arena in flux; the same bytes at rest are."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from gdbext.abi import X86_64
from gdbext.heap.glibc.heap import neutral
from gdbext.heap.glibc.read.build import read_heap
from gdbext.memory.elf.corenotes import SIGABRT, SIGSEGV, SignalInfo
from gdbext.progress import SILENT
from tests.support.elfwriter import PT_LOAD, Writer
from tests.support.ptmalloc import HeapBuilder

RELEASES = ["2.36", "2.44"]
NB = 0x100  # bytes of the chunk that a moment hands out
SPLIT = 0x1000  # bytes of the chunk that it is split from
FORWARD, BACK = 16, 24


class Moment:
    """A heap with a used chunk between any two free ones: an unsorted one, small ones of three bins, and top.

    :param thread: whether all of it lies in a thread arena.
    """

    def __init__(self, release, thread=False):
        self.builder = HeapBuilder(X86_64, release)
        self.builder.add_thread()
        self.arena = self.builder.add_arena() if thread else self.builder.main
        self.mark = 4 if thread else 0
        self.split = self._chunk(SPLIT, "unsorted")
        self.small = [self._chunk(size, "bin") for size in (0x180, 0x200, 0x280) for _ in range(2)]
        self.arena.chunk(0x40)
        self.arena.top_size = 0x21000
        self.image = self.builder.build()

    def _chunk(self, size, state):
        self.arena.chunk(0x40)
        return self.arena.chunk(size, state)

    @property
    def unsorted(self):
        return self.arena.address + self.builder.malloc_state.offset("bins") - 16

    def head(self, chunk, size, flags=1):
        self.image.poke(chunk + 8, size | flags)

    def link(self, before, after):
        self.image.poke(before + FORWARD, after)
        self.image.poke(after + BACK, before)

    def state(self, **values):
        self.image.put(self.builder.malloc_state, self.arena.address, **values)

    def problems(self, **target):
        heap = read_heap(self.image.target(**target), SILENT)
        return [one for one in neutral(heap).problems if one.kind != "system-mem"]

    def damage(self, **target):
        return {one.kind for one in self.problems(**target) if one.corruption}


# -- moments: of each, the kinds of damage that it is at rest ------------------------------------------


def remainder_is_listed(heap):
    """``_int_malloc``, last_remainder: ``unsorted_chunks (av)->bk = unsorted_chunks (av)->fd = remainder``."""
    heap.link(heap.unsorted, heap.split + NB)
    heap.link(heap.split + NB, heap.unsorted)
    return {"list-chunk", "free-unlisted"}


def large_remainder_is_listed(heap):
    """The same, where the bytes that a header and a skip list will have are still the program's."""
    for place in (8, 32, 40):
        heap.image.poke(heap.split + NB + place, 0x3AA0)
    return remainder_is_listed(heap) | {"bin-nextsize"}


def victim_has_its_size(heap):
    """``set_head (victim, nb | PREV_INUSE | …)`` before ``set_head (remainder, …)``."""
    heap.head(heap.split, NB, 1 | heap.mark)
    return remainder_is_listed(heap) - {"free-unlisted"} | {"chunk-size"}


def half_unlinked(heap):
    """``unlink_chunk``: ``fd->bk = bk`` before ``bk->fd = fd``."""
    first, second = heap.small[:2]
    heap.image.poke(second + BACK, heap.image.peek(first + BACK))
    return {"bin-link"}


def last_is_half_taken(heap):
    """``_int_malloc``: ``unsorted_chunks (av)->bk = bck`` before ``bck->fd = unsorted_chunks (av)``."""
    heap.image.poke(heap.unsorted + BACK, heap.unsorted)
    return {"bin-link"}


def exact_fit(heap):
    """``set_inuse_bit_at_offset (victim, nb)`` before the chunk is out of its bin."""
    chunk = heap.small[0]
    heap.head(chunk + 0x180, 0x40, 1 | heap.mark)
    return {"bin-in-use"}


def page_given_back(heap):
    """``systrim`` and ``heap_trim``: before ``set_head (av->top, …)`` top is as large as it was."""
    heap.head(heap.arena.top, (heap.image.peek(heap.arena.top + 8) & ~7) + 0x5000)
    return {"top-size"}


def split_in_its_bin(heap):
    """``set_head (victim, nb | …)``, which the compiler of a glibc 2.43 has put before ``unlink_chunk``."""
    chunk = heap.small[0]
    heap.head(chunk, 0x40, 1 | heap.mark)
    heap.head(chunk + 0x40, 0x140)
    heap.image.poke(chunk + 0x180, 0x140)
    return {"bin-size", "free-unlisted"}


MOMENTS = [
    remainder_is_listed,
    large_remainder_is_listed,
    victim_has_its_size,
    half_unlinked,
    last_is_half_taken,
    exact_fit,
    split_in_its_bin,
    page_given_back,
]
each = pytest.mark.parametrize("moment", MOMENTS)
both = pytest.mark.parametrize("thread", [False, True])
of_releases = pytest.mark.parametrize(
    "release", [one if at % 3 == 0 else pytest.param(one, marks=pytest.mark.full) for at, one in enumerate(RELEASES)]
)


@of_releases
@both
def test_the_heap_before_any_moment_is_sound(release, thread):
    assert Moment(release, thread).problems() == []


@of_releases
@both
@each
def test_a_moment_of_a_locked_arena_is_no_damage(release, thread, moment):
    heap = Moment(release, thread)
    kinds = moment(heap)
    heap.state(mutex=1)
    problems = heap.problems()
    assert kinds <= {one.kind for one in problems}
    assert not any(one.corruption for one in problems)
    assert all(one.message.endswith("; its arena is in flux") for one in problems)


@of_releases
@both
@each
def test_the_same_is_damage_in_an_arena_at_rest(release, thread, moment):
    heap = Moment(release, thread)
    kinds = moment(heap)
    assert kinds <= heap.damage()
    assert not any("in flux" in one.message for one in heap.problems())


@each
def test_the_same_is_damage_where_another_arena_is_locked(moment):
    heap = Moment("2.36")
    kinds = moment(heap)
    other = heap.builder.add_arena()
    other.mutex = 1
    changed = heap.builder.build()  # with the other arena; then the moment, once more
    heap.image = changed
    moment(heap)
    assert kinds <= heap.damage()


@each
def test_the_same_is_damage_where_malloc_aborted_with_the_lock_held(moment):
    heap = Moment("2.36")
    kinds = moment(heap)
    heap.state(mutex=1)
    assert kinds - {"free-unlisted"} <= heap.damage(signal=SignalInfo(SIGABRT, lwp=1001))


def test_a_chunk_of_a_thread_arena_without_its_bit():
    """An exact fit is out of its bin and in use before ``set_non_main_arena (victim)``."""
    heap = Moment("2.36", thread=True)
    chunk, behind = heap.small[:2]
    heap.link(behind, heap.image.peek(behind + FORWARD))
    heap.link(heap.image.peek(chunk + BACK), behind)
    exact_fit(heap)
    assert heap.damage() == {"chunk-flags"}
    heap.state(mutex=1)
    assert heap.damage() == set()
    heap.head(chunk, 0x180, 1 | 2)  # IS_MMAPPED is no bit of an arena
    assert heap.damage() == {"chunk-flags"}


# -- what no single operation leaves -------------------------------------------------------------------


def three_links(heap):
    for chunk in heap.small[1::2]:
        heap.image.poke(chunk + BACK, 0x1230)
    return "bin-link"


def three_sizes(heap):
    for chunk in (heap.split, *heap.small[2:5:2]):
        heap.head(chunk, 0x13)
    return "chunk-size"


def an_odd_top(heap):
    heap.head(heap.arena.top, 0x7FFFFFF0)
    return "top-size"


def a_cycle(heap):
    heap.link(heap.small[1], heap.small[0])
    return "bin-cycle"


@of_releases
@both
@pytest.mark.parametrize("wreck", [three_links, three_sizes, an_odd_top, a_cycle])
def test_what_no_operation_leaves_is_damage_in_a_locked_arena_too(release, thread, wreck):
    heap = Moment(release, thread)
    kind = wreck(heap)
    heap.state(mutex=1)
    assert kind in heap.damage()


# -- the only thread locks nothing ---------------------------------------------------------------------

IN_MALLOC, IN_LIBC = 0x11000, 0x20000  # from the start of libc
MESSAGE = 0x200000 + 0x3100  # __abort_msg, in libc's data
FUNCTIONS = {
    "timer_delete": (0x10000, 0x20),
    "__default_morecore": (0x10F00, 0x30),
    "malloc": (0x12000, 0x300),
    "malloc_info": (0x13000, 0x16),
    "read": (IN_LIBC, 0x100),
}


def with_symbols(heap):
    """Put an ELF header and a dynamic symbol table where libc begins, with malloc's code from 0x10020 to 0x13016."""
    writer, base = Writer(), heap.builder.libc
    names, rows = b"\0", struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for name, (value, size, kind) in {
        **{name: (*place, 2) for name, place in FUNCTIONS.items()},
        "__abort_msg": (MESSAGE, 8, 1),
    }.items():
        rows += struct.pack("<IBBHQQ", len(names), 0x10 | kind, 0, 5, value, size)
        names += name.encode() + b"\0"
    symbols, dynamic = 0x200, 0x800
    tags = struct.pack("<8Q", 5, base + symbols + len(rows), 6, base + symbols, 10, len(names), 0, 0)
    loads = [(PT_LOAD, 0, 0x204000), (2, dynamic, len(tags))]
    table = b"".join(struct.pack("<IIQQQQQQ", kind, 6, at, at, at, size, size, 8) for kind, at, size in loads)
    image = heap.image.segments[base]
    for at, data in ((0, writer.header(3, 2)), (64, table), (symbols, rows + names), (dynamic, tags)):
        image[at : at + len(data)] = data
    return heap


def the_thread(heap, pc, stack=()):
    """Return the only thread: its program counter, and words that stand on its stack."""
    (thread,) = heap.image.target().threads
    place = heap.builder.tps[1] + 0x400
    for at in range(32):
        heap.image.poke(place + 8 * at, 0)
    for at, word in stack:
        heap.image.poke(place + 8 * at, word)
    return {"threads": (replace(thread, stack_pointer=place, registers={"rip": pc}),)}


def a_moment(moment=half_unlinked):
    heap = with_symbols(Moment("2.36"))
    moment(heap)
    return heap, heap.builder.libc


@each
def test_the_only_thread_is_inside_malloc(moment):
    heap, libc = a_moment(moment)
    assert heap.damage(**the_thread(heap, libc + IN_MALLOC)) == set()


@pytest.mark.parametrize("pc", [0x10020, 0x10F00, 0x13015])
def test_the_first_and_the_last_of_mallocs_code(pc):
    heap, libc = a_moment()
    assert heap.damage(**the_thread(heap, libc + pc)) == set()


@pytest.mark.parametrize("pc", [0x1001F, 0x13016])
def test_code_beside_it_is_not_mallocs(pc):
    heap, libc = a_moment()
    assert heap.damage(**the_thread(heap, libc + pc)) == {"bin-link"}


def test_the_only_thread_is_in_what_malloc_calls():
    heap, libc = a_moment()
    assert heap.damage(**the_thread(heap, libc + IN_LIBC, [(6, libc + IN_MALLOC)])) == set()


def test_the_only_thread_waits_in_libc():
    heap, libc = a_moment()
    assert heap.damage(**the_thread(heap, libc + IN_LIBC, [(30, libc + IN_MALLOC)])) == {"bin-link"}


def test_the_only_thread_is_in_the_program():
    """What malloc left on the stack when it was called before says nothing."""
    heap, libc = a_moment()
    assert heap.damage(**the_thread(heap, 0x401000, [(1, libc + IN_MALLOC)])) == {"bin-link"}


def test_it_died_inside_malloc():
    heap, libc = a_moment()
    signal = SignalInfo(SIGSEGV, lwp=1001)
    assert heap.damage(signal=signal, **the_thread(heap, libc + IN_MALLOC)) == {"bin-link"}


@pytest.mark.parametrize("locked", [0, 1])
def test_a_debugger_has_stopped_it_where_malloc_faults(locked):
    heap, libc = a_moment()
    heap.state(mutex=locked)
    (thread,) = the_thread(heap, libc + IN_MALLOC)["threads"]
    assert heap.damage(threads=(thread,)) == set()
    assert heap.damage(threads=(replace(thread, signal=SIGSEGV),)) == {"bin-link"}


def test_where_malloc_is_not_known_the_answer_says_so():
    heap = Moment("2.36")
    thread = the_thread(heap, heap.builder.libc + IN_MALLOC)
    assert heap.problems(**thread) == []
    half_unlinked(heap)
    problems = heap.problems(**thread)
    assert [(one.kind, one.corruption) for one in problems] == [("bin-link", True), ("malloc-unknown", False)]


def test_one_of_several_threads_locks_the_arena_that_it_works_on():
    heap, libc = a_moment()
    (thread,) = the_thread(heap, libc + IN_MALLOC)["threads"]
    assert heap.damage(threads=(thread, replace(thread, number=2, lwp=1002))) == {"bin-link"}


# -- the process died, with an arena locked ------------------------------------------------------------


def test_a_thread_died_elsewhere_while_another_was_inside_malloc():
    heap, libc = a_moment()
    heap.state(mutex=1)
    signal = SignalInfo(SIGSEGV, lwp=1001)
    assert heap.damage(signal=signal, **the_thread(heap, 0x401000)) == set()
    assert heap.damage(signal=signal, **the_thread(heap, libc + IN_MALLOC)) == {"bin-link"}


def test_an_abort_that_is_not_mallocs():
    heap, libc = a_moment()
    heap.state(mutex=1)
    signal, thread = SignalInfo(SIGABRT, lwp=1001), the_thread(heap, libc + IN_LIBC)
    assert heap.damage(signal=signal, **thread) == set()
    heap.image.poke(libc + MESSAGE, 0x7F0000001000)
    assert heap.damage(signal=signal, **thread) == {"bin-link"}


def test_malloc_aborted_and_the_process_goes_on():
    """A handler of SIGABRT hangs: no signal is pending, and the message stands there."""
    heap, libc = a_moment()
    heap.state(mutex=1)
    assert heap.damage(**the_thread(heap, libc + IN_LIBC)) == set()
    heap.image.poke(libc + MESSAGE, 0x7F0000001000)
    assert heap.damage(**the_thread(heap, libc + IN_LIBC)) == {"bin-link"}

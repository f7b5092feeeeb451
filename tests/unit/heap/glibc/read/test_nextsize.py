"""Skip lists of large bins: each damage is found, and what malloc leaves in them is none.

Healthy rings are laid out by tests/support/ptmalloc.py as ``_int_malloc`` hangs chunks in.
"""

from __future__ import annotations

import pytest

from gdbext.abi import I386, X86_64, Abi
from gdbext.heap.glibc.heap import neutral
from gdbext.heap.glibc.read.build import read_heap
from gdbext.memory import Region
from gdbext.progress import SILENT
from tests.support.ptmalloc import RELEASES, HeapBuilder

MATRIX = [(X86_64, release) for release in RELEASES] + [
    (I386, "2.23"),
    (I386, "2.36"),
    (I386, "2.43"),
    (Abi(4, "little", "arm"), "2.36"),
    (Abi(8, "big", "s390x"), "2.36"),
]
matrix = pytest.mark.parametrize("abi, release", MATRIX, ids=lambda value: getattr(value, "machine", value))
FD, BK = 4, 5  # fd_nextsize and bk_nextsize are words 4 and 5 of a chunk
# One bin on every ABI (large bins are 64 bytes wide there, and 1024 begins one); descending.
SIZES = {
    "one": [0x400],
    "two": [0x410, 0x400],
    "many": [0x430, 0x420, 0x410, 0x400],
    "equal": [0x420] * 3 + [0x410] * 2,
}


def laid_out(sizes, abi=X86_64, release="2.36", mutex=0, state="bin"):
    """A heap with free chunks of these sizes in one large bin, and their addresses in the bin's order."""
    builder = HeapBuilder(abi, release)
    freed = []
    for size in sizes:
        freed.append(builder.main.chunk(size, state))
        builder.main.chunk(0x40)
    builder.main.mutex = mutex
    assert {builder.sizes.bin_index(size) for size in sizes} == {builder.sizes.bin_index(sizes[0])}
    return builder.build(), freed


def problems_of(target):
    return list(neutral(read_heap(target, SILENT)).problems)


def link(image, chunk, member, value):
    image.poke(chunk + member * image.builder.sizes.word, value)


def found(image):
    return [(problem.kind, problem.address) for problem in problems_of(image.target()) if problem.corruption]


@matrix
@pytest.mark.parametrize("sizes", SIZES)
def test_a_sound_ring_is_silent(abi, release, sizes):
    image, _ = laid_out(SIZES[sizes], abi, release)
    assert problems_of(image.target()) == []


@matrix
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("member", [FD, BK])
def test_every_link_of_the_ring_is_held_to_the_bin(abi, release, sizes, member):
    _, freed = laid_out(SIZES[sizes], abi, release)
    for at, chunk in enumerate(freed):
        image, _ = laid_out(SIZES[sizes], abi, release)
        link(image, chunk, member, 0x41414140)
        assert found(image) == [("bin-nextsize", chunk)], at


def test_a_ring_that_leaves_a_size_out():
    image, freed = laid_out(SIZES["many"])
    link(image, freed[0], FD, freed[2])
    link(image, freed[2], BK, freed[0])
    assert found(image) == [("bin-nextsize", freed[0]), ("bin-nextsize", freed[2])]


def test_a_ring_that_closes_too_early_ends():
    image, freed = laid_out(SIZES["many"])
    link(image, freed[2], FD, freed[1])
    assert found(image) == [("bin-nextsize", freed[2])]


def test_a_ring_that_does_not_close():
    image, freed = laid_out(SIZES["two"])
    link(image, freed[1], FD, 0)
    assert found(image) == [("bin-nextsize", freed[1])]


def test_only_the_first_chunk_of_a_size_is_in_the_ring():
    image, freed = laid_out(SIZES["equal"])
    link(image, freed[1], FD, freed[3])
    link(image, freed[1], BK, freed[0])
    assert found(image) == [("bin-nextsize", freed[1])] * 2


def put_in_order(image, chunks):
    sizes, builder = image.builder.sizes, image.builder
    index = sizes.bin_index(0x400)
    header = builder.main.address + builder.malloc_state.offset("bins") + (index - 2) * 2 * sizes.word
    order = [header, *chunks]
    for node, after in zip(order, order[1:] + order[:1]):
        image.poke(node + sizes.header, after)
        image.poke(after + sizes.header + sizes.word, node)


@matrix
def test_sizes_that_do_not_descend(abi, release):
    image, freed = laid_out(SIZES["many"], abi, release)
    put_in_order(image, [freed[1], freed[0], freed[2], freed[3]])
    assert found(image) == [("bin-order", freed[0])]


def test_the_message_says_what_was_read_and_what_was_expected():
    image, freed = laid_out(SIZES["two"])
    link(image, freed[0], FD, 0x4141414141414141)
    (problem,) = problems_of(image.target())
    for text in ("fd_nextsize", f"{freed[0]:#x} is 0x4141414141414141", f"expected {freed[1]:#x}"):
        assert text in problem.message


@pytest.mark.parametrize("state,said", (
    ("bin", "large bin 64: 149 more links to the next size"),
    ("unsorted", "unsorted bin 1: 149 more links to the next size"),  # it has no skip list
))  # fmt: skip
def test_a_wrecked_bin_is_listed_in_bounds(state, said):
    sizes = [0x400] * 200
    image, freed = laid_out(sizes, state=state)
    assert problems_of(image.target()) == []
    for chunk in freed[1:]:
        link(image, chunk, FD, 0x41)
    problems = problems_of(image.target())
    assert len(problems) == 51 and problems[-1].message == said
    assert all(problem.corruption for problem in problems)


def test_a_bin_in_the_wrong_order_is_listed_in_bounds():
    image, freed = laid_out([0x410] * 60 + [0x400] * 60)
    put_in_order(image, [chunk for pair in zip(freed[60:], freed) for chunk in pair])
    said = [problem.message for problem in problems_of(image.target())]
    assert len(said) == 51 and said[-1] == "large bin 64: 10 more chunks larger than the one before"


# -- in flux: every moment of a chunk that comes or goes ---------------------------------------------


def leave_bin(image, chunk, before, after):
    header, word = image.builder.sizes.header, image.builder.sizes.word
    image.poke(before + header, after)
    image.poke(after + header + word, before)


def half_unlinked():
    """``unlink_chunk`` has taken the second of four sizes out of the bin, and not out of the ring.

    As a chunk that ``_int_malloc`` has hung into the ring, and not yet into the bin.
    """
    image, freed = laid_out(SIZES["many"], mutex=1)
    leave_bin(image, freed[1], freed[0], freed[2])
    return image


def half_handed_over():
    """The first of three equal chunks is out of the bin; the second has not got its place in the ring."""
    image, freed = laid_out([0x430] + SIZES["equal"], mutex=1)
    leave_bin(image, freed[1], freed[0], freed[2])
    return image


def half_inserted():
    """The same, with one of the two links to the chunk set."""
    image, freed = laid_out(SIZES["many"], mutex=1)
    leave_bin(image, freed[1], freed[0], freed[2])
    link(image, freed[0], FD, freed[2])
    return image


@pytest.mark.parametrize("moment", [half_unlinked, half_handed_over, half_inserted])
def test_a_chunk_on_its_way_is_no_damage(moment):
    image = moment()
    assert found(image) == []
    passing = [problem for problem in problems_of(image.target()) if problem.kind == "bin-nextsize"]
    assert passing and all(problem.message.endswith("in flux") for problem in passing)


@pytest.mark.parametrize("moment", [half_unlinked, half_handed_over])
def test_the_same_with_no_thread_inside_malloc_is_damage(moment):
    image = moment()
    image.put(image.builder.malloc_state, image.builder.main.address, mutex=0)
    assert "bin-nextsize" in {kind for kind, _ in found(image)}


def test_what_malloc_aborted_on_is_damage_though_its_lock_is_held():
    image, freed = laid_out(SIZES["two"], mutex=1)
    link(image, freed[0], BK, 0x4141414141414141)
    assert found(image) == [("bin-nextsize", freed[0])]


# -- memory that the core lacks ----------------------------------------------------------------------


def test_links_that_the_core_lacks_are_absence():
    builder = HeapBuilder()
    room = -(builder.main.top + 32) % 4096 + 4096
    builder.main.chunk(room)
    chunk = builder.main.chunk(0x2000, "bin")  # fd and bk end a page, fd_nextsize begins the next
    builder.main.chunk(0x40)
    assert (chunk + 32) % 4096 == 0
    image = builder.build()
    link(image, chunk, FD, 0x41)
    assert found(image) == [("bin-nextsize", chunk)]
    ((start, held),) = [(s, b) for s, b in image.segments.items() if s <= chunk < s + len(b)]
    cut = chunk + 32
    del image.segments[start]
    image.segments[start] = held[: cut - start]
    image.segments[cut + 4096] = held[cut + 4096 - start :]
    (region,) = [one for one in image.regions if one.start == start]
    image.regions.remove(region)
    image.regions += [
        Region(start, cut, "rw-"),
        Region(cut, cut + 4096, "rw-", "", 0, "absent"),
        Region(cut + 4096, region.end, "rw-"),
    ]
    assert found(image) == []

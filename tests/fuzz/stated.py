"""Damage that malloc itself would abort on, each with the words that it aborts with: a check must report it.

The words are those of ``malloc/malloc.c`` of glibc 2.31 to 2.44, and what they are said of is what stands there.
"""

from __future__ import annotations

from typing import Mapping

from gdbext.heap.model import State
from tests.fuzz.draw import Draw, NotHere
from tests.fuzz.mutators import Mutator
from tests.fuzz.places import Chunk

_BINNED = (State.UNSORTED, State.SMALL, State.LARGE)
_TCACHE_MOST = 0x410  # the largest chunk that tcache and fastbins take, up to 2.41


def _chunk(draw: Draw, *states: State, least: int = 0) -> Chunk:
    return draw.pick([one for one in draw.places.chunks if one.state in states and one.size > least])


def _elsewhere(draw: Draw, chunk: Chunk) -> int:
    """Return a chunk in use, which no list leads to and that leads to none."""
    used = [one.address for one in draw.places.chunks if one.state is State.IN_USE and one.address != chunk.address]
    return draw.pick(used)


def _states(draw: Draw, words: str) -> None:
    draw.mutation.reported = words


def free_fd(draw: Draw) -> None:
    """The next of a free chunk does not lead back."""
    chunk = _chunk(draw, *_BINNED)
    draw.poke(chunk.address + 2 * draw.image.word, _elsewhere(draw, chunk), "fd")
    _states(draw, "corrupted double-linked list")


def free_bk(draw: Draw) -> None:
    """The previous of a free chunk does not lead to it."""
    chunk = _chunk(draw, *_BINNED)
    draw.poke(chunk.address + 3 * draw.image.word, _elsewhere(draw, chunk), "bk")
    _states(draw, "corrupted double-linked list")


def free_size(draw: Draw) -> None:
    """A free chunk's size is not what stands behind it."""
    chunk, word = _chunk(draw, *_BINNED), draw.image.word
    size = chunk.size + draw.pick((16, 32, -16, 4096))
    if size < 4 * word or draw.image.number(chunk.address + size) in (None, size):
        raise NotHere
    flags = draw.number(chunk.address + word) & 7
    draw.poke(chunk.address + word, size | flags, "size")
    _states(draw, "corrupted size vs. prev_size")


def free_prev_size(draw: Draw) -> None:
    """What stands behind a free chunk is not its size."""
    chunk = _chunk(draw, *_BINNED)
    draw.poke(chunk.address + chunk.size, chunk.size ^ draw.pick((16, 64, 1 << 20)), "prev_size")
    _states(draw, "corrupted size vs. prev_size")


def nextsize(draw: Draw) -> None:
    """The skip list of a large bin leads astray."""
    large = [one for one in draw.places.chunks if one.state is State.LARGE]
    chunk, word = draw.pick([one for one in large if draw.image.number(one.address + 4 * draw.image.word)]), 0
    word = draw.image.word
    draw.poke(chunk.address + draw.pick((4, 5)) * word, _elsewhere(draw, chunk), "nextsize")
    _states(draw, "corrupted double-linked list (not small)")


def top_size(draw: Draw) -> None:
    """The top chunk is larger than all that its arena has."""
    chunk = _chunk(draw, State.TOP)
    draw.poke(chunk.address + draw.image.word, draw.pick((-8, 1 << 30)) | 1, "top size")
    _states(draw, "malloc(): corrupted top size")


def used_size(draw: Draw) -> None:
    """The size of a chunk in use is none that a chunk can have."""
    if draw.places.alignment != 16:
        raise NotHere
    chunk, word = _chunk(draw, State.IN_USE), draw.image.word
    flags = draw.number(chunk.address + word) & 5
    draw.poke(chunk.address + word, draw.pick((chunk.size | 8, word | 0)) | flags, "size")
    _states(draw, "free(): invalid size")


def previous_in_use(draw: Draw) -> None:
    """A chunk in use is free by its neighbour's flags."""
    chunk = _chunk(draw, State.IN_USE, least=_TCACHE_MOST)
    at = chunk.address + chunk.size + draw.image.word
    draw.poke(at, draw.number(at) & ~1, "PREV_INUSE")
    _states(draw, "double free or corruption (!prev)")


def tcache_entry(draw: Draw) -> None:
    """The first of a tcache list is no chunk."""
    address, layout = draw.pick(draw.places.structs.get("tcache", ()))
    member, word = layout.member("entries"), draw.image.word
    places = [address + member.offset + word * index for index in range(member.count)]
    at = draw.pick([one for one in places if draw.image.number(one)])
    draw.poke(at, draw.number(at) | word, "tcache entry")
    _states(draw, "malloc(): unaligned tcache chunk detected")


def fastbin(draw: Draw) -> None:
    """The first of a fastbin is no chunk."""
    address, layout = draw.pick(draw.places.structs.get("malloc_state", ()))
    if "fastbinsY" not in layout:
        raise NotHere
    member, word = layout.member("fastbinsY"), draw.image.word
    places = [address + member.offset + word * index for index in range(member.count)]
    at = draw.pick([one for one in places if draw.image.number(one)])
    draw.poke(at, draw.number(at) | word, "fastbin")
    _states(draw, "malloc(): unaligned fastbin chunk detected")


def mmapped(draw: Draw) -> None:
    """A chunk in a mapping of its own does not begin where the mapping does."""
    # memalign leaves a second header at the mapping's start, which holds by itself
    whole = [one for one in draw.places.chunks if one.state is State.MMAPPED and one.address % 4096 == 0]
    chunk = draw.pick(whole)
    draw.poke(chunk.address, draw.number(chunk.address) + 16, "prev_size of an mmapped chunk")
    _states(draw, "munmap_chunk(): invalid pointer")


def bitmap(draw: Draw) -> None:
    """A slab's bitmap and its count of free regions differ."""
    address, layout = draw.pick(draw.places.structs.get("slab", ()))
    at = address + layout.member("bitmap").offset
    draw.poke(at, draw.number(at) ^ 1, "bitmap")
    _states(draw, "jemalloc's slab contradicts itself")


def owner(draw: Draw) -> None:
    """An extent in use belongs to an arena that there is not."""
    address, layout = draw.pick(draw.places.structs.get("slab", ()))
    at = address + layout.member("bits").offset
    draw.poke(at, draw.number(at) | 0xFFF, "e_bits")
    _states(draw, "jemalloc's extent has no arena")


STATED: Mapping[str, Mutator] = {
    f"stated_{one.__name__}": one
    for one in (
        free_fd, free_bk, free_size, free_prev_size, nextsize, top_size, used_size, previous_in_use, tcache_entry,
        fastbin, mmapped, bitmap, owner,
    )
}  # fmt: skip

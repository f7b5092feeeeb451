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


def _astray(word: int, name: str, words: str, *states: State) -> Mutator:
    def lead_astray(draw: Draw) -> None:
        chunk = _chunk(draw, *states)
        at = chunk.address + word * draw.image.word
        if not draw.number(at):  # a large chunk that is not on the skip list
            raise NotHere
        draw.poke(at, _elsewhere(draw, chunk), name)
        draw.mutation.reported = words

    lead_astray.__doc__ = f"The {name} of a free chunk leads to one that does not lead back."
    return lead_astray


def _head(struct: str, member: str, words: str) -> Mutator:
    def spoil(draw: Draw) -> None:
        address, layout = draw.pick(draw.places.structs.get(struct, ()))
        if member not in layout:
            raise NotHere
        place, word = layout.member(member), draw.image.word
        places = [address + place.offset + word * index for index in range(place.count or 1)]
        at = draw.pick([one for one in places if draw.image.number(one)])
        draw.poke(at, draw.number(at) | word, member)
        draw.mutation.reported = words

    spoil.__doc__ = f"The first of a list in {member} is no chunk."
    return spoil


def free_size(draw: Draw) -> None:
    """A free chunk's size is not what stands behind it."""
    chunk, word = _chunk(draw, *_BINNED), draw.image.word
    size = chunk.size + draw.pick((16, 32, -16, 4096))
    if size < 4 * word or draw.image.number(chunk.address + size) in (None, size):
        raise NotHere
    flags = draw.number(chunk.address + word) & 7
    draw.poke(chunk.address + word, size | flags, "size")
    draw.mutation.reported = "corrupted size vs. prev_size"


def free_prev_size(draw: Draw) -> None:
    """What stands behind a free chunk is not its size."""
    chunk = _chunk(draw, *_BINNED)
    draw.poke(chunk.address + chunk.size, chunk.size ^ draw.pick((16, 64, 1 << 20)), "prev_size")
    draw.mutation.reported = "corrupted size vs. prev_size"


def top_size(draw: Draw) -> None:
    """The top chunk is larger than all that its arena has."""
    chunk = _chunk(draw, State.TOP)
    draw.poke(chunk.address + draw.image.word, draw.pick((-8, 1 << 30)) | 1, "top size")
    draw.mutation.reported = "malloc(): corrupted top size"


def used_size(draw: Draw) -> None:
    """The size of a chunk in use is none that a chunk can have."""
    if draw.places.alignment != 16:
        raise NotHere
    chunk, word = _chunk(draw, State.IN_USE), draw.image.word
    flags = draw.number(chunk.address + word) & 5
    draw.poke(chunk.address + word, draw.pick((chunk.size | 8, word | 0)) | flags, "size")
    draw.mutation.reported = "free(): invalid size"


def previous_in_use(draw: Draw) -> None:
    """A chunk in use is free by its neighbour's flags."""
    chunk = _chunk(draw, State.IN_USE, least=_TCACHE_MOST)
    at = chunk.address + chunk.size + draw.image.word
    draw.poke(at, draw.number(at) & ~1, "PREV_INUSE")
    draw.mutation.reported = "double free or corruption (!prev)"


def mmapped(draw: Draw) -> None:
    """A chunk in a mapping of its own does not begin where the mapping does."""
    # memalign leaves a second header at the mapping's start, which holds by itself
    whole = [one for one in draw.places.chunks if one.state is State.MMAPPED and one.address % 4096 == 0]
    chunk = draw.pick(whole)
    draw.poke(chunk.address, draw.number(chunk.address) + 16, "prev_size of an mmapped chunk")
    draw.mutation.reported = "munmap_chunk(): invalid pointer"


def bitmap(draw: Draw) -> None:
    """A slab's bitmap and its count of free regions differ."""
    address, layout = draw.pick(draw.places.structs.get("slab", ()))
    at = address + layout.member("bitmap").offset
    draw.poke(at, draw.number(at) ^ 1, "bitmap")
    draw.mutation.reported = "jemalloc's slab contradicts itself"


def owner(draw: Draw) -> None:
    """An extent in use belongs to an arena that there is not."""
    address, layout = draw.pick(draw.places.structs.get("slab", ()))
    at = address + layout.member("bits").offset
    draw.poke(at, draw.number(at) | 0xFFF, "e_bits")
    draw.mutation.reported = "jemalloc's extent has no arena"


_UNLINK = "corrupted double-linked list"

STATED: Mapping[str, Mutator] = {
    "stated_free_fd": _astray(2, "fd", _UNLINK, *_BINNED),
    "stated_free_bk": _astray(3, "bk", _UNLINK, *_BINNED),
    "stated_nextsize": _astray(4, "fd_nextsize", f"{_UNLINK} (not small)", State.LARGE),
    "stated_bk_nextsize": _astray(5, "bk_nextsize", f"{_UNLINK} (not small)", State.LARGE),
    "stated_tcache_entry": _head("tcache", "entries", "malloc(): unaligned tcache chunk detected"),
    "stated_fastbin": _head("malloc_state", "fastbinsY", "malloc(): unaligned fastbin chunk detected"),
    **{
        f"stated_{one.__name__}": one
        for one in (free_size, free_prev_size, top_size, used_size, previous_in_use, mmapped, bitmap, owner)
    },
}

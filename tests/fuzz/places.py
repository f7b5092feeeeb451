"""Where structures lie in an undamaged core. A run of the library over it says so: places only, it judges nothing.

What the program said of itself (``truth``) gives its tables, lists, locks and blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterator

import gdbext
from gdbext.errors import NoHeapError
from gdbext.heap.glibc.sizes import sizes_for
from gdbext.heap.model import State
from gdbext.layout import StructLayout
from gdbext.process import Module
from gdbext.session import Session
from tests.fuzz.image import Image

_MANY = 400  # instances of one structure


@dataclass(frozen=True)
class Chunk:
    """A chunk of glibc's: its address, its size with the header, and what it is."""

    address: int
    size: int
    state: State


@dataclass
class Places:
    """Places by what lies there.

    :param structs: address and layout of each instance, by the structure's name.
    :param words: addresses of single words, by what they are.
    :param blocks: user address and usable bytes of the program's own blocks.
    :param block: an address in some block.
    """

    structs: dict[str, list[tuple[int, StructLayout]]] = field(default_factory=dict)
    words: dict[str, list[int]] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    blocks: list[tuple[int, int]] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    alignment: int = 16
    block: int = 0

    def add(self, name: str, address: int, layout: StructLayout) -> None:
        """Note one instance of a structure."""
        known = self.structs.setdefault(name, [])
        if address and len(known) < _MANY:
            known.append((address, layout))

    def add_word(self, name: str, address: int) -> None:
        """Note one word."""
        known = self.words.setdefault(name, [])
        if len(known) < _MANY:
            known.append(address)


def read_places(image: Image, truth: dict[str, Any]) -> Places:
    """Return the places of a core."""
    places = Places()
    with gdbext.open_core(image.path) as session:
        places.modules = list(session.target.modules)
        _add_threads(places, session)
        try:
            for heap in session.heaps():
                if heap.detail is not None and len(heap.blocks):
                    places.block = int(heap.blocks.address[len(heap.blocks) // 2])
                    {"glibc": _add_glibc, "jemalloc": _add_jemalloc}[heap.family](places, session, heap.detail)
        except NoHeapError:
            pass
    _add_truth(places, truth)
    return places


def _add_threads(places: Places, session: Session) -> None:
    for thread in session.target.threads:
        for at in range(0, 4096 if thread.stack_pointer else 0, 8):
            places.add_word("stack", (thread.stack_pointer or 0) + at)
        for at in range(-128, 256, 8):
            places.add_word("tls", (thread.tls or 0) + at)


# ---- glibc ----


def _add_glibc(places: Places, session: Session, detail: Any) -> None:
    location, word = detail.location, session.target.abi.pointer_size
    places.alignment = location.alignment
    sizes = sizes_for(session.target.abi, location.alignment)
    for address in location.arenas:
        places.add("malloc_state", address, location.malloc_state)
    for arena in detail.arenas:
        for one in arena.heaps:
            places.add("heap_info", one.address, location.heap_info)
    if location.malloc_par:
        places.add("malloc_par", location.malloc_par, location.malloc_par_layout)
    for cache in detail.caches:
        places.add("tcache", cache.at.address, cache.at.layout.struct)
    for user, kind in zip(detail.blocks.address.tolist(), detail.blocks.state.tolist()):
        chunk = user - 2 * word
        whole = session.target.reader.word(chunk + word) & ~(sizes.alignment - 1 if word == 8 else 7)
        if len(places.chunks) < 20 * _MANY:
            places.chunks.append(Chunk(chunk, whole, State(kind)))
        for name, at in (("prev_size", 0), ("size", 1), ("fd", 2), ("bk", 3)):
            places.add_word(f"chunk {name}", chunk + at * word)
        if kind in (State.LARGE, State.UNSORTED):
            places.add_word("chunk nextsize", chunk + 4 * word)
            places.add_word("chunk nextsize", chunk + 5 * word)


# ---- jemalloc ----


def _add_jemalloc(places: Places, session: Session, detail: Any) -> None:
    location = detail.location
    layout = location.layout
    for index in range(16):
        places.add_word("arenas table", location.arenas + 8 * index)
    for name, address in location.symbols.items():
        places.add_word(f"global {name}", address)
    for arena in detail.arenas:
        places.add("arena", arena.address, layout["arena"])
        places.add("base", arena.base.address, layout["base"])
        for cache in (arena.dirty, arena.muzzy, arena.retained):
            places.add("cache", cache.address, layout["cache"])
        for decay in (arena.decay_dirty, arena.decay_muzzy):
            places.add("decay", decay.address, layout["decay"])
        for state in arena.bins:
            for shard in state.shards:
                places.add("bin", shard.address, layout["bin"])
    for edata in detail.extents.edata.tolist():
        places.add("extent", edata, layout["extent"])
    slabs = detail.extents.edata[detail.extents.slab].tolist()
    for edata in slabs:
        places.add("slab", edata, layout["extent"])
    for one in detail.tsds or ():
        places.add("tsd", one.address, layout["tsd"])
    for one in detail.tcaches or ():
        places.add("je tcache", one.address, layout["tcache"])
        for bin_ in one.bins:
            for at in range(8):
                places.add_word("cached objects", one.address + 24 * bin_.szind + 8 * at)
    for at in _used_nodes(session, detail):
        places.add_word("rtree", at)


def _used_nodes(session: Session, detail: Any) -> Iterator[int]:
    """Iterate over elements of the radix tree that are in use: the root's, then those of the leaves."""
    location, geometry, reader = detail.location, detail.location.geometry, session.target.reader
    stride = 8 if geometry.compact else 16
    for address in detail.extents.address.tolist():
        node = location.rtree_root
        for level in range(len(geometry.bits)):
            key = address >> geometry.shift(level) & ((1 << geometry.bits[level]) - 1)
            last = level == len(geometry.bits) - 1
            at = node + key * (stride if last else 8)
            yield at
            node = reader.word(at)


# ---- what the program said ----


def _add_truth(places: Places, truth: dict[str, Any]) -> None:
    live = truth.get("live_blocks") or truth.get("ledger", {}).get("live_blocks") or ()
    places.blocks = [(int(row[0], 16), row[1]) for row in live]
    details = truth.get("details") or {}
    word = truth.get("word", 8)
    for group in details.get("groups", {}).values():
        for table in group.get("tables", ()):
            for at in range(0, 15 * word, word):
                places.add_word("hash table", int(table["address"], 16) + at)
            for at in range(table["bins"]):
                places.add_word("hash bins", int(table["array"], 16) + 2 * word * at + word)
    for one in details.get("lists", {}).values():
        if one["first"]:
            places.add_word("list", int(one["variable"], 16))
            places.add_word("list", int(one["first"], 16))
            places.add_word("list", int(one["first"], 16) + word)
    for waiter in details.get("waiters", ()):
        for at in range(0, 48, 4):
            places.add_word("lock", int(waiter.get("lock") or "0", 16) + at)

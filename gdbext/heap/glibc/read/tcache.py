"""What each thread cache holds (malloc/malloc.c, ``tcache_perthread_struct``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.glibc.find.location import Location, Tcache
from gdbext.heap.glibc.read.lists import follow_single, unreadable_node
from gdbext.heap.glibc.sizes import FLAG_BITS, Sizes
from gdbext.report import Problem
from gdbext.target import Target

SMALL_CLASSES = 64


@dataclass(frozen=True)
class CacheClass:
    """One class of one cache.

    :param index: tcache index.
    :param counted: what the cache's own counter says; None when it counts down from an unknown limit.
    :param chunks: header addresses, in list order.
    :param bytes: usable bytes of them.
    :param keys: the second word of each that can be read; none where something else is wrong with the list.
    """

    index: int
    counted: Optional[int]
    chunks: Tuple[int, ...]
    bytes: int
    keys: Tuple[int, ...] = ()


@dataclass(frozen=True)
class Cache:
    """One thread's cache, as it was read."""

    at: Tcache
    classes: Tuple[CacheClass, ...]
    problems: Tuple[Problem, ...]

    @property
    def count(self) -> int:
        """Cached chunks."""
        return sum(len(one.chunks) for one in self.classes)

    @property
    def bytes(self) -> int:
        """Usable bytes of them."""
        return sum(one.bytes for one in self.classes)

    @property
    def label(self) -> str:
        """The cache as problems name it."""
        thread = self.at.thread
        return f"tcache of thread {thread.number}" if thread else f"tcache at {self.at.address:#x}"


def read_cache(
    target: Target, location: Location, sizes: Sizes, at: Tcache, safe_linking: Optional[bool]
) -> Cache:
    """Read one cache with all its lists.

    :raises FaultError: when the structure itself cannot be read.
    """
    classes: List[CacheClass] = []
    problems: List[Problem] = []
    entries = at.layout.struct.member("entries")
    heads = target.reader.words(at.address + entries.offset, entries.count or 0, "tcache entries")
    counts = _counts(target, location, at)
    for index, first in enumerate(heads):
        if first or counts[index]:
            one, faults = _read_class(target, sizes, at, index, (first, counts[index]), safe_linking)
            classes.append(one)
            problems += faults
    return Cache(at, tuple(classes), tuple(problems))


def _counts(target: Target, location: Location, at: Tcache) -> List[Optional[int]]:
    """Return each class's count. Since 2.42 ``num_slots`` counts down from ``mp_.tcache_count``."""
    member = at.layout.struct.member("counts")
    base = at.address + member.offset
    data = target.reader.bytes(base, member.extent, "tcache counts")
    stored: List[int] = np.frombuffer(data, f"{target.abi.order_mark}u{member.size}").tolist()
    if not at.layout.counts_down:
        return [*stored]
    limit = _limit(target, location)
    return [None if limit is None else limit - slots for slots in stored]


def _limit(target: Target, location: Location) -> Optional[int]:
    layout, address = location.malloc_par_layout, location.malloc_par
    if layout is None or address is None or "tcache_count" not in layout:
        return None
    return layout.read(target.reader, address, "tcache_count")


def _read_class(
    target: Target,
    sizes: Sizes,
    at: Tcache,
    index: int,
    head: Tuple[int, Optional[int]],
    safe_linking: Optional[bool],
) -> Tuple[CacheClass, List[Problem]]:
    first, counted = head
    who = f"thread {at.thread.number}" if at.thread else f"{at.address:#x}"
    place = f"tcache of {who}, class {index}"
    chain = follow_single(target, sizes, first, 0, safe_linking, place)
    problems = list(chain.problems)
    if not problems and counted is not None and counted != len(chain.nodes):
        message = f"{place}: counts {counted}, its list holds {len(chain.nodes)}"
        broken = abs(counted - len(chain.nodes)) > 1  # of one: a thread was stopped in between
        problems.append(Problem("tcache-count", at.address, message, corruption=broken))
    total, keys, wrong = _check_nodes(target, sizes, place, index, chain.nodes)
    problems += wrong
    chunks = tuple(node - sizes.header for node in chain.nodes)
    return CacheClass(index, counted, chunks, total, () if problems else keys), problems


def _check_nodes(
    target: Target, sizes: Sizes, place: str, index: int, nodes: Sequence[int]
) -> Tuple[int, Tuple[int, ...], List[Problem]]:
    """Return the usable bytes of the nodes, their keys, and those whose size is of another class."""
    total, keys, problems = 0, [], []
    for node in nodes:
        try:
            head, _, key = target.reader.words(node - sizes.word, 3, "cached chunk")
        except FaultError as fault:
            problems.append(unreadable_node(target, place, node, fault))
            continue
        size = head & ~FLAG_BITS
        keys.append(key)
        if not sizes.valid(size) or sizes.tcache_index(size, SMALL_CLASSES) != index:
            message = f"{place}: chunk {node - sizes.header:#x} of size {size:#x} belongs to another class"
            problems.append(Problem("tcache-size", node - sizes.header, message, corruption=True))
        total += size - sizes.word
    return total, tuple(keys), problems


def check_shared(caches: Sequence[Cache]) -> List[Problem]:
    """Return a problem for each chunk that more than one class or cache holds."""
    owner: Dict[int, str] = {}
    problems = []
    for cache in caches:
        for one in cache.classes:
            for chunk in one.chunks:
                place = f"{cache.label}, class {one.index}"
                if owner.setdefault(chunk, place) != place:
                    message = f"chunk {chunk:#x} is cached twice (double free): {owner[chunk]}; {place}"
                    problems.append(Problem("double-free", chunk, message, corruption=True))
    return problems

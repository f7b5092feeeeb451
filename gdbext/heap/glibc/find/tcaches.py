"""Thread caches: where each ``tcache_perthread_struct`` is, whose it is, and whether lists are mangled.

Upstream: ``tcache_init`` and ``tcache_put_n`` in malloc/malloc.c. The structure is itself an in-use
chunk, of a size that its layout fixes; its counts and its list heads agree, and each head is a chunk of
the list's size class. Which thread owns it, the thread's TLS block tells: the ``tcache`` variable points
to it. Since glibc commit 2bf2188fae ("malloc: avoid need for tcache == NULL checks") (in 2.43) a
thread that has no cache yet points to ``__tcache_dummy`` in libc's data; before that, to nothing.

Safe-linking (upstream in 2.32, backported elsewhere) is a fact about the lists, not about a version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Iterable, Iterator, Mapping, Optional, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.errors import FaultError
from gdbext.heap.glibc.find.invariants import Probe
from gdbext.heap.glibc.find.location import Location, Tcache
from gdbext.heap.glibc.find.tls import thread_pointers, vote_offset
from gdbext.heap.glibc.layouts import TcacheLayout, chunk_sizes
from gdbext.heap.glibc.sizes import FLAG_BITS, Sizes, sizes_for
from gdbext.heap.model import U64, Mask
from gdbext.memory.intervals import slices
from gdbext.progress import relieve
from gdbext.report import Problem
from gdbext.target import Target

_PIECE = 1024
_EXAMINED_LIMIT = 1 << 20
_CLEAR = 1000  # links more for one reading than for the other
_WALK_LIMIT = 64  # entries of one list that are looked at to judge it

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Found:
    """In-use chunks that may be thread caches of one layout, by user address.

    :param full: those with entries, all of which hold up.
    :param empty: those whose every list is empty: any zeroed block of that size looks the same.
    :param odd: those with entries, all but one list in order: one was damaged, or its thread was in between.
    :param lone: those with one list, whose head is not aligned: it was damaged, or the block is something else.
    """

    layout: TcacheLayout
    full: frozenset[int] = frozenset()
    empty: frozenset[int] = frozenset()
    odd: frozenset[int] = frozenset()
    lone: frozenset[int] = frozenset()

    @cached_property
    def all(self) -> frozenset[int]:
        """Whatever a thread may point to."""
        return self.full | self.empty | self.odd | self.lone


@dataclass
class _Search:
    """What the steps share."""

    probe: Probe
    location: Location
    sizes: Sizes
    slots: Optional[int]
    problems: list[Problem] = field(default_factory=list)


def find_tcaches(
    target: Target, location: Location, chunk_address: U64, chunk_size: U64, free: Optional[Mask] = None
) -> tuple[tuple[Tcache, ...], tuple[Problem, ...]]:
    """Return every thread cache that is found, and what spoke against some.

    :param chunk_address: of chunk headers, sorted.
    :param chunk_size: their sizes in bytes, flag bits cleared.
    :param free: which of them are free, and so no thread caches; None: none is.
    """
    search = _begin(target, location)
    choices = _distinct(location.tcache_layouts)
    found = [_find_of_layout(search, layout, (chunk_address, chunk_size, free)) for layout in choices]
    variables = _tcache_variables(search, found)
    chosen = _choose_layout(found, variables)
    if chosen is None:
        return (), tuple(search.problems)
    caches = list(_owned(search, chosen, variables))
    owned = {cache.address for cache in caches}
    caches += [Tcache(at, chosen.layout, None, "lists") for at in sorted(chosen.full - owned)]
    return tuple(caches), tuple(search.problems)


def _begin(target: Target, location: Location) -> _Search:
    probe = Probe(target)
    slots = None
    layout, par = location.malloc_par_layout, location.malloc_par
    if layout is not None and par is not None and "tcache_count" in layout:
        slots = probe.find_member(layout, par, "tcache_count")
    return _Search(probe, location, sizes_for(probe.abi, location.alignment), slots)


def _distinct(layouts: Iterable[TcacheLayout]) -> list[TcacheLayout]:
    """Keep one layout of those that differ in the entry only: the lists are in the same place."""
    return list({layout.struct.origin: layout for layout in reversed(tuple(layouts))}.values())[::-1]


# -- structs among the chunks -----------------------------------------------------------------------


def _find_of_layout(
    search: _Search, layout: TcacheLayout, chunks: tuple[U64, U64, Optional[Mask]]
) -> Found:
    wanted = np.array(chunk_sizes(search.sizes, layout.struct.size), np.uint64)
    found_in = (_users_of_sizes(search, wanted, chunks, part) for part in slices(len(chunks[0])))
    users = np.concatenate([wanted[:0], *found_in])
    if len(users) > _EXAMINED_LIMIT:
        message = f"{len(users)} chunks have the size of a thread cache: only {_EXAMINED_LIMIT} examined"
        search.problems.append(Problem("tcache", None, message))
    full: set[int] = set()
    empty: set[int] = set()
    odd: set[int] = set()
    lone: set[int] = set()
    for start in range(0, min(len(users), _EXAMINED_LIMIT), _PIECE):
        relieve()
        for address, entries, wrong, damaged in _consistent(search, layout, users[start : start + _PIECE]):
            if entries and _heads_fit(search, entries):
                (odd if wrong else full).add(address)
            elif damaged and not entries:
                lone.add(address)
            elif not wrong and not entries:
                empty.add(address)
    return Found(layout, frozenset(full), frozenset(empty), frozenset(odd), frozenset(lone))


def _users_of_sizes(
    search: _Search, wanted: U64, chunks: tuple[U64, U64, Optional[Mask]], part: slice
) -> U64:
    """Return the user addresses of those of some chunks that have a size and are not free."""
    headers, size, free = chunks
    picked = np.isin(size[part], wanted)
    if free is not None:
        picked &= ~free[part]
    users: U64 = headers[part][picked] + np.uint64(search.sizes.header)
    return users


def _consistent(
    search: _Search, layout: TcacheLayout, users: U64
) -> Iterator[tuple[int, list[int], int, bool]]:
    """Iterate over the structures whose counts and heads agree, with these heads (none where all lists are empty), how
    many do not, at most one, and whether that one would but for a head that is not aligned.
    """
    rows, known = _read_rows(search, layout, users)
    if not len(rows):
        return
    used, entries = _counts_and_heads(search, layout, rows)
    limit = search.slots if search.slots is not None else (1 << 8 * layout.struct.member("counts").size) - 1
    agree = ((used > 0) == (entries != 0)) & (used >= 0) & (used <= limit)
    aligned = entries % np.uint64(search.location.alignment) == 0
    damaged = (agree & ~aligned).any(axis=1)
    agree &= aligned
    wrong = (~agree).sum(axis=1)
    heads = np.where(agree, entries, np.uint64(0))
    some: Mask = np.any(heads, axis=1)
    for at in np.flatnonzero(wrong <= 1).tolist():
        yield known[at], heads[at].tolist() if some[at] else [], int(wrong[at]), bool(damaged[at])


def _read_rows(
    search: _Search, layout: TcacheLayout, users: U64
) -> tuple[npt.NDArray[np.uint8], list[int]]:
    size, memory = layout.struct.size, search.probe.target.memory
    pieces, known = [], []
    for address in users.tolist():
        try:
            pieces.append(bytes(memory.read(address, size)))
        except FaultError:
            continue  # a chunk that is not in the core cannot be recognised
        known.append(address)
    return np.frombuffer(b"".join(pieces), np.uint8).reshape(-1, size), known


def _counts_and_heads(
    search: _Search, layout: TcacheLayout, rows: npt.NDArray[np.uint8]
) -> tuple[I64, U64]:
    """Return for each structure how many entries each list has, and where it begins."""
    abi = search.probe.abi
    counts, entries = layout.struct.member("counts"), layout.struct.member("entries")
    raw = np.ascontiguousarray(rows[:, counts.offset : counts.offset + counts.extent])
    numbers = raw.view(f"{abi.order_mark}u{counts.size}").astype(np.int64)
    heads = np.ascontiguousarray(rows[:, entries.offset : entries.offset + entries.extent])
    if layout.counts_down:
        slots = search.slots if search.slots is not None else numbers.max(axis=1, keepdims=True)
        numbers = slots - numbers
    return numbers, heads.view(abi.word_dtype).astype(np.uint64)


def _heads_fit(search: _Search, entries: Sequence[int]) -> bool:
    """Whether most heads are chunks of their list's class. Absent memory speaks neither way."""
    verdicts = [_head_fits(search, index, entry) for index, entry in enumerate(entries) if entry]
    return verdicts.count(True) > 0 and verdicts.count(True) >= verdicts.count(False)


def _head_fits(search: _Search, index: int, entry: int) -> Optional[bool]:
    if not search.probe.writable(entry):
        return False
    size = search.probe.find_word(entry - search.sizes.word)
    if size is None:
        return None
    size &= ~FLAG_BITS
    return search.sizes.valid(size) and search.sizes.tcache_index(size) == index


# -- whose they are ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Variables:
    """The value of ``tcache`` in each thread for which it could be read.

    :param how: "TLS symbol" or "thread pointer".
    """

    values: Mapping[int, int] = field(default_factory=dict)
    how: str = "thread pointer"


def _tcache_variables(search: _Search, found: Sequence[Found]) -> _Variables:
    full = frozenset().union(*(each.full for each in found))
    weaker = frozenset().union(*(each.empty | each.odd for each in found))
    lone = frozenset().union(*(each.lone for each in found))
    named = _by_symbol(search, "tcache")
    # A debugger with the wrong libthread_db reads beside the variable.
    if named and (not full or (full | weaker | lone) & set(named.values())):
        return _Variables(named, "TLS symbol")
    for candidates in (full, weaker, lone):
        values = _by_vote(search, candidates)
        if values:
            return _Variables(values)
    return _Variables()


def _by_symbol(search: _Search, name: str) -> dict[int, int]:
    """Return a TLS variable's value by thread number, where its symbol is trusted and can be evaluated."""
    target = search.probe.target
    if not search.location.trusted_debug:
        return {}
    asked = {thread.number: target.symbols.find_tls(name, thread) for thread in target.threads}
    places = {number: at for number, at in asked.items() if at is not None}
    if len(places) < len(asked):
        places = {**_elsewhere(search.probe, places), **places}
    return _read_all(search.probe, places)


def _elsewhere(probe: Probe, places: Mapping[int, int]) -> dict[int, int]:
    """Return where the variable is in all threads when it is equally far from the pointer of some."""
    pointers = thread_pointers(probe)
    offsets = {at - pointers[number] for number, at in places.items() if number in pointers}
    if len(offsets) != 1:
        return {}
    (offset,) = offsets
    return {number: pointer + offset for number, pointer in pointers.items()}


def _by_vote(search: _Search, wanted: Iterable[int]) -> dict[int, int]:
    values = np.array(sorted(wanted), np.uint64)
    if not len(values):
        return {}
    pointers = thread_pointers(search.probe)
    vote = vote_offset(search.probe, pointers, values)
    if vote is None:
        return {}
    return _read_all(search.probe, {number: at + vote.offset for number, at in pointers.items()})


def _read_all(probe: Probe, places: Mapping[int, int]) -> dict[int, int]:
    """Return the words that can be read."""
    words = {number: probe.find_word(at) for number, at in places.items()}
    return {number: word for number, word in words.items() if word is not None}


def _choose_layout(found: Sequence[Found], variables: _Variables) -> Optional[Found]:
    """Return the layout that most threads point to, then the one with most caches; or None."""
    pointed = frozenset(variables.values.values())

    def votes(each: Found) -> tuple[int, int]:
        return len(pointed & each.all), len(each.full)

    best = max(found, key=votes, default=None)
    if best is None or (not any(votes(best)) and variables.how != "TLS symbol"):
        return None
    return best


def _owned(search: _Search, found: Found, variables: _Variables) -> Iterator[Tcache]:
    """Iterate over the caches that threads point to; a pointer to something else is a problem."""
    for number, value in sorted(variables.values.items()):
        thread = search.probe.target.find_thread(number)
        if value in found.all:
            yield Tcache(value, found.layout, thread, variables.how)
        elif not _is_inactive(search, value):
            if _could_be(search, found.layout, value):
                yield Tcache(value, found.layout, thread, variables.how)
            else:
                message = f"tcache of thread {number} is {value:#x}: no thread cache is there, ignored"
                search.problems.append(Problem("tcache", value, message))


def _is_inactive(search: _Search, value: int) -> bool:
    """Whether a thread has no cache: NULL, or ``__tcache_dummy`` in the data of libc."""
    return value == 0 or search.probe.target.find_module(value) is not None


def _could_be(search: _Search, layout: TcacheLayout, value: int) -> bool:
    """Whether a structure that a thread points to is one that damage or an odd chunk hid.

    Half of its lists must be in order, and its address one that malloc could return.
    """
    if value % search.location.alignment or not search.probe.writable(value):
        return False
    rows, _ = _read_rows(search, layout, np.array([value], np.uint64))
    if not len(rows):
        return True  # absent from the core, but the thread says so
    used, entries = _counts_and_heads(search, layout, rows)
    limit = search.slots if search.slots is not None else 0xFFFF
    fine = ((used > 0) == (entries != 0)) & (used >= 0) & (used <= limit)
    return int(fine.sum()) * 2 >= layout.bins


def find_thread_arenas(target: Target, location: Location) -> Optional[dict[int, int]]:
    """Return the arena that each thread is attached to, by thread number; None when it cannot be told.

    A thread that is missing has not called malloc yet.
    """
    search = _begin(target, location)
    known = set(location.arenas)
    values = _by_symbol(search, "thread_arena")
    if not known & set(values.values()):
        values = _by_vote(search, known)
    return {number: value for number, value in values.items() if value in known} or None


# -- safe-linking ------------------------------------------------------------------------------------


def find_safe_linking(
    target: Target, location: Location, tcaches: Sequence[Tcache]
) -> Optional[bool]:
    """Return whether the singly linked lists are mangled; None when there is no list to tell by.

    Mangled, a link is ``next ^ (its own address >> 12)``. Each link of a thread cache and of a fastbin
    votes for the reading under which it ends the list or leads to a chunk.
    """
    search = _begin(target, location)
    mangled = plain = 0
    for first, to_user in _list_heads(search, tcaches):
        for slot, link in _links(search, first, to_user):
            mangled += _leads_on(search, link ^ slot >> 12, to_user)
            plain += _leads_on(search, link, to_user)
        if abs(mangled - plain) > _CLEAR:
            break
    return None if mangled == plain else mangled > plain


def _list_heads(search: _Search, tcaches: Sequence[Tcache]) -> Iterator[tuple[int, int]]:
    """Iterate over first nodes, and from each to its user pointer: a cache links these, a fastbin chunks."""
    for layout, caches in groupby(tcaches, key=lambda cache: cache.layout):
        rows, _ = _read_rows(search, layout, np.array([cache.address for cache in caches], np.uint64))
        if len(rows):
            _, entries = _counts_and_heads(search, layout, rows)
            yield from ((entry, 0) for entry in entries[entries != 0].tolist())
    layout = search.location.malloc_state
    if "fastbinsY" in layout:
        bins = layout.member("fastbinsY")
        for arena in search.location.arenas:
            for head in search.probe.find_words(arena + bins.offset, bins.count or 0) or ():
                if head:
                    yield head, search.sizes.header


def _links(search: _Search, node: int, to_user: int) -> Iterator[tuple[int, int]]:
    """Iterate over where a list's first links stand and what they hold, by whichever reading leads on."""
    for _ in range(_WALK_LIMIT):
        slot = node + to_user
        link = search.probe.find_word(slot)
        if link is None:
            return
        yield slot, link
        following = [to for to in (link ^ slot >> 12, link) if to and _leads_on(search, to, to_user)]
        if not following:
            return
        node = following[0]


def _leads_on(search: _Search, to: int, to_user: int) -> bool:
    """Whether one reading of a link is the list's end or a chunk."""
    if to == 0:
        return True
    user = to + to_user
    if user % search.location.alignment or not search.probe.writable(user):
        return False
    size = search.probe.find_word(user - search.sizes.word)
    return size is not None and search.sizes.valid(size & ~FLAG_BITS)

"""Heaps and lists of extents against the radix tree: each member is in the tree in that state, and none is missing.

Source: ``eset.c``, ``ecache.h``, ``fb.h`` (before 5.3 ``extent.c``: ``extents_insert_locked``, and ``bitmap.h``);
``bin.h``, ``arena.c`` (``arena_bin_slabs_nonfull_insert``, ``arena_bin_slabs_full_insert``), ``large.c``; ``ph.h``,
``ql.h``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Iterator, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.check.flux import Flux
from gdbext.heap.jemalloc.check.links import ROOT, Members, Verdict, check_heaps, check_rings
from gdbext.heap.jemalloc.model import I64, U64, ArenaState, ExtentState, Jemalloc, Location
from gdbext.heap.jemalloc.read.records import Record, gather, read_record
from gdbext.heap.jemalloc.sizes import heaps_of_sizes
from gdbext.report import Problem

_TOLD = 20
_BITS = 64
_UNUSED = {"dirty": ExtentState.DIRTY, "muzzy": ExtentState.MUZZY, "retained": ExtentState.RETAINED}

Row = tuple[int, Optional[int], str]  # group, address, what does not hold


@dataclass
class Groups:
    """Heaps or rings of one kind, by number.

    :param names: as problems call them.
    :param reasons: why each may be in flux.
    :param classes: of each head, the page size class that its heap is for; :data:`ROOT` where it is for any.
    """

    names: list[str] = field(default_factory=list)
    reasons: list[Callable[[], str]] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    of_heads: list[int] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    members: list[I64] = field(default_factory=list)

    def add(self, name: str, reason: Callable[[], str], members: I64, heads: list[int], by_size: bool = False) -> None:
        """Add one; ``members`` are indices of extents."""
        number = len(self.names)
        self.names.append(name)
        self.reasons.append(reason)
        self.heads += heads
        self.classes += range(len(heads)) if by_size else [ROOT] * len(heads)
        self.of_heads += [number] * len(heads)
        self.members.append(members)

    def columns(self) -> tuple[I64, I64, U64, I64]:
        """Return indices of the members, the group of each, the heads, and the group of each."""
        counts = [len(one) for one in self.members]
        indices = np.concatenate(self.members) if self.members else np.empty(0, np.int64)
        groups = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        return indices, groups, np.array(self.heads, np.uint64), np.array(self.of_heads, np.int64)


def check_lists(heap: Jemalloc, flux: Flux) -> Iterator[Problem]:
    """Iterate over what is wrong with the links of unused extents, of slabs and of large blocks."""
    heaps, rings, inner = Groups(), Groups(), Groups()
    unused, sets = _by_group(heap), list(_sets(heap))
    for one in sets:
        _add_set(one, flux, unused, heaps, rings)
    for arena in heap.arenas:
        _add_large(heap, flux, arena, inner)
    _add_bins(heap, flux, heaps, inner)
    yield from _check(heap, flux, heaps, "heap", "")
    for one in sets:
        yield from _check_bitmap(one, flux)
    yield from _check(heap, flux, rings, "list", "lru")
    yield from _check(heap, flux, inner, "list", "list")


def _check(heap: Jemalloc, flux: Flux, groups: Groups, what: str, link: str) -> Iterator[Problem]:
    indices, owners, heads, of_heads = groups.columns()
    places = heap.extents.edata[indices]
    layout = heap.location.layout["extent"]
    if what == "heap":
        offsets = [layout.offset(name) for name in ("heap_next", "heap_child", "heap_prev")]
    else:
        offsets = [layout.offset(link), layout.offset(link) + 8]
    order = np.argsort(places, kind="stable")
    rows, known = gather(heap.target, places[order], offsets)
    members = Members(places[order][known], owners[order][known])
    columns = [rows[known, at].copy() for at in range(len(offsets))]
    if what == "heap":
        verdict = check_heaps(members, columns[:2], columns[2], heads, of_heads)
    else:
        verdict = check_rings(members, columns[0], columns[1], heads, of_heads)
    wrong = _rows(heap, verdict)
    if what == "heap":
        wrong += _misplaced(heap, groups, indices[order][known], members.groups, verdict.heads)
    for group, address, text in wrong:
        message = f"the {what} of {groups.names[group]}: {text}"
        yield flux.problem(f"extent-{what}", address, message, groups.reasons[group]())


def _rows(heap: Jemalloc, verdict: Verdict) -> list[Row]:
    rows: list[Row] = []
    for one in verdict.strays[:_TOLD]:
        source = f"the link of {one.source:#x}" if one.source else "its head"
        rows.append((one.group, one.source or None, f"{source} leads to {_describe(heap, one.value)}"))
    for how, pairs in (
        ("is held by two links", verdict.shared),
        ("is not in it", verdict.missing),
        ("has a link back to another than holds it", verdict.backwards),
    ):
        rows += [(group, place, f"{place:#x} {how}") for group, place in pairs[:_TOLD]]
        if len(pairs) > _TOLD:
            rows.append((pairs[_TOLD][0], None, f"of {len(pairs) - _TOLD} more extents each {how}"))
    if len(verdict.strays) > _TOLD:
        more = f"{len(verdict.strays) - _TOLD} more links lead to what does not belong there"
        rows.append((verdict.strays[_TOLD].group, None, more))
    return rows


def _describe(heap: Jemalloc, value: int) -> str:
    at = heap.extents.find_edata(value)
    if at is None:
        return f"{value:#x}, which is no extent" if value else "null"
    state = int(heap.extents.state[at])
    label = ExtentState(state).label if state <= ExtentState.CACHED else "?"
    kind = "slab" if heap.extents.slab[at] else "extent"
    return f"{value:#x}, an {label} {kind} of arena {int(heap.extents.arena[at])}, which does not belong there"


# -- unused extents -----------------------------------------------------------------------------------


def _by_group(heap: Jemalloc) -> dict[tuple[int, int, bool], I64]:
    """Return the indices of unused extents by arena, state and whether guarded."""
    extents = heap.extents
    unused = np.flatnonzero((extents.state > 0) & (extents.state <= int(ExtentState.RETAINED)) & ~extents.hpa)
    keys = extents.arena[unused].astype(np.int64) << 8 | extents.state[unused].astype(np.int64) << 1
    return _split(unused, keys | extents.guarded[unused], lambda key: (key >> 8, key >> 1 & 127, bool(key & 1)))


def _split(indices: I64, keys: I64, name: Callable[[int], tuple[int, int, bool]]) -> dict[tuple[int, int, bool], I64]:
    order = np.argsort(keys, kind="stable")
    values, starts = np.unique(keys[order], return_index=True)
    parts = np.split(indices[order], starts[1:]) if len(values) else []
    return {name(int(value)): part for value, part in zip(values.tolist(), parts)}


@dataclass(frozen=True, eq=False)
class ExtentSet:
    """One ``eset_t`` of an arena, before 5.3 an ``extents_t``.

    :param roots: of its heaps, by page size class.
    :param bitmap: in every version a set bit is a heap that is not empty; None where the layout has none. Of a tree
        (``bitmap.h``) only the lowest level counts, which comes first.
    :param place: address of the bitmap, 0 for none.
    """

    arena: int
    state: ExtentState
    guarded: bool
    roots: U64
    lru: int
    bitmap: Optional[U64]
    place: int

    @property
    def name(self) -> str:
        """The set as problems name it."""
        return f"arena {self.arena}'s {'guarded ' if self.guarded else ''}{self.state.label} extents"


def _sets(heap: Jemalloc) -> Iterator[ExtentSet]:
    layout = heap.location.layout["cache"]
    for arena in heap.arenas:
        for label, state in _UNUSED.items():
            address = getattr(arena, label).address
            try:
                record = read_record(heap.target, address, layout)
            except FaultError:
                continue  # told when the arena was read
            for prefix in ("", "guarded_"):
                if f"{prefix}heaps" in layout and f"{prefix}lru" in layout:
                    yield _set(arena.index, state, address, record, prefix)


def _set(arena: int, state: ExtentState, address: int, record: Record, prefix: str) -> ExtentSet:
    heaps, bitmap = f"{prefix}heaps", f"{prefix}bitmap"
    member = record.layout.member(heaps)
    start = record.base + member.offset
    words = np.frombuffer(record.data, f"{record.abi.order_mark}u8", member.extent // 8, start)
    roots = words[:: member.size // 8].astype(np.uint64)
    known = bitmap in record.layout
    place = address + record.layout.offset(bitmap) if known else 0
    lru = record.uint(f"{prefix}lru")
    return ExtentSet(arena, state, bool(prefix), roots, lru, record.words(bitmap) if known else None, place)


def _add_set(
    one: ExtentSet, flux: Flux, unused: dict[tuple[int, int, bool], I64], heaps: Groups, rings: Groups
) -> None:
    own = unused.get((one.arena, int(one.state), one.guarded), np.empty(0, np.int64))
    reason = lambda: flux.of_pages(one.arena)  # noqa: E731
    heaps.add(one.name, reason, own, one.roots.tolist(), by_size=True)
    rings.add(one.name, reason, own, [one.lru])


def _check_bitmap(one: ExtentSet, flux: Flux) -> Iterator[Problem]:
    """Iterate over heaps that are empty or not, and of which the bitmap says the contrary."""
    if one.bitmap is None:
        return
    at = np.arange(len(one.roots))
    bits = one.bitmap[at // _BITS] >> (at % _BITS).astype(np.uint64) & np.uint64(1)
    wrong = np.flatnonzero((bits != 0) != (one.roots != 0)).tolist()
    for index in wrong[:_TOLD]:
        root = int(one.roots[index])
        what = f"empty, its root is {root:#x}" if root else "in use, its root is null"
        message = f"the bitmap of {one.name} has heap {index} for {what}"
        yield flux.problem("extent-heap", one.place + index // _BITS * 8, message, flux.of_pages(one.arena))
    if len(wrong) > _TOLD:
        message = f"the bitmap of {one.name} is wrong about {len(wrong) - _TOLD} more heaps"
        yield flux.problem("extent-heap", one.place, message, flux.of_pages(one.arena))


def _misplaced(heap: Jemalloc, groups: Groups, indices: I64, owners: I64, heads: I64) -> Iterator[Row]:
    """Iterate over extents in the heap of another size than theirs; not those whose own size is not the tree's.

    :param heads: of each extent, the position of the head that it hangs from.
    """
    classes = np.array([*groups.classes, ROOT], np.int64)[heads]
    sized = [one.address for one in heap.problems if one.kind == "extent-size" and one.address]
    odd = np.isin(heap.extents.edata[indices], np.array(sized, np.uint64))
    placed = np.flatnonzero((classes != ROOT) & ~odd)
    classes, sizes = classes[placed], heap.extents.size[indices[placed]]
    location = heap.location
    fits = [heaps_of_sizes(sizes, location.sizes, location.geometry.page, pad) for pad in _pads(location)]
    wanted = min(fits, key=lambda fit: np.count_nonzero(fit != classes))
    wrong = np.flatnonzero(wanted != classes)
    for at in wrong[:_TOLD].tolist():
        place = int(heap.extents.edata[indices[placed[at]]])
        text = f"{place:#x} of {int(sizes[at])} bytes hangs in heap {int(classes[at])}, its size belongs in heap"
        yield int(owners[placed[at]]), place, f"{text} {int(wanted[at])}"
    if len(wrong) > _TOLD:
        group = int(owners[placed[wrong[_TOLD]]])
        yield group, None, f"{len(wrong) - _TOLD} more extents hang in heaps of other sizes than theirs"


def _pads(location: Location) -> Sequence[int]:
    """Return what ``sz_large_pad`` may be; where it is not known, the one that fits most extents counts."""
    either = (0, location.geometry.page)
    return [pad for pad in either if pad == location.large_pad] or either


# -- slabs and large blocks ---------------------------------------------------------------------------


def _add_large(heap: Jemalloc, flux: Flux, arena: ArenaState, rings: Groups) -> None:
    """Add an arena's list of large blocks: kept for arenas that the program made."""
    if arena.auto is not False:
        return
    extents = heap.extents
    own = (extents.arena == arena.index) & (extents.state == int(ExtentState.ACTIVE)) & ~extents.slab
    try:
        first = heap.location.layout["arena"].read(heap.target.reader, arena.address, "large")
    except FaultError:
        return
    reason = lambda: flux.of_large(arena.index)  # noqa: E731
    rings.add(f"arena {arena.index}'s large blocks", reason, np.flatnonzero(own), [first])


def _add_bins(heap: Jemalloc, flux: Flux, heaps: Groups, rings: Groups) -> None:
    """Add each bin's heap of slabs that are neither full nor current, and its list of full ones."""
    extents = heap.extents
    slabs = np.flatnonzero(
        extents.slab & (extents.state == int(ExtentState.ACTIVE)) & (extents.szind < heap.location.nbins)
    )
    current = [shard.slabcur for arena in heap.arenas for one in arena.bins for shard in one.shards]
    slabs = slabs[~np.isin(extents.edata[slabs], np.array(current, np.uint64))]
    keys = extents.arena[slabs].astype(np.int64) << 32 | extents.szind[slabs].astype(np.int64) << 16
    keys |= extents.shard[slabs].astype(np.int64) << 1 | (extents.nfree[slabs] == 0)
    own = _split(slabs, keys, lambda key: (key >> 32, key >> 1 & (1 << 31) - 1, bool(key & 1)))
    none = np.empty(0, np.int64)
    for arena in heap.arenas:
        for one in arena.bins:
            for shard in one.shards:
                key = (arena.index, one.info.index << 15 | shard.shard)
                name = f"arena {arena.index}'s {{}}slabs of {one.info.reg_size} bytes"
                reason = lambda at=(arena.index, one.info.index): flux.of_bin(*at)  # noqa: E731
                heaps.add(name.format(""), reason, own.get((*key, False), none), [shard.nonfull_root])
                if arena.auto is False or shard.full_first:
                    full = own.get((*key, True), none)
                    rings.add(name.format("full "), reason, full, [shard.full_first])

"""The radix tree of extents, walked whole: jemalloc's only list of large blocks and full slabs.

Source: ``rtree.h``, ``extent_structs.h`` (5.1.0, 5.2.1), ``edata.h`` (5.3.0, 5.3.1). The tree is sparse and
read in blocks of 64 KiB, those of zeros skipped. Every extent must lie around a page that leads to it. What
``extent_destroy_wrapper`` unmaps, the rest of a region that guarded extents were cut from (``san_bump.c``), keeps its
elements, while its ``edata_t`` is used again elsewhere: such elements are stale.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.layouts import Layout
from gdbext.heap.jemalloc.model import I64, U8, U64, BinInfo, Extents, ExtentState, Geometry, Location, Mask
from gdbext.heap.jemalloc.read.records import gather
from gdbext.memory import view
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target

BLOCK = 64 << 10
_MORE_LEAVES = 64  # leaves for addresses where nothing is mapped that are read all the same
_ROWS = 1 << 14  # slabs whose bitmaps are counted at a time
_LISTED = 20  # damaged extents that are told one by one
_BYTES = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
_POPCOUNT = np.unpackbits(_BYTES).reshape(-1, 16).sum(axis=1, dtype=np.uint8)

# What LG_VADDR is on the machines that jemalloc is built on, and LG_PAGE where a distribution sets it.
_VADDRS = (48, 57, 47, 52, 42, 39, 56, 43)
_PAGES = (12, 16, 14, 13)


def make_geometry(lg_vaddr: int, lg_page: int, nsizes: int) -> Geometry:
    """Return the tree for so many address bits (``RTREE_HEIGHT``, ``rtree_levels``)."""
    bits = lg_vaddr - lg_page
    height = 1 if bits <= 10 else 2 if bits <= 36 else 3
    return Geometry(lg_vaddr, lg_page, _levels(bits, height), 64 - lg_vaddr >= (nsizes - 1).bit_length())


def _levels(bits: int, height: int) -> tuple[int, ...]:
    each, rest = divmod(bits, height)
    return tuple(each + (1 if level >= height - rest else 0) for level in range(height))


def geometries(nsizes: int, root: Optional[int] = None) -> list[Geometry]:
    """Return the trees that there can be, likeliest first.

    :param root: elements of the root, or None when they are not known.
    """
    every = [make_geometry(vaddr, page, nsizes) for page in _PAGES for vaddr in _VADDRS]
    return [one for one in every if root is None or 1 << one.bits[0] == root]


@dataclass(frozen=True, eq=False)
class Entries:
    """Elements of the leaves that are not empty: the address of a page, ascending, and the extent that it leads to."""

    page: U64
    edata: U64


@dataclass
class Walk:
    """What a walk met.

    :param leaves: that were read.
    :param absent: bytes of nodes and leaves that are not in the target.
    """

    problems: list[Problem] = field(default_factory=list)
    leaves: int = 0
    absent: int = 0

    def doubt(self, kind: str, address: Optional[int], message: str, corruption: bool = True) -> None:
        """Add a problem."""
        self.problems.append(Problem(kind, address, message, corruption))


# -- the tree -----------------------------------------------------------------------------------------


def read_entries(
    target: Target, root: int, geometry: Geometry, layout: Layout, progress: Progress, walk: Walk
) -> Entries:
    """Return every element of the tree's leaves."""
    nodes = np.array([root], np.uint64)
    prefixes = np.zeros(1, np.uint64)
    for level in range(len(geometry.bits) - 1):
        nodes, prefixes = _children(target, geometry, level, nodes, prefixes, walk)
    parts = []
    for done, (node, prefix) in enumerate(zip(nodes.tolist(), prefixes.tolist())):
        progress.at("radix tree", done, len(nodes))
        parts.append(_leaf(target, geometry, layout, node, prefix, walk))
    walk.leaves = len(parts)
    if not parts:
        return Entries(np.empty(0, np.uint64), np.empty(0, np.uint64))
    return Entries(np.concatenate([one.page for one in parts]), np.concatenate([one.edata for one in parts]))


def _children(
    target: Target, geometry: Geometry, level: int, nodes: U64, prefixes: U64, walk: Walk
) -> tuple[U64, U64]:
    """Return the nodes of the next level, and the first address that each stands for."""
    shift = np.uint64(geometry.shift(level))
    found, keys = [], []
    for node, prefix in zip(nodes.tolist(), prefixes.tolist()):
        for index, words in _blocks(target, node, 8 << geometry.bits[level], walk):
            found.append(words)
            keys.append(np.uint64(prefix) + (index.astype(np.uint64) << shift))
    if not found:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    return _plausible(target, geometry, level, np.concatenate(found), np.concatenate(keys), walk)


def _plausible(
    target: Target, geometry: Geometry, level: int, nodes: U64, prefixes: U64, walk: Walk
) -> tuple[U64, U64]:
    """Return the nodes that are each used once, those for mapped addresses and a few others."""
    used = _covers(target, prefixes, 1 << geometry.shift(level))
    likely_first = np.argsort(~used, kind="stable")
    _, first = np.unique(nodes[likely_first], return_index=True)
    once = np.zeros(len(nodes), np.bool_)
    once[likely_first[first]] = True
    if not once.all():
        at, count = int(nodes[~once][0]), int((~once).sum())
        message = f"{count} nodes of the radix tree are used twice, the first at {at:#x}"
        walk.doubt("extent-tree", at, message)
    others = np.flatnonzero(once & ~used)
    if len(others) > _MORE_LEAVES:
        at = int(nodes[others[_MORE_LEAVES]])
        message = f"{len(others)} nodes of the radix tree are for addresses where nothing is mapped: not all were read"
        walk.doubt("extent-tree", at, message)
    picked = np.sort(np.concatenate((np.flatnonzero(once & used), others[:_MORE_LEAVES])))
    return nodes[picked], prefixes[picked]


def _covers(target: Target, starts: U64, size: int) -> Mask:
    """Return which of the stretches of ``size`` bytes hold mapped memory."""
    regions = target.index.regions
    lows = np.array([region.start for region in regions], np.uint64)
    highs = np.array([region.end for region in regions], np.uint64)
    after = np.searchsorted(highs, starts, side="right")
    kept = np.minimum(after, max(len(regions) - 1, 0))
    if not len(regions):
        return np.zeros(len(starts), np.bool_)
    covered: Mask = (after < len(regions)) & (lows[kept] < starts + np.uint64(size))
    return covered


def _blocks(target: Target, node: int, size: int, walk: Walk) -> Iterator[tuple[I64, U64]]:
    """Iterate over the words of a node that are not 0, with their indices."""
    for start in range(0, size, BLOCK):
        length = min(BLOCK, size - start)
        try:
            data = view(target.memory, node + start, length)
        except FaultError:
            walk.absent += length
            continue
        words = np.frombuffer(data, f"{target.abi.order_mark}u8").astype(np.uint64, copy=False)
        if words.any():
            index = np.flatnonzero(words)
            yield index + start // 8, words[index]


def _leaf(target: Target, geometry: Geometry, layout: Layout, node: int, prefix: int, walk: Walk) -> Entries:
    stride = 1 if geometry.compact else 2
    pages, edatas = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for index, words in _blocks(target, node, 8 * stride << geometry.bits[-1], walk):
        if not geometry.compact:
            pointers = index % 2 == 0
            index, words = index[pointers] // 2, words[pointers]
        edata = edata_of(words, geometry, layout)
        filled = edata != 0
        pages.append(np.uint64(prefix) + (index[filled].astype(np.uint64) << np.uint64(geometry.lg_page)))
        edatas.append(edata[filled])
    return Entries(np.concatenate(pages), np.concatenate(edatas))


def find_extent(target: Target, root: int, geometry: Geometry, layout: Layout, address: int) -> int:
    """Return the address of the extent that the tree has for ``address``; 0 for none.

    :raises FaultError: when a node cannot be read.
    """
    node = root
    last = len(geometry.bits) - 1
    for level, bits in enumerate(geometry.bits):
        index = address >> geometry.shift(level) & ((1 << bits) - 1)
        stride = 8 if level < last or geometry.compact else 16
        node = target.reader.word(node + index * stride, "jemalloc's radix tree")
        if not node:
            return 0
    return int(edata_of(np.array([node], np.uint64), geometry, layout)[0])


def edata_of(words: U64, geometry: Geometry, layout: Layout) -> U64:
    """Return the addresses that leaf elements hold, without what shares their word (``rtree_leaf_elm_bits_decode``)."""
    if not geometry.compact:
        return words
    high = np.uint64(64 - geometry.lg_vaddr)
    address = ((words << high).view(np.int64) >> high.view(np.int64)).view(np.uint64)
    edata: U64 = address & np.uint64(~layout.family.leaf_low & (2**64 - 1))
    return edata


# -- the extents --------------------------------------------------------------------------------------


def read_extents(target: Target, location: Location, progress: Progress) -> tuple[Extents, Walk]:
    """Return every extent of a jemalloc, by address, and what was wrong with the tree.

    Extents that cannot be read, that do not hold the page that leads to them, or whose arena there cannot be
    are problems and left out.
    """
    walk = Walk()
    entries = read_entries(target, location.rtree_root, location.geometry, location.layout, progress, walk)
    extents = decode(target, location, entries, walk)
    if walk.absent:
        message = f"{walk.absent} bytes of the radix tree are not in the target: extents may be missing"
        walk.doubt("absent-memory", location.rtree_root, message, corruption=False)
    _check_overlaps(extents, walk)
    return extents, walk


def decode(target: Target, location: Location, entries: Entries, walk: Walk) -> Extents:
    """Return the extents that leaf elements lead to.

    The tree has an element for the first and the last page of every extent, and for those between in slabs: where
    an extent's size says otherwise, the tree is believed, without its stale elements.
    """
    edata, first, inverse = np.unique(entries.edata, return_index=True, return_inverse=True)
    layout = location.layout["extent"]
    rows, known = gather(target, edata, [layout.offset(name) for name in ("bits", "address", "size")])
    unknown = np.flatnonzero(~known)
    lacks = any(target.lacks(int(one), 128) for one in edata[unknown[:_LISTED]])
    _tell(
        walk, edata[unknown], entries.page[first[unknown]], "cannot be read", "left out", corruption=not lacks
    )
    page_mask = np.uint64(2**64 - location.geometry.page)
    starts, sizes = rows[:, 1] & page_mask, rows[:, 2] & page_mask
    lowest, highest = _bounds(entries.page, inverse, len(edata))
    _narrow(entries, edata, starts, starts + sizes - np.uint64(location.geometry.page), lowest, highest)
    known &= ~_unused(target, entries, edata, starts, lowest, highest)
    wrong = known & (lowest != starts)
    _tell(walk, edata[wrong], lowest[wrong], "does not begin at the page that leads to it", "left out")
    arena = location.layout.fields(location.geometry.lg_page)["arena"].take(rows[:, 0])
    possible = arena < np.uint64(max(location.arena_limit, 1))
    _tell(
        walk,
        edata[known & ~possible],
        lowest[known & ~possible],
        "is of an arena that there is not",
        "left out",
    )
    kept = np.flatnonzero(known & ~wrong & possible)
    kept = kept[np.argsort(starts[kept], kind="stable")]
    spans = (highest - lowest)[kept] + np.uint64(location.geometry.page)
    odd = sizes[kept] != spans
    _tell(
        walk,
        edata[kept[odd]],
        starts[kept[odd]],
        "has another size than the tree gives it",
        "the tree is believed",
        kind="extent-size",
    )
    return _columns(target, location, edata[kept], rows[kept], starts[kept], spans)


def _bounds(pages: U64, owners: I64, count: int) -> tuple[U64, U64]:
    """Return the lowest and the highest page that lead to each extent."""
    lowest = np.full(count, 2**64 - 1, np.uint64)
    highest = np.zeros(count, np.uint64)
    np.minimum.at(lowest, owners, pages)
    np.maximum.at(highest, owners, pages)
    return lowest, highest


def _narrow(entries: Entries, edata: U64, starts: U64, lasts: U64, lowest: U64, highest: U64) -> None:
    """Set the bounds of extents that have stale elements elsewhere to their first and last pages.

    Both have an element, and the next element is another extent's: where a size is damaged to less, it is its own.
    """
    odd = np.flatnonzero((lowest != starts) | (highest != lasts))
    if not len(odd):
        return
    first, begun = _lookup(entries, starts[odd], edata[odd])
    last, ended = _lookup(entries, lasts[odd], edata[odd])
    after = np.append(entries.edata, np.uint64(0))[last + 1]
    own = odd[begun & ended & (after != edata[odd]) & (first <= last)]
    lowest[own], highest[own] = starts[own], lasts[own]


def _unused(target: Target, entries: Entries, edata: U64, starts: U64, lowest: U64, highest: U64) -> Mask:
    """Return which extents have stale elements only, for pages that are unmapped: ``edata_t`` not in use."""
    unused: Mask = lowest != starts
    elsewhere = np.flatnonzero(unused)
    unused[elsewhere] &= ~_lookup(entries, starts[elsewhere], edata[elsewhere])[1]
    for pages in (lowest, highest):
        unused[elsewhere] &= ~_covers(target, pages[elsewhere], 1)
    return unused


def _lookup(entries: Entries, pages: U64, edata: U64) -> tuple[I64, Mask]:
    """Return where the elements for pages are, or the next ones, and whether they are there and lead to ``edata``."""
    at = np.minimum(np.searchsorted(entries.page, pages), len(entries.page) - 1)
    leads: Mask = (entries.page[at] == pages) & (entries.edata[at] == edata)
    return at, leads


def _tell(
    walk: Walk, edata: U64, places: U64, what: str, done: str, corruption: bool = True, kind: str = "extent"
) -> None:
    kind = kind if corruption else "absent-memory"
    for one, place in zip(edata[:_LISTED].tolist(), places[:_LISTED].tolist()):
        walk.doubt(kind, one, f"the extent at {one:#x} (for {place:#x}) {what}: {done}", corruption)
    if len(edata) > _LISTED:
        more = f"{len(edata) - _LISTED} more extents, the first at {int(edata[_LISTED]):#x}: each {what}"
        walk.doubt(kind, int(edata[_LISTED]), f"{more}: {done}", corruption)


def _columns(target: Target, location: Location, edata: U64, rows: U64, starts: U64, sizes: U64) -> Extents:
    bits = rows[:, 0].copy()
    fields = location.layout.fields(location.geometry.lg_page)
    none = np.zeros(len(edata), np.uint64)
    taken = {name: one.take(bits) for name, one in fields.items()}
    slab = taken["slab"].astype(np.bool_)
    hpa = taken.get("pai", none).astype(np.bool_)
    state = taken["state"].astype(np.uint8)
    # pa_dalloc takes the size class from an extent and leaves the rest, "slab" too, to HPA's cache; an extent being
    # purged ("slab" is left there too), and the one that guarded blocks are cut from (san_bump.c), are active without
    # one, and not in nactive
    nsizes = location.layout.nsizes
    classless = (state == ExtentState.ACTIVE) & (taken["szind"] >= nsizes)
    state[classless & hpa] = int(ExtentState.CACHED)
    state[classless & ~hpa & (~slab | (taken["szind"] == nsizes))] = int(ExtentState.TRANSITION)
    extents = Extents(
        edata,
        starts,
        rows[:, 1].copy(),
        sizes,
        _usable(location, taken["szind"], state, slab, sizes, rows[:, 1]),
        bits,
        taken["arena"].astype(np.uint16),
        state,
        slab,
        taken["szind"].astype(np.uint16),
        taken["nfree"].astype(np.uint16),
        taken.get("shard", none).astype(np.uint8),
        taken.get("guarded", none).astype(np.bool_),
        hpa,
        np.zeros(len(edata), np.uint16),
    )
    count_bitmaps(target, location, extents)
    return extents


def _usable(location: Location, szind: U64, state: U8, slab: Mask, sizes: U64, pointers: U64) -> U64:
    """Return the usable bytes of large blocks (``edata_usize_get``)."""
    large = (state == int(ExtentState.ACTIVE)) & ~slab & (szind < len(location.sizes))
    classes = np.array([*location.sizes, 0], np.uint64)
    usable: U64 = classes[np.minimum(szind, np.uint64(len(location.sizes))).astype(np.int64)]
    if location.exact_large:
        pad = np.uint64(_pad(location, pointers[large]))
        usable = np.where(szind >= location.nbins, sizes - np.minimum(sizes, pad), usable)
    usable[~large] = 0
    return usable


def _pad(location: Location, pointers: U64) -> int:
    """Return ``sz_large_pad``: a page where large blocks begin anywhere on their first page, else 0."""
    if location.large_pad is not None:
        return location.large_pad
    return location.geometry.page if (pointers % np.uint64(location.geometry.page)).any() else 0


def count_bitmaps(target: Target, location: Location, extents: Extents) -> None:
    """Fill :attr:`Extents.popcount`: a set bit means free (``bitmap.h``), in a tree only the lowest level counts."""
    groups = [-(-info.nregs // 64) for info in location.bin_infos]
    member = location.layout["extent"].member("bitmap")
    start = member.offset
    slabs = np.flatnonzero(
        extents.slab & (extents.state == ExtentState.ACTIVE) & (extents.szind < len(groups))
    )
    slabs = slabs[np.argsort(extents.edata[slabs], kind="stable")]
    width = np.minimum(np.array([*groups, 0]), member.count or 8)
    for low in range(0, len(slabs), _ROWS):
        part = slabs[low : low + _ROWS]
        counts = width[extents.szind[part]]
        rows, _ = gather(target, extents.edata[part], [start + 8 * at for at in range(int(counts.max()))])
        each = _POPCOUNT[rows.view(np.uint16)].reshape(*rows.shape, 4).sum(axis=2, dtype=np.uint16)
        wanted = np.arange(rows.shape[1])[None, :] < counts[:, None]
        extents.popcount[part] = (each * wanted).sum(axis=1, dtype=np.uint16)


def _check_overlaps(extents: Extents, walk: Walk) -> None:
    ends = extents.address + extents.size
    over = np.flatnonzero(ends[:-1] > extents.address[1:])
    _tell(walk, extents.edata[over], extents.address[over], "overlaps the next one", "both are kept")


def check_slabs(extents: Extents, bin_infos: Sequence[BinInfo]) -> list[Problem]:
    """Return the slabs whose size class or count of free regions cannot be."""
    walk = Walk()
    slabs = extents.slab & (extents.state == ExtentState.ACTIVE)
    classless = np.flatnonzero(slabs & (extents.szind >= len(bin_infos)))
    _tell(
        walk,
        extents.edata[classless],
        extents.address[classless],
        "is a slab of no small size class",
        "not counted in a bin",
    )
    regions = np.array([*(info.nregs for info in bin_infos), 0xFFFF])
    most = regions[np.minimum(extents.szind, len(bin_infos))]
    over = np.flatnonzero(slabs & (extents.nfree > most))
    what = "is a slab with more free regions than it has regions"
    _tell(walk, extents.edata[over], extents.address[over], what, "counted as it is")
    return walk.problems

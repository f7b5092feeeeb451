"""jemalloc's own view of its heap, as plain data: what the readers fill and its reports read.

Unknown is None, never 0. Pages are jemalloc's own (``Geometry.page`` bytes each), not the machine's.
The facts are of jemalloc 5.1.0 to 5.3.1; ``layouts`` says from which files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Mapping, Optional, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.heap.jemalloc.layouts import Layout
from gdbext.process import Module, Thread
from gdbext.report import Evidence, Problem, ThreadRef
from gdbext.target import Target

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NO_EXTENT = -1


class ExtentState(IntEnum):
    """What an extent is (``extent_state_t``). TRANSITION and MERGING exist since 5.3.

    CACHED is ours: an extent in HPA's cache of small extents (``sec.c``), which jemalloc leaves active.
    """

    ACTIVE = 0
    DIRTY = 1
    MUZZY = 2
    RETAINED = 3
    TRANSITION = 4
    MERGING = 5
    CACHED = 6

    @property
    def label(self) -> str:
        """The state as reports print it."""
        return self.name.lower()


class TsdKind(IntEnum):
    """What a thread's ``tsd.state`` means; its numbers differ between versions (``Layout.tsd_states``)."""

    NOMINAL = 0
    NOMINAL_SLOW = 1
    NOMINAL_RECOMPUTE = 2
    MINIMAL = 3
    PURGATORY = 4
    REINCARNATED = 5
    UNINITIALIZED = 6

    @property
    def nominal(self) -> bool:
        """Whether the thread is fully set up."""
        return self <= TsdKind.NOMINAL_RECOMPUTE


@dataclass(frozen=True)
class Geometry:
    """The radix tree's shape: it follows the machine that jemalloc was built on.

    :param lg_vaddr: significant bits of an address.
    :param lg_page: bits within one of jemalloc's pages.
    :param bits: key bits of each level, the root's first.
    :param compact: whether a leaf element is one word that holds everything.
    """

    lg_vaddr: int
    lg_page: int
    bits: tuple[int, ...]
    compact: bool

    @property
    def page(self) -> int:
        """Bytes of one of jemalloc's pages."""
        return 1 << self.lg_page

    def shift(self, level: int) -> int:
        """Return how far an address is shifted right for its key at ``level``."""
        return self.lg_page + sum(self.bits[level + 1 :])


@dataclass(frozen=True)
class BinInfo:
    """One small size class (``bin_info_t``). Sizes in bytes.

    :param shards: bins of this class in each arena (1 before 5.2).
    """

    index: int
    reg_size: int
    slab_size: int
    nregs: int
    shards: int = 1


@dataclass(frozen=True)
class Location:
    """One jemalloc in a target: where its globals are, and by which layout.

    :param prefix: of its private names ("je_", "_rjem_je_", …); None where it has no symbols.
    :param module: the file that it lies in; None when no module is mapped there.
    :param arenas: address of the array of arena pointers.
    :param arena_limit: slots of the array that may be used: the counter's value, or those seen in use.
    :param rtree_root: address of the first element of the radix tree's root.
    :param large_pad: bytes that a large extent has beyond its usable ones (``sz_large_pad``); None when not known.
    :param exact_large: whether large blocks are sized by pages, not by classes (5.3.1, ``disable_large_size_classes``).
    :param tsd_offset: of a thread's tsd from its thread pointer (``Thread.tls``); None when not known.
    :param nominal_tsds: address of ``tsd_nominal_tsds``; None before 5.2, or when not known.
    :param sizes: usable bytes by size class index.
    :param symbols: other globals that were found, by their names without prefix ("nhbins", …).
    :param found_by: "symbols", "build-id of PACKAGE" or "structure".
    :param version: "5.3.0"; "" when not known.
    """

    prefix: Optional[str]
    module: Optional[Module]
    layout: Layout
    arenas: int
    arena_limit: int
    rtree_root: int
    geometry: Geometry
    bin_infos: tuple[BinInfo, ...]
    sizes: tuple[int, ...]
    large_pad: Optional[int] = None
    exact_large: bool = False
    tsd_offset: Optional[int] = None
    nominal_tsds: Optional[int] = None
    symbols: Mapping[str, int] = field(default_factory=dict)
    found_by: str = "symbols"
    version: str = ""
    evidence: tuple[Evidence, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def nbins(self) -> int:
        """Small size classes."""
        return len(self.bin_infos)

    def tsd_of(self, thread: Thread) -> Optional[int]:
        """Return the address of a thread's tsd, or None when it cannot be known."""
        if self.tsd_offset is None or thread.tls is None:
            return None
        return thread.tls + self.tsd_offset


@dataclass(frozen=True, eq=False)
class Extents:
    """Every extent of the radix tree as columns, by address.

    :param edata: address of its ``extent_t`` or ``edata_t``.
    :param address: of its first page.
    :param pointer: ``e_addr``: for a large block what malloc returned, anywhere on the first page.
    :param size: bytes, a multiple of jemalloc's page; a large block mostly has a page more than it needs
        (``cache_oblivious``).
    :param usable: bytes of a large block that the program may use; 0 for all others.
    :param bits: ``e_bits`` as it is.
    :param arena: index of its arena.
    :param state: an :class:`ExtentState`.
    :param szind: size class index; ``NSIZES`` for an extent that is not in use.
    :param nfree: free regions, for slabs (as they are in ``e_bits``, 0 for others).
    :param shard: bin shard, for slabs.
    :param guarded: whether it has guard pages (5.3).
    :param hpa: whether it came from the huge page allocator (5.3).
    :param popcount: free regions by the slab's bitmap; 0 for others, and where it could not be read.
    """

    edata: U64
    address: U64
    pointer: U64
    size: U64
    usable: U64
    bits: U64
    arena: U16
    state: U8
    slab: Mask
    szind: U16
    nfree: U16
    shard: U8
    guarded: Mask
    hpa: Mask
    popcount: U16

    def __len__(self) -> int:
        return len(self.edata)

    def select(self, picked: Mask | I64) -> Extents:
        """Return the extents that a mask or an index array picks."""
        return Extents(*(getattr(self, name)[picked] for name in self.__dataclass_fields__))

    @staticmethod
    def empty() -> Extents:
        """Return no extents."""
        kinds = ["u8", "u8", "u8", "u8", "u8", "u8", "u2", "u1", "?", "u2", "u2", "u1", "?", "?", "u2"]
        return Extents(*(np.empty(0, kind) for kind in kinds))

    @cached_property
    def _by_edata(self) -> tuple[I64, U64]:
        order = np.argsort(self.edata, kind="stable")
        return order, self.edata[order]

    def find(self, address: int) -> Optional[int]:
        """Return the index of the extent that holds ``address``, or None."""
        at = int(np.searchsorted(self.address, np.uint64(address), side="right")) - 1
        if at < 0 or address - int(self.address[at]) >= int(self.size[at]):
            return None
        return at

    def find_edata(self, edata: int) -> Optional[int]:
        """Return the index of the extent that ``edata`` describes, or None."""
        order, known = self._by_edata
        at = int(np.searchsorted(known, np.uint64(edata)))
        return int(order[at]) if at < len(known) and int(known[at]) == edata else None

    def holding(self, addresses: U64) -> I64:
        """Return for each address the index of the extent that holds it, or :data:`NO_EXTENT`."""
        at = np.searchsorted(self.address, addresses, side="right").astype(np.int64) - 1
        kept = np.maximum(at, 0)
        inside = (at >= 0) & (addresses - self.address[kept] < self.size[kept]) if len(self) else at >= 0
        return np.where(inside, kept, NO_EXTENT)


@dataclass(frozen=True)
class CacheState:
    """One cache of unused extents of an arena (``extents_t``, ``ecache_t``).

    :param address: of the structure.
    :param npages: its own counter.
    :param nextents: its own count of extents; None before 5.2.
    :param nbytes: its own count of bytes; None before 5.2.
    """

    address: int
    npages: int
    nextents: Optional[int]
    nbytes: Optional[int]


@dataclass(frozen=True)
class DecayState:
    """What an arena knows of the decay of one kind of page (``arena_decay_t``, ``decay_t``). Times in ns.

    :param address: of the structure.
    :param time_ms: decay time; 0 purges at once, -1 never.
    :param interval: one of the 200 steps of the decay curve.
    :param epoch: start of the current step.
    :param deadline: when the epoch advances, if a thread ticks.
    :param npages_limit: pages that the curve allowed at the last step; None before 5.3.
    :param nunpurged: pages left after the last step.
    :param backlog: pages that became unused in each step, oldest first.
    :param npurge: sweeps; the three are None in builds without statistics.
    :param nmadvise: calls.
    :param purged: pages.
    """

    address: int
    time_ms: int
    interval: int
    epoch: int
    deadline: int
    purging: bool
    npages_limit: Optional[int]
    nunpurged: int
    backlog: tuple[int, ...]
    npurge: Optional[int]
    nmadvise: Optional[int]
    purged: Optional[int]


@dataclass(frozen=True)
class BaseState:
    """An arena's allocator of metadata (``base_t``). Sizes in bytes, None in builds without statistics.

    :param blocks: address and size of each block.
    :param n_thp: transparent huge pages that it has touched; None as sizes.
    """

    address: int
    index: int
    allocated: Optional[int]
    resident: Optional[int]
    mapped: Optional[int]
    blocks: tuple[tuple[int, int], ...] = ()
    n_thp: Optional[int] = None


@dataclass(frozen=True)
class LargeClass:
    """The counters of one large size class in one arena.

    :param active_bytes: usable bytes allocated now; None before 5.3.1, where all have the class's size.
    """

    szind: int
    size: int
    nmalloc: int
    ndalloc: int
    active_bytes: Optional[int] = None

    @property
    def current(self) -> int:
        """Allocations that live."""
        return self.nmalloc - self.ndalloc

    @property
    def allocated(self) -> int:
        """Usable bytes allocated now."""
        return self.current * self.size if self.active_bytes is None else self.active_bytes


@dataclass(frozen=True)
class BinStats:
    """A bin's own counters, of one shard or summed over shards.

    :param nonfull_slabs: None before 5.2.
    """

    nmalloc: int
    ndalloc: int
    nrequests: int
    curregs: int
    nfills: int
    nflushes: int
    nslabs: int
    reslabs: int
    curslabs: int
    nonfull_slabs: Optional[int]


@dataclass(frozen=True)
class BinShard:
    """One ``bin_t``.

    :param slabcur: address of the current slab's ``extent_t``; 0 for none.
    :param nonfull_root: of the pairing heap of slabs with free regions; 0 when empty.
    :param full_first: of the list of full slabs: kept for manual arenas only, else 0.
    """

    address: int
    shard: int
    slabcur: int
    nonfull_root: int
    full_first: int
    stats: BinStats


@dataclass(frozen=True)
class BinState:
    """One small size class of one arena: its own counters beside what the extents say.

    :param stats: summed over the shards; all 0 in builds without statistics.
    :param slabs: slabs in the radix tree, and of them: current ones, others with free regions, full ones.
    :param used: regions in use (cached in a tcache or not), by ``nfree``.
    :param free_bits: free regions by the slabs' bitmaps.
    :param empty_bytes: bytes of regions not in use.
    """

    info: BinInfo
    shards: tuple[BinShard, ...]
    stats: BinStats
    slabs: int
    current: int
    nonfull: int
    full: int
    used: int
    free: int
    free_bits: int

    @property
    def total(self) -> int:
        """Regions, used or not."""
        return self.slabs * self.info.nregs

    @property
    def empty_bytes(self) -> int:
        """Bytes of regions not in use."""
        return self.free * self.info.reg_size


@dataclass(frozen=True)
class StateSum:
    """An arena's extents of one state, as the radix tree has them."""

    extents: int = 0
    pages: int = 0


@dataclass(frozen=True)
class ArenaState:
    """One arena: what it counts, and what the radix tree says.

    :param auto: whether jemalloc made it for threads by itself; None when not known.
    :param nthreads: threads that allocate from it, and threads that take metadata from it.
    :param nactive: pages in active extents, by its counter.
    :param internal: bytes that jemalloc took for itself from this arena.
    :param stats: False in a build without statistics: what is counted for them is then None,
        and 0 in ``bins`` and ``large``.
    :param mapped: bytes, the base's among them.
    :param resident: bytes that jemalloc takes for resident: pages in use and dirty, before 5.3 muzzy ones too,
        and the base's.
    :param abandoned_vm: bytes that had to be left; None where not kept.
    :param large: counters by large size class, those ever used.
    :param bins: by small size class.
    :param walked: its extents by state; the last are those of a state that there is not.
    :param large_walked: large allocations in the radix tree, and their usable bytes.
    :param tcaches: address of the head of its list of thread caches (a pointer to the first, or 0).
    :param create_time: ns.
    :param use_hpa: None before 5.3.
    :param sec_bytes: bytes in HPA's cache of small extents; None before 5.3.
    :param hpa_dirty: dirty pages in HPA's page slabs; None before 5.3, as ``hpa_active``.
    :param ndirty: dirty pages as jemalloc's ``pdirty``: since 5.3.1 with HPA's.
    :param threads: that allocate from it; None when that could not be found out.
    """

    index: int
    address: int
    base: BaseState
    auto: Optional[bool]
    nthreads: tuple[int, int]
    nactive: int
    ndirty: int
    dirty: CacheState
    muzzy: CacheState
    retained: CacheState
    decay_dirty: DecayState
    decay_muzzy: DecayState
    stats: bool
    internal: Optional[int]
    mapped: Optional[int]
    resident: Optional[int]
    abandoned_vm: Optional[int]
    large: tuple[LargeClass, ...]
    bins: tuple[BinState, ...]
    walked: Sequence[StateSum]
    large_walked: tuple[int, int]
    tcaches: int
    create_time: int
    page: int
    use_hpa: Optional[bool] = None
    sec_bytes: Optional[int] = None
    hpa_active: Optional[int] = None
    hpa_dirty: Optional[int] = None
    threads: Optional[tuple[ThreadRef, ...]] = None

    @property
    def small_allocated(self) -> int:
        """Bytes of small regions handed out, tcached ones included, by the bins' counters."""
        return sum(one.stats.curregs * one.info.reg_size for one in self.bins)

    @property
    def large_allocated(self) -> int:
        """Usable bytes of large allocations, tcached ones included, by counters."""
        return sum(one.allocated for one in self.large)

    @property
    def small_walked(self) -> int:
        """Bytes of small regions in use by the slabs, tcached ones included."""
        return sum(one.used * one.info.reg_size for one in self.bins)

    @property
    def allocated(self) -> int:
        """As jemalloc's own ``allocated``; in builds without statistics by the extents."""
        if not self.stats:
            return self.small_walked + self.large_walked[1]
        return self.small_allocated + self.large_allocated

    @property
    def active(self) -> int:
        """Bytes in active extents, by counter."""
        return self.nactive * self.page

    @property
    def metadata(self) -> Optional[int]:
        """Bytes of metadata: the base's and internal allocations. None in builds without statistics."""
        if self.base.allocated is None or self.internal is None:
            return None
        return self.base.allocated + self.internal


@dataclass(frozen=True)
class TsdState:
    """One thread's data.

    :param thread: None where no thread of the target has it (another's memory, or a thread that is gone).
    :param state: None when its number is none that is known.
    :param arena: address of the arena it allocates from; 0 for none yet.
    :param arenas_tdata: address; 0 for none; None since 5.3, as ``bypass``.
    :param ticks: what is left on the decay ticker in the tsd; None before 5.3.
    :param tcache: address of the ``tcache_t`` within.
    :param tcache_arena: address of the arena that its cache is filled from; 0 for none.
    """

    address: int
    thread: Optional[ThreadRef]
    raw_state: int
    state: Optional[TsdKind]
    arena: int
    iarena: int
    tcache_enabled: bool
    tcache: int
    tcache_arena: int
    arenas_tdata: Optional[int] = None
    bypass: Optional[bool] = None
    ticks: Optional[int] = None


@dataclass(frozen=True, eq=False)
class CacheBin:
    """One size class of a thread cache (``cache_bin_t``).

    :param szind: size class index.
    :param size: usable bytes of one object.
    :param objects: the cached pointers, the next to be handed out first.
    :param most: objects that it may hold; None when not known.
    :param low_water: fewest objects since the last collection; None when not known.
    """

    szind: int
    size: int
    objects: U64
    most: Optional[int] = None
    low_water: Optional[int] = None

    @property
    def cached(self) -> int:
        """Objects."""
        return len(self.objects)

    @property
    def bytes(self) -> int:
        """Usable bytes of the objects."""
        return self.cached * self.size


@dataclass(frozen=True, eq=False)
class ThreadCache:
    """One thread's cache, or one made through ``mallctl("tcache.create")``.

    :param tsd: whose it is; None for one that belongs to no thread.
    :param address: of the ``tcache_t``.
    :param arena: address of the arena that it is filled from; 0 for none.
    :param bins: the classes that hold objects, by size.
    :param stack: an address in the block with all its stacks; None where not known.
    """

    tsd: Optional[TsdState]
    address: int
    arena: int
    bins: tuple[CacheBin, ...]
    stack: Optional[int] = None

    @property
    def thread(self) -> Optional[ThreadRef]:
        """The thread, or None."""
        return None if self.tsd is None else self.tsd.thread

    @property
    def cached(self) -> int:
        """Objects of all classes."""
        return sum(one.cached for one in self.bins)

    @property
    def bytes(self) -> int:
        """Usable bytes of all classes."""
        return sum(one.bytes for one in self.bins)


@dataclass
class Jemalloc:
    """One jemalloc, for its own commands (``Heap.detail``).

    :param arenas: initialised ones, by index.
    :param tsds: of the target's threads, or those on jemalloc's own lists; None when not findable.
    :param tcaches: every thread cache that could be found; None when that could not be done.
    :param complete: False when the walk was interrupted or memory is absent.
    :param name: what reports call it: "jemalloc", or that and what tells it from others of the target.
    """

    target: Target
    location: Location
    extents: Extents
    arenas: Sequence[ArenaState] = ()
    tsds: Optional[Sequence[TsdState]] = None
    problems: list[Problem] = field(default_factory=list)
    complete: bool = True
    tcaches: Optional[Sequence[ThreadCache]] = None
    name: str = "jemalloc"

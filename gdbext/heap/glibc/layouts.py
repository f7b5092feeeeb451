"""glibc malloc's structures from 2.23 to 2.44, as data.

Upstream: ``malloc/malloc.c`` (``malloc_state``, ``malloc_par``, ``tcache_perthread_struct``) and
``malloc/arena.c`` (``heap_info``). A variant names the release and the commit that made it; which one
a target has is decided by its invariants (``find``), never by a version number. Distributions
backport, so the structures vary independently: the tables are not tied to each other.

``MALLOC_ALIGNMENT`` enters the layouts: it sets the number of fastbins and the padding of
``heap_info``. Since glibc commit 4e61a6be44 ("i386: Increase MALLOC_ALIGNMENT to 16 [BZ #21120]")
(in 2.26) it is 16 on i386; before that 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Mapping, Sequence

from gdbext.abi import Abi
from gdbext.heap.glibc.sizes import Sizes, sizes_for
from gdbext.layout import StructLayout, declare

BIN_COUNT = 127  # lists in malloc_state.bins; bin i is bins[2i-2], bins[2i-1]

# Members that changed their name and nothing else, to the name used here.
CANONICAL = {
    "mchunk_prev_size": "prev_size",
    "mchunk_size": "size",
    "tcache_small_bins": "tcache_bins",
    "num_slots": "counts",
}


@dataclass(frozen=True)
class Variant:
    """One declaration of a structure.

    :param since: first release that has it.
    :param commit: upstream commit, abbreviated, with its title; "" for the oldest one supported.
    """

    since: str
    commit: str
    members: tuple[str, ...]

    @property
    def origin(self) -> str:
        """The variant as evidence names it."""
        return f"glibc {self.since} ({self.commit})" if self.commit else f"glibc {self.since}"


@dataclass(frozen=True)
class TcacheLayout:
    """A thread cache's structures.

    :param struct: ``tcache_perthread_struct``, with members ``counts`` and ``entries``.
    :param entry: ``tcache_entry``; has a ``key`` where double frees are detected.
    :param counts_down: ``counts`` holds the free slots, not the entries (``num_slots``).
    """

    struct: StructLayout
    entry: StructLayout
    counts_down: bool = False

    @property
    def bins(self) -> int:
        """Number of lists."""
        return self.struct.member("entries").count or 0


# The same in every release; fd_nextsize and bk_nextsize are in use in large bins only.
MALLOC_CHUNK = (
    Variant(
        "2.23", "", ("size_t prev_size", "size_t size", "ptr fd", "ptr bk", "ptr fd_nextsize", "ptr bk_nextsize")
    ),
)

_STATE_TAIL = (
    "ptr top",
    "ptr last_remainder",
    "ptr bins[254]",
    "u32 binmap[4]",
    "ptr next",
    "ptr next_free",
    "size_t attached_threads",
    "size_t system_mem",
    "size_t max_system_mem",
)

# Newest first, here and below.
MALLOC_STATES = (
    Variant(
        "2.43",
        'bb5a4f5295 "malloc: Remove fastbin infrastructure"',
        ("i32 mutex", "i32 flags", *_STATE_TAIL),
    ),
    Variant(
        "2.27",
        'e956075a5a "Use relaxed atomics for malloc have_fastchunks"',
        (
            "i32 mutex",
            "i32 flags",
            "i32 have_fastchunks",
            "ptr fastbinsY[NFASTBINS]",
            *_STATE_TAIL,
        ),
    ),
    Variant("2.23", "", ("i32 mutex", "i32 flags", "ptr fastbinsY[NFASTBINS]", *_STATE_TAIL)),
)

_HEAP_HEAD = ("ptr ar_ptr", "ptr prev", "size_t size", "size_t mprotect_size")

HEAP_INFOS = (
    Variant(
        "2.35",
        'c1beb51d08 "malloc: Add Huge Page support to arenas"',
        (*_HEAP_HEAD, "size_t pagesize", "u8 pad[PAD_AFTER_5]"),
    ),
    Variant("2.23", "", (*_HEAP_HEAD, "u8 pad[PAD_AFTER_4]")),
)

_PAR_HEAD = (
    "ulong trim_threshold",
    "size_t top_pad",
    "size_t mmap_threshold",
    "size_t arena_test",
    "size_t arena_max",
)
_PAR_HUGE = ("size_t thp_pagesize", "size_t hp_pagesize", "i32 hp_flags")
_PAR_MMAPS = (
    "i32 n_mmaps",
    "i32 n_mmaps_max",
    "i32 max_n_mmaps",
    "i32 no_dyn_threshold",
    "size_t mmapped_mem",
    "size_t max_mmapped_mem",
)
_PAR_TCACHE = ("size_t tcache_bins", "size_t tcache_max_bytes", "size_t tcache_count")
_PAR_LIMIT = ("size_t tcache_unsorted_limit",)

MALLOC_PARS = (
    # From the debug info of 2.44. It differs from 2.43 behind all that is used; where both fit, it is named.
    Variant(
        "2.44",
        "without tcache_unsorted_limit",
        (*_PAR_HEAD, "i32 thp_mode", *_PAR_HUGE, *_PAR_MMAPS, "ptr sbrk_base", *_PAR_TCACHE),
    ),
    Variant(
        "2.43",
        '9097cbf5d8 "malloc: Enable THP always support on hugetlb tunable"',
        (
            *_PAR_HEAD,
            "i32 thp_mode",
            *_PAR_HUGE,
            *_PAR_MMAPS,
            "ptr sbrk_base",
            *_PAR_TCACHE,
            *_PAR_LIMIT,
        ),
    ),
    # Since glibc commit cbfd798810 ("malloc: add tcache support for large chunk caching") (in 2.42)
    # tcache_bins is called tcache_small_bins; the layout is the same.
    Variant(
        "2.35",
        '98d5fcb8d0 "malloc: Add Huge Page support for mmap"',
        (*_PAR_HEAD, *_PAR_HUGE, *_PAR_MMAPS, "ptr sbrk_base", *_PAR_TCACHE, *_PAR_LIMIT),
    ),
    Variant(
        "2.26",
        'd5c3fafc43 "Add per-thread cache to malloc"',
        (*_PAR_HEAD, *_PAR_MMAPS, "ptr sbrk_base", *_PAR_TCACHE, *_PAR_LIMIT),
    ),
    Variant(
        "2.24",
        'ca135f824b "malloc: Remove max_total_mem member form struct malloc_par"',
        (*_PAR_HEAD, *_PAR_MMAPS, "ptr sbrk_base"),
    ),
    Variant("2.23", "", (*_PAR_HEAD, *_PAR_MMAPS, "size_t max_total_mem", "ptr sbrk_base")),
)

# "counts" is num_slots, counting down, in the newest.
TCACHES = (
    Variant(
        "2.42",
        '7e10e30e64 "malloc: Count tcache entries downwards"',
        ("u16 counts[76]", "ptr entries[76]"),
    ),
    Variant(
        "2.30",
        '1f50f2ad85 "Small tcache improvements"',
        ("u16 counts[64]", "ptr entries[64]"),
    ),
    Variant(
        "2.26",
        'd5c3fafc43 "Add per-thread cache to malloc"',
        ("u8 counts[64]", "ptr entries[64]"),
    ),
)

TCACHE_ENTRIES = (
    # Since glibc commit fc859c3048 ("Harden tcache double-free check") (in 2.34) the key is random.
    Variant(
        "2.29", 'bcdaad21d4 "malloc: tcache double free check"', ("ptr next", "ptr key")
    ),
    Variant("2.26", 'd5c3fafc43 "Add per-thread cache to malloc"', ("ptr next",)),
)


def chunk_size(sizes: Sizes, request: int) -> int:
    """Return the size of the chunk that holds ``request`` bytes (``request2size``)."""
    aligned = (request + sizes.word + sizes.alignment - 1) & -sizes.alignment
    return max(sizes.minimum, aligned)


def chunk_sizes(sizes: Sizes, request: int) -> tuple[int, ...]:
    """Return every size that a chunk for ``request`` bytes can have.

    A remainder too small to be a chunk of its own stays with it.
    """
    least = chunk_size(sizes, request)
    return tuple(range(least, least + sizes.minimum, sizes.alignment))


def fastbin_count(sizes: Sizes) -> int:
    """Return ``NFASTBINS``: lists up to the largest size that ``mallopt`` can ask for."""
    return sizes.fastbin_index(chunk_size(sizes, 80 * sizes.word // 4)) + 1


# ABIs of 4-byte words whose long double is aligned to 16, or whose glibc says 16 (then 8 before 2.26).
_ALIGNMENTS_32 = {"i386": (16, 8), "x86-64": (16,), "20": (16,), "243": (16,)}


def alignments(abi: Abi) -> tuple[int, ...]:
    """Return the values that ``MALLOC_ALIGNMENT`` may have, likeliest first."""
    return (16,) if abi.pointer_size == 8 else _ALIGNMENTS_32.get(abi.machine, (8,))


def heap_max_default(abi: Abi) -> int:
    """Return ``HEAP_MAX_SIZE`` without huge pages: twice ``DEFAULT_MMAP_THRESHOLD_MAX``, bytes."""
    return 64 << 20 if abi.pointer_size == 8 else 1 << 20


@lru_cache(maxsize=None)
def malloc_chunk(abi: Abi) -> StructLayout:
    """Return ``malloc_chunk``, with the members that only a free chunk has."""
    return _all("malloc_chunk", MALLOC_CHUNK, abi, {})[0]


@lru_cache(maxsize=None)
def malloc_states(abi: Abi, alignment: int) -> tuple[StructLayout, ...]:
    """Return every ``malloc_state``, newest first."""
    counts = {"NFASTBINS": fastbin_count(sizes_for(abi, alignment))}
    return _all("malloc_state", MALLOC_STATES, abi, counts)


@lru_cache(maxsize=None)
def heap_infos(abi: Abi, alignment: int) -> tuple[StructLayout, ...]:
    """Return every ``heap_info``, newest first."""
    word = abi.pointer_size
    counts = {"PAD_AFTER_5": -3 * word % alignment, "PAD_AFTER_4": -6 * word % alignment}
    return _all("heap_info", HEAP_INFOS, abi, counts)


@lru_cache(maxsize=None)
def malloc_pars(abi: Abi) -> tuple[StructLayout, ...]:
    """Return every ``malloc_par``, newest first."""
    return _all("malloc_par", MALLOC_PARS, abi, {})


def tcache_layouts(abi: Abi) -> tuple[TcacheLayout, ...]:
    """Return every thread cache, newest first.

    Only the entry's ``key`` varies beyond the structure; it has no bearing on where the lists are.
    """
    structs = _all("tcache_perthread_struct", TCACHES, abi, {})
    keyed, plain = _all("tcache_entry", TCACHE_ENTRIES, abi, {})
    return (
        TcacheLayout(structs[0], keyed, counts_down=True),
        TcacheLayout(structs[1], keyed),
        TcacheLayout(structs[2], keyed),
        TcacheLayout(structs[2], plain),
    )


def tcache_from_debug(struct: StructLayout, entry: StructLayout) -> TcacheLayout:
    """Return the thread cache that debug info describes."""
    return TcacheLayout(struct.renamed(CANONICAL), entry, counts_down="num_slots" in struct)


def _all(
    name: str, variants: Sequence[Variant], abi: Abi, counts: Mapping[str, int]
) -> tuple[StructLayout, ...]:
    return tuple(
        declare(name, variant.members, abi, variant.origin, counts) for variant in variants
    )

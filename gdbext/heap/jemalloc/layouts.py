"""jemalloc's structures under one set of member names, from debug info or from recorded tables.

``WANTED`` says what each structure and member is called in 5.1.0, 5.2.1, 5.3.0 and 5.3.1; it serves the debug info
of a target and the script that records ``data/layouts/*.json`` from debug builds
(``tests/support/record_jemalloc.py``), so that both give the same :class:`Layout`. What debug info does not hold,
the fields of ``e_bits``, follows from the structures that a version has (``FAMILIES``).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Mapping, Optional, Sequence

from gdbext.errors import LayoutError
from gdbext.layout import Member, StructLayout

_TABLES = os.path.join(os.path.dirname(__file__), "data", "layouts")

Paths = tuple[str, ...]

# What a bin counts in every version (``bin_stats.h``, ``struct bin_stats_s``).
BIN_COUNTERS = (
    "nmalloc",
    "ndalloc",
    "nrequests",
    "curregs",
    "nfills",
    "nflushes",
    "nslabs",
    "reslabs",
    "curslabs",
)


@dataclass(frozen=True)
class Wanted:
    """A structure as jemalloc's versions name it.

    :param tags: its tags, newest first.
    :param members: our name -> the paths that it has had; the first that exists counts.
    :param needed: members without which the structure is of no use.
    """

    tags: Paths
    members: Mapping[str, Paths]
    needed: Paths = ()


def _same(*names: str) -> dict[str, Paths]:
    return {name: (name,) for name in names}


def _tsd(*names: str) -> dict[str, Paths]:
    # tsd.h mangles member names so that nobody uses them: one way in 5.1, another since 5.2
    mangles = ("cant_access_tsd_items_directly_use_a_getter_or_setter_", "use_a_getter_or_setter_instead_")
    paths = {name: name.split(".") for name in names}
    return {
        name.replace(".", "_"): tuple(".".join((mangle + first, *rest)) for mangle in mangles)
        for name, (first, *rest) in paths.items()
    }


def _mutex(*places: str) -> Paths:
    """Return the paths of the word that is not 0 while a ``malloc_mutex_t`` is held (``mutex.h``)."""
    return tuple(f"{place}.lock.__data.__lock" for place in places)


def _counters(kind: str) -> dict[str, Paths]:
    old, new = f"stats.decay_{kind}", f"stats.pa_shard_stats.pac_stats.decay_{kind}"
    names = ("npurge", "nmadvise", "purged")
    return {f"{kind}_{name}": (f"{new}.{name}", f"{old}.{name}") for name in names}


WANTED: Mapping[str, Wanted] = {
    "arena": Wanted(
        ("arena_s",),
        {
            "nthreads": ("nthreads",),
            "nactive": ("pa_shard.nactive", "nactive"),
            "dirty": ("pa_shard.pac.ecache_dirty", "extents_dirty"),
            "muzzy": ("pa_shard.pac.ecache_muzzy", "extents_muzzy"),
            "retained": ("pa_shard.pac.ecache_retained", "extents_retained"),
            "decay_dirty": ("pa_shard.pac.decay_dirty", "decay_dirty"),
            "decay_muzzy": ("pa_shard.pac.decay_muzzy", "decay_muzzy"),
            **_counters("dirty"),
            **_counters("muzzy"),
            "internal": ("stats.internal",),
            "mapped": ("stats.pa_shard_stats.pac_stats.pac_mapped", "stats.mapped"),
            "abandoned_vm": ("stats.pa_shard_stats.pac_stats.abandoned_vm", "stats.abandoned_vm"),
            "edata_avail": ("pa_shard.edata_cache.count", "extent_avail_cnt"),
            "lstats": ("stats.lstats",),
            "large": ("large.head.qlh_first", "large.qlh_first"),
            "large_mutex": _mutex("large_mtx"),
            "tcaches_mutex": _mutex("tcache_ql_mtx"),
            "tcaches": ("tcache_ql.qlh_first",),
            "descriptors": ("cache_bin_array_descriptor_ql.qlh_first",),
            "bins": ("all_bins", "bins"),
            "base": ("base",),
            "create_time": ("create_time.ns",),
            "last_thd": ("last_thd",),
            "dss_prec": ("dss_prec",),
            "use_hpa": ("pa_shard.use_hpa",),
            "ever_used_hpa": ("pa_shard.ever_used_hpa",),
            "hpa_shard": ("pa_shard.hpa_shard",),
            "hpa_central": ("pa_shard.hpa_shard.central",),
            "sec": ("pa_shard.hpa_shard.sec", "pa_shard.hpa_sec"),
            **{
                f"hpa_{name}": tuple(
                    f"pa_shard.hpa_shard.psset.{stats}.{name}" for stats in ("stats.merged", "merged_stats")
                )
                for name in ("npageslabs", "nactive", "ndirty")
            },
            "oversize_threshold": ("pa_shard.pac.oversize_threshold",),
        },
        ("nthreads", "nactive", "dirty", "bins", "base", "decay_dirty"),
    ),
    "large_stats": Wanted(
        ("arena_stats_large_s",),
        _same("nmalloc", "ndalloc", "nrequests", "active_bytes"),
        ("nmalloc", "ndalloc"),
    ),
    "decay": Wanted(
        ("decay_s", "arena_decay_s"),
        {
            **_same("purging", "time_ms", "npages_limit", "nunpurged", "backlog", "ceil_npages"),
            **{name: (f"{name}.ns",) for name in ("interval", "epoch", "deadline")},
        },
        ("time_ms", "epoch", "backlog"),
    ),
    "cache": Wanted(
        ("ecache_s", "extents_s"),
        {
            "npages": ("eset.npages", "npages"),
            "guarded_npages": ("guarded_eset.npages",),
            "nextents": ("nextents",),
            "nbytes": ("nbytes",),
            "bin_stats": ("eset.bin_stats",),
            "guarded_bin_stats": ("guarded_eset.bin_stats",),
            "heaps": ("eset.bins", "heaps"),
            "guarded_heaps": ("guarded_eset.bins",),
            "bitmap": ("eset.bitmap", "bitmap"),
            "guarded_bitmap": ("guarded_eset.bitmap",),
            "mutex": _mutex("mtx"),
            "lru": ("eset.lru.head.qlh_first", "lru.qlh_first"),
            "guarded_lru": ("guarded_eset.lru.head.qlh_first",),
            "state": ("state",),
        },
        ("npages", "heaps"),
    ),
    "bin": Wanted(
        ("bin_s",),
        {
            "mutex": _mutex("lock"),
            "slabcur": ("slabcur",),
            "nonfull": ("slabs_nonfull.ph.root", "slabs_nonfull.ph_root"),
            "full": ("slabs_full.head.qlh_first", "slabs_full.qlh_first"),
            **{name: (f"stats.{name}",) for name in (*BIN_COUNTERS, "nonfull_slabs")},
        },
        ("slabcur", "nonfull", "curregs", "curslabs"),
    ),
    "bins": Wanted(("bins_s",), {"shards": ("bin_shards",)}),
    "bin_info": Wanted(
        ("bin_info_s",),
        {
            **_same("reg_size", "slab_size", "nregs", "n_shards"),
            "bitmap_nbits": ("bitmap_info.nbits",),
            "bitmap_nlevels": ("bitmap_info.nlevels",),
            "bitmap_ngroups": ("bitmap_info.ngroups",),
            "bitmap_levels": ("bitmap_info.levels",),
        },
        ("reg_size", "slab_size", "nregs"),
    ),
    "base": Wanted(
        ("base_s",),
        {
            "ind": ("ehooks.ind", "ind"),
            "hooks": ("ehooks.ptr", "extent_hooks"),
            "mutex": _mutex("mtx"),
            **_same("blocks", "avail", "allocated", "resident", "mapped", "n_thp"),
            **_same("edata_allocated", "rtree_allocated"),
        },
        ("ind", "blocks", "avail", "allocated"),
    ),
    "base_block": Wanted(
        ("base_block_s",), {**_same("size", "next"), "extent": ("edata", "extent")}, ("size", "next")
    ),
    "extent": Wanted(
        ("edata_s", "extent_s"),
        {
            "bits": ("e_bits",),
            "address": ("e_addr",),
            "size": ("e_size_esn",),
            "sn": ("e_sn",),
            "pageslab": ("e_ps",),
            "list": ("ql_link_active", "ql_link"),
            "lru": ("ql_link_inactive", "ql_link"),
            "heap_prev": ("heap_link.link.prev", "ph_link.phn_prev"),
            "heap_next": ("heap_link.link.next", "ph_link.phn_next"),
            "heap_child": ("heap_link.link.lchild", "ph_link.phn_lchild"),
            "bitmap": ("e_slab_data.bitmap",),
            "prof_tctx": ("e_prof_info.e_prof_tctx", "e_prof_tctx"),
        },
        ("bits", "address", "size", "bitmap"),
    ),
    "rtree": Wanted(("rtree_s",), _same("root"), ("root",)),
    "rtree_leaf": Wanted(("rtree_leaf_elm_s",), {"bits": ("le_bits",), "extent": ("le_edata", "le_extent")}),
    "emap": Wanted(("emap_s",), _same("rtree")),
    "hpa_central": Wanted(("hpa_central_s",), _same("eden", "eden_len")),
    "sec": Wanted(("sec_s",), {**_same("shards", "bins", "npsizes"), "nshards": ("opts.nshards",)}),
    "sec_shard": Wanted(("sec_shard_s",), _same("bytes_cur", "bins")),
    "sec_bin": Wanted(
        ("sec_bin_s",), {"bytes_cur": ("bytes_cur",), "freelist": ("freelist.head.qlh_first",)}
    ),
    "tsd": Wanted(
        ("tsd_s",),
        {
            "state": ("state",),
            **_tsd(
                "tcache_enabled",
                "arenas_tdata_bypass",
                "narenas_tdata",
                "arenas_tdata",
                "reentrancy_level",
                "thread_allocated",
                "thread_deallocated",
                "iarena",
                "arena",
                "arena_decay_ticker.tick",
                "arena_decay_ticker.nticks",
                "sec_shard",
                "binshards",
                "tcache_slow",
                "tcache",
            ),
            # 5.2 keeps the link in the tcache
            "tsd_link": (
                *_tsd("tsd_link")["tsd_link"],
                *(f"{path}.tsd_link" for path in _tsd("tcache")["tcache"]),
            ),
        },
        ("state", "arena", "iarena", "tcache"),
    ),
    "arena_tdata": Wanted(
        ("arena_tdata_s",), {"tick": ("decay_ticker.tick",), "nticks": ("decay_ticker.nticks",)}
    ),
    "tcache": Wanted(
        ("tcache_s",),
        {
            **_same("bins", "bins_small", "bins_large", "arena", "next_gc_bin", "tcache_slow", "link"),
            "tick": ("gc_ticker.tick",),
            "nticks": ("gc_ticker.nticks",),
            "descriptor": ("cache_bin_array_descriptor",),
        },
    ),
    "tcache_slow": Wanted(
        ("tcache_slow_s",),
        {
            **_same("link", "arena", "tcache", "tcache_nbins", "next_gc_bin"),
            "descriptor": ("cache_bin_array_descriptor",),
        },
    ),
    "descriptor": Wanted(
        ("cache_bin_array_descriptor_s",),
        {
            "next": ("link.qre_next",),
            "prev": ("link.qre_prev",),
            "bins": ("bins",),
            "bins_small": ("bins_small",),
            "bins_large": ("bins_large",),
        },
    ),
    "cache_bin": Wanted(
        ("cache_bin_s",),
        {
            **_same("low_water", "ncached", "avail", "stack_head"),
            **_same("low_bits_low_water", "low_bits_full", "low_bits_empty"),
            "nrequests": ("tstats.nrequests",),
            "ncached_max": ("bin_info.ncached_max",),
        },
    ),
    "cache_bin_info": Wanted(("cache_bin_info_s",), _same("ncached_max")),
    "tcaches": Wanted(("tcaches_s",), _same("tcache")),
}

REQUIRED = ("arena", "decay", "cache", "bin", "bin_info", "base", "extent", "large_stats")


@dataclass(frozen=True)
class BitField:
    """A field of ``e_bits``."""

    shift: int
    width: int

    def take(self, bits: Any) -> Any:
        """Return the field of an integer or of an array of them."""
        return bits >> self._like(bits, self.shift) & self._like(bits, (1 << self.width) - 1)

    @staticmethod
    def _like(bits: Any, value: int) -> Any:
        # numpy before 2 makes a float of uint64 and int
        return value if isinstance(bits, int) else bits.dtype.type(value)


# Widths that follow the build.
_SZIND, _NFREE = -1, -2


@dataclass(frozen=True)
class Family:
    """What versions have in common that no debug info tells.

    :param marks: structure and member that only this family, and those before it,
        has; None for the last.
    :param bits: fields of ``e_bits`` from bit 0 up, with their widths.
    :param leaf_low: low bits of a leaf element of the radix tree that are not part of the address.
    :param tsd_states: what each number in ``tsd.state`` means.
    :param resident_muzzy: whether jemalloc counts muzzy pages as resident.
    :param dirty_hpa: whether jemalloc counts the huge page allocator's dirty pages among an arena's.
    :param source: upstream files that the facts are from.
    """

    name: str
    marks: Optional[tuple[str, str]]
    bits: tuple[tuple[str, int], ...]
    leaf_low: int
    tsd_states: Paths
    resident_muzzy: bool
    dirty_hpa: bool
    source: str


_HEAD = (("arena", 12), ("slab", 1), ("committed", 1))
_TAIL = (("szind", _SZIND), ("nfree", _NFREE))
_BITS_5_3 = (
    *_HEAD,
    ("pai", 1),
    ("zeroed", 1),
    ("guarded", 1),
    ("state", 3),
    *_TAIL,
    ("shard", 6),
    ("is_head", 1),
)
_STATES = (
    "nominal",
    "nominal_slow",
    "nominal_recompute",
    "minimal",
    "purgatory",
    "reincarnated",
    "uninitialized",
)

FAMILIES = (
    Family(
        "5.3.1",
        ("large_stats", "active_bytes"),
        _BITS_5_3,
        0x7F,
        _STATES,
        False,
        True,
        "edata.h, rtree.h, tsd.h, pa_extra.c of 5.3.1 (81034ce1f1)",
    ),
    Family(
        "5.3",
        ("extent", "sn"),
        _BITS_5_3,
        0x7F,
        _STATES,
        False,
        False,
        "edata.h, rtree.h, tsd.h, pa_extra.c of 5.3.0 (54eaed1d8b)",
    ),
    Family(
        "5.2",
        ("bins", "shards"),
        (
            *_HEAD,
            ("dumpable", 1),
            ("zeroed", 1),
            ("state", 2),
            *_TAIL,
            ("shard", 6),
            ("is_head", 1),
        ),
        0x1,
        _STATES,
        True,
        False,
        "extent_structs.h, rtree.h, tsd.h, arena.c of 5.2.1 (ea6b3e973b)",
    ),
    Family(
        "5.1",
        None,
        (*_HEAD, ("dumpable", 1), ("zeroed", 1), ("state", 2), *_TAIL),
        0x1,
        tuple(state for state in _STATES if state != "nominal_recompute"),
        True,
        False,
        "extent_structs.h, rtree.h, tsd.h, arena.c of 5.1.0 (61efbda709)",
    ),
)


@dataclass(frozen=True)
class Layout:
    """Where everything is in one jemalloc.

    :param version: "5.3.0", or "" where only debug info speaks.
    :param origin: for the evidence: "debug info", or the version with its upstream commit.
    :param structs: by the names of ``WANTED``; those that a version does not have are missing.
    """

    version: str
    origin: str
    structs: Mapping[str, StructLayout]
    family: Family

    def __getitem__(self, name: str) -> StructLayout:
        """Return a structure.

        :raises LayoutError: when this version has none of that name.
        """
        try:
            return self.structs[name]
        except KeyError:
            raise LayoutError(f"jemalloc {self.version} ({self.origin}) has no structure {name}") from None

    def has(self, struct: str, member: str) -> bool:
        """Whether a structure exists and has that member."""
        return struct in self.structs and member in self.structs[struct]

    @property
    def nsizes(self) -> int:
        """Size classes, small and large (``SC_NSIZES``)."""
        return self["base"].member("avail").count or 0

    @property
    def nlarge(self) -> int:
        """Large size classes."""
        return self["arena"].member("lstats").extent // self["large_stats"].size

    @property
    def nbins(self) -> int:
        """Small size classes (``SC_NBINS``)."""
        return self.nsizes - self.nlarge

    @property
    def bins_are_pointers(self) -> bool:
        """Whether an arena holds pointers to its bins (5.2) rather than the bins."""
        return "bins" in self.structs and self["arena"].member("bins").size == self["bins"].size

    def fields(self, lg_page: int) -> Mapping[str, BitField]:
        """Return the fields of ``e_bits`` for a page size."""
        widths = {_SZIND: (self.nsizes - 1).bit_length(), _NFREE: lg_page - 3 + 1}
        fields, shift = {}, 0
        for name, width in self.family.bits:
            fields[name] = BitField(shift, widths.get(width, width))
            shift += fields[name].width
        return fields


def make_layout(structs: Mapping[str, StructLayout], version: str, origin: str) -> Layout:
    """Return the layout that structures (by the names of ``WANTED``) make.

    :raises LayoutError: when one that is needed is missing.
    """
    for name in REQUIRED:
        if name not in structs:
            raise LayoutError(f"jemalloc's structure {' or '.join(WANTED[name].tags)} is not known")
    return Layout(version, origin, structs, _family(structs))


def _family(structs: Mapping[str, StructLayout]) -> Family:
    for family in FAMILIES:
        if family.marks is None or (
            family.marks[0] in structs and family.marks[1] in structs[family.marks[0]]
        ):
            return family
    raise LayoutError("no family of jemalloc versions fits")


def pick_structs(find: Callable[[str], Optional[StructLayout]]) -> dict[str, StructLayout]:
    """Return the wanted structures, under our names.

    :param find: the layout of ``struct TAG`` with nested members as dotted paths, or None.
    """
    picked: dict[str, StructLayout] = {}
    for name, wanted in WANTED.items():
        layouts = (_pick(wanted, layout) for layout in map(find, wanted.tags) if layout is not None)
        chosen = next((one for one in layouts if all(member in one for member in wanted.needed)), None)
        if chosen is not None:
            picked[name] = chosen
    return picked


def _pick(wanted: Wanted, layout: StructLayout) -> StructLayout:
    members = {}
    for name, paths in wanted.members.items():
        path = next((path for path in paths if path in layout), None)
        if path is not None:
            found = layout.members[path]
            members[name] = Member(name, found.offset, found.size, found.count, found.signed)
    return StructLayout(layout.name, layout.size, members, layout.origin)


# -- recorded tables ----------------------------------------------------------------------------------


def to_table(structs: Mapping[str, StructLayout]) -> dict[str, Any]:
    """Return structures as JSON holds them: size, and members as [offset, size, count or null]."""
    return {
        name: {
            "tag": layout.name,
            "size": layout.size,
            "members": {key: [one.offset, one.size, one.count] for key, one in layout.members.items()},
        }
        for name, layout in structs.items()
    }


def from_table(structs: Mapping[str, Any], origin: str) -> dict[str, StructLayout]:
    """Return the structures of a recorded table."""
    return {
        name: StructLayout(
            facts["tag"],
            facts["size"],
            {key: Member(key, *numbers) for key, numbers in facts["members"].items()},
            origin,
        )
        for name, facts in structs.items()
    }


@lru_cache(maxsize=None)
def recorded() -> tuple[Layout, ...]:
    """Return every recorded layout, newest first."""
    names = sorted((name for name in os.listdir(_TABLES) if name.endswith(".json")), reverse=True)
    return tuple(_read_table(os.path.join(_TABLES, name)) for name in names)


def _read_table(path: str) -> Layout:
    with open(path, encoding="utf-8") as stream:
        table = json.load(stream)
    origin = f"table of {table['version']}, {table['commit'][:10]}"
    return make_layout(from_table(table["structs"], origin), table["version"], origin)


def for_version(text: str) -> Sequence[Layout]:
    """Return the recorded layouts of the version that ``text`` begins with ("5.3.0-0-g…"); none is an answer."""
    return [layout for layout in recorded() if text.split("-")[0] == layout.version]

"""jemalloc's globals by name, with any prefix, and their structures from debug info.

A symbol or a type counts only when the file that it is from has the build-id of the module that the target has
mapped there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, Mapping, Optional

from gdbext.debuginfo import Symbol
from gdbext.errors import LayoutError
from gdbext.heap.jemalloc.layouts import Layout, make_layout, pick_structs
from gdbext.heap.symbolcheck import find_disbelief
from gdbext.layout import StructLayout
from gdbext.process import Module
from gdbext.report import Problem
from gdbext.target import Target

# Upstream's own; bare; Rust's jemalloc-sys and its older name; upstream's test builds.
PREFIXES = ("je_", "", "_rjem_je_", "_rjem_", "jet_")

# Names with the prefix, and those that are static in their file and have none.
PREFIXED = (
    "extents_rtree",
    "arena_emap_global",
    "bin_infos",
    "sz_index2size_tab",
    "sz_large_pad",
    "nhbins",
    "arena_bin_offsets",
    "narenas_auto",
    "manual_arena_base",
    "tcache_bin_info",
    "tcaches",
    "opt_disable_large_size_classes",
    "opt_cache_oblivious",
    "background_thread_enabled_state",
)
STATIC = (
    "narenas_total",
    "tsd_nominal_tsds",
    "tcaches_past",
    "disabled_bin",
    "rtree_levels",
    "huge_arena_ind",
)


@dataclass(frozen=True)
class Globals:
    """Where one jemalloc's globals may be, not yet held to the invariants.

    :param symbols: addresses by name without prefix; "arenas" is among them, and a root of the radix tree.
    :param layouts: that may fit, likeliest first.
    """

    prefix: Optional[str]
    module: Optional[Module]
    symbols: Mapping[str, int]
    found_by: str
    layouts: tuple[Layout, ...] = ()
    root_count: Optional[int] = None
    problems: tuple[Problem, ...] = field(default=())


def find_named(target: Target) -> tuple[list[Globals], list[Problem]]:
    """Return every jemalloc whose names can be believed, and why others cannot."""
    problems: list[Problem] = []
    found: dict[int, Globals] = {}
    for prefix in PREFIXES:
        for symbol in target.symbols.find_symbols(prefix + "arenas"):
            one = _globals(target, prefix, symbol, problems)
            if one is not None:
                found.setdefault(symbol.address, one)
    return list(found.values()), problems


def _globals(target: Target, prefix: str, arenas: Symbol, problems: list[Problem]) -> Optional[Globals]:
    names = dict(_all_names(target, prefix, arenas))
    if not ("extents_rtree" in names or "arena_emap_global" in names):
        return None  # another program's "arenas"
    wrong = find_disbelief(target, arenas)
    if wrong is not None:
        problems.append(wrong)
        return None
    structs = find_structs(target, str(arenas.build_id))
    module = target.find_module(arenas.address)
    root_count = structs["rtree"].member("root").count if "rtree" in structs else None
    return Globals(prefix, module, names, "symbols", _typed(structs), root_count)


def _all_names(target: Target, prefix: str, arenas: Symbol) -> Iterator[tuple[str, int]]:
    """Iterate over the globals of the same file. A static name that it has twice is left out."""
    yield "arenas", arenas.address
    for name, known_as in [(name, prefix + name) for name in PREFIXED] + [(name, name) for name in STATIC]:
        own = {
            one.address for one in target.symbols.find_symbols(known_as) if one.build_id == arenas.build_id
        }
        if len(own) == 1:
            yield name, own.pop()


def find_structs(target: Target, build_id: str) -> dict[str, StructLayout]:
    """Return jemalloc's structures as the debug info of the file with ``build_id`` has them; none without it."""

    def find(tag: str) -> Optional[StructLayout]:
        return next(
            (one.layout for one in target.symbols.find_structs(tag) if one.build_id == build_id), None
        )

    return pick_structs(find)


def _typed(structs: Mapping[str, StructLayout]) -> tuple[Layout, ...]:
    try:
        return (make_layout(structs, "", "debug info"),)
    except LayoutError:
        return ()


def root_of(symbols: Mapping[str, int], layout: Layout) -> Optional[int]:
    """Return the address of the radix tree's first element, or None when no name leads to it."""
    name = "arena_emap_global" if layout.has("emap", "rtree") else "extents_rtree"
    if name not in symbols:
        return symbols.get("rtree_root")
    inner = layout["emap"].offset("rtree") if layout.has("emap", "rtree") else 0
    return symbols[name] + inner + layout["rtree"].offset("root")

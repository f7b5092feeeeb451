"""Whether what may be a jemalloc is one: its globals held to the invariants under each layout that is known.

The layout that fits best makes its :class:`Location`; what breaks the invariants is refused in one line.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Mapping, Optional, Sequence

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.find.invariants import (
    MOST_ARENAS,
    Slots,
    Votes,
    compute_bin_infos,
    count_mapped_back,
    current_slabs,
    read_bin_infos,
    read_slots,
)
from gdbext.heap.jemalloc.find.moduledata import find_bin_infos
from gdbext.heap.jemalloc.find.named import Globals, root_of
from gdbext.heap.jemalloc.find.versions import find_versions, lacks_constants
from gdbext.heap.jemalloc.layouts import Layout, for_version, recorded
from gdbext.heap.jemalloc.model import BinInfo, Geometry, Location
from gdbext.heap.jemalloc.read.rtree import geometries
from gdbext.heap.jemalloc.read.tsd import find_tsd_offset
from gdbext.heap.jemalloc.sizes import size_classes
from gdbext.report import Evidence, Problem
from gdbext.target import Target
from gdbext.wording import count_text

UNUSED = "it has no arena yet"


@dataclass(frozen=True)
class Fit:
    """One layout held to one candidate."""

    layout: Layout
    slots: Slots
    geometry: Geometry
    root: int
    bin_infos: tuple[BinInfo, ...]
    votes: Votes


@dataclass
class Refusal:
    """Why no layout fits: the reason of the one that came furthest.

    :param absent: whether it is that memory is not in the target.
    """

    reason: str = "no layout is known"
    rank: int = -1
    at: Optional[int] = field(default=None)
    absent: bool = False

    def note(self, rank: int, at: Optional[int], reason: str, absent: bool = False) -> None:
        """Keep the reason if it is of a later step than the one before."""
        if rank > self.rank:
            self.rank, self.at, self.reason, self.absent = rank, at, reason, absent


def locate_all(target: Target, candidates: Sequence[Globals], problems: list[Problem]) -> list[Location]:
    """Return the locations of those candidates that hold.

    :param problems: gets why others do not.
    """
    located = []
    for candidate in candidates:
        refusal = Refusal()
        location = locate(target, candidate, refusal)
        if location is not None:
            located.append(location)
        elif refusal.reason != UNUSED:
            problems.append(_refused(candidate, refusal))
    return located


def _refused(candidate: Globals, refusal: Refusal) -> Problem:
    where = candidate.module.path if candidate.module is not None else "the target"
    found = f"jemalloc in {where} (by {candidate.found_by})"
    at = refusal.at or candidate.symbols["arenas"]
    if refusal.absent:
        return Problem("absent-memory", at, f"{found} cannot be read: {refusal.reason}")
    return Problem("no-layout", at, f"{found} is not believed: {refusal.reason}")


def locate(target: Target, candidate: Globals, refusal: Refusal) -> Optional[Location]:
    """Return the location that a candidate's globals make under the layout that fits best, or None."""
    fits = []
    for layout in _layouts(target, candidate):
        fit = _fit(target, candidate, layout, refusal)
        if fit is not None:
            fits.append(fit)
    if not fits:
        return None
    best = max(fits, key=lambda fit: (fit.votes.back, len(fit.slots.sound)))
    return _complete(target, candidate, best)


def _layouts(target: Target, candidate: Globals) -> Sequence[Layout]:
    """Return the layouts to try: debug info's alone, else the version's, else all."""
    if candidate.layouts or candidate.module is None:
        return candidate.layouts or recorded()
    texts = find_versions(target, candidate.module)
    named = [layout for text in texts for layout in for_version(text)]
    return named or recorded()


def _fit(target: Target, candidate: Globals, layout: Layout, refusal: Refusal) -> Optional[Fit]:
    arenas = candidate.symbols["arenas"]
    slots = read_slots(target, arenas, MOST_ARENAS, layout)
    if slots is None:
        absent = target.lacks(arenas, 8 * MOST_ARENAS)
        where = "is not in the target" if absent else "cannot be read"
        refusal.note(0, arenas, f"its array of arenas at {arenas:#x} {where}", absent)
        return None
    if not slots.holds:
        refusal.note(1, arenas, _why_not(slots, layout), bool(slots.absent) and not slots.broken)
        return None
    bin_infos = _bin_infos(target, candidate, layout)
    if bin_infos is None:
        refusal.note(
            2, arenas, f"its table of small size classes is not as the source computes it ({layout.origin})"
        )
        return None
    return _fit_tree(target, candidate, layout, slots, bin_infos, refusal)


def _why_not(slots: Slots, layout: Layout) -> str:
    if slots.broken:
        index = slots.broken[0]
        return f"arenas[{index}]->base->ind is not {index} ({layout.origin})"
    return "its arenas are not in the target" if slots.absent else UNUSED


def _bin_infos(target: Target, candidate: Globals, layout: Layout) -> Optional[tuple[BinInfo, ...]]:
    """Return the target's table; () where the target does not hold it; None where it holds another or none."""
    address, module = candidate.symbols.get("bin_infos"), candidate.module
    if address is not None and not target.lacks(address, layout["bin_info"].size):
        return read_bin_infos(target, address, layout)
    found = find_bin_infos(target, module, layout) if module is not None else None
    # a constant until 5.1: where the file's own pages are not in the target, what the source computes serves
    return found or (() if module is None or lacks_constants(target, module) else None)


def _fit_tree(
    target: Target,
    candidate: Globals,
    layout: Layout,
    slots: Slots,
    bin_infos: tuple[BinInfo, ...],
    refusal: Refusal,
) -> Optional[Fit]:
    root = root_of(candidate.symbols, layout)
    if root is None:
        refusal.note(3, None, "the root of its radix tree is not known")
        return None
    slabs = current_slabs(target, slots.addresses[list(slots.sound)].tolist(), layout)
    fits = []
    for geometry in geometries(layout.nsizes, candidate.root_count):
        infos = bin_infos or compute_bin_infos(layout, geometry.page)
        if infos[0].slab_size % geometry.page == 0:
            votes = count_mapped_back(target, root, geometry, layout, slabs)
            fits.append(Fit(layout, slots, geometry, root, infos, votes))
    best = max(fits, key=lambda fit: (fit.votes.back, -fit.votes.elsewhere), default=None)
    if best is None or not best.votes.holds:
        most = best.votes.back if best is not None else 0
        reason = f"its radix tree leads back to {most} of {count_text(len(slabs), 'slab')} ({layout.origin})"
        refusal.note(4, root, reason)
        return None
    return best


# -- the rest of what is known --------------------------------------------------------------------------


def _complete(target: Target, candidate: Globals, fit: Fit) -> Location:
    symbols = candidate.symbols
    problems = list(candidate.problems)
    location = Location(
        prefix=candidate.prefix,
        module=candidate.module,
        layout=fit.layout,
        arenas=symbols["arenas"],
        arena_limit=_arena_limit(target, symbols, fit, problems),
        rtree_root=fit.root,
        geometry=fit.geometry,
        bin_infos=fit.bin_infos,
        sizes=_sizes(target, symbols, fit.layout, problems),
        large_pad=_flag(target, symbols, "sz_large_pad", 8),
        exact_large=_exact_large(target, symbols, fit.layout),
        nominal_tsds=symbols.get("tsd_nominal_tsds"),
        symbols=symbols,
        found_by=candidate.found_by,
    )
    problems += _broken_slots(fit)
    tsd = find_tsd_offset(target, location)
    return replace(
        location,
        version=_version(target, location),
        tsd_offset=None if tsd is None else tsd.offset,
        evidence=_evidence(candidate, fit, "not found" if tsd is None else tsd.words),
        problems=tuple(problems),
    )


def _arena_limit(target: Target, symbols: Mapping[str, int], fit: Fit, problems: list[Problem]) -> int:
    """Return ``narenas_total``, or what the array says where that is unknown or cannot be."""
    seen = max((*fit.slots.sound, *fit.slots.broken, *fit.slots.absent)) + 1
    total = _flag(target, symbols, "narenas_total", 4)
    if total is None:
        return seen
    if not seen <= total <= MOST_ARENAS:
        message = (
            f"narenas_total is {total}, but the array of arenas has {seen} in use: the array is believed"
        )
        problems.append(Problem("arena-count", symbols["narenas_total"], message, corruption=True))
        return seen
    return total


def _sizes(
    target: Target, symbols: Mapping[str, int], layout: Layout, problems: list[Problem]
) -> tuple[int, ...]:
    """Return the size classes: as computed; the target's table is held against them."""
    computed = size_classes(layout.nsizes)
    address = symbols.get("sz_index2size_tab")
    try:
        table = (
            None
            if address is None
            else target.reader.words(address, layout.nsizes, "jemalloc's size classes")
        )
    except FaultError:
        table = None
    if table is not None and table != computed:
        at = next(index for index, pair in enumerate(zip(table, computed)) if pair[0] != pair[1])
        message = f"size class {at} is {table[at]} in the target's table, {computed[at]} by the source's rule"
        problems.append(Problem("size-classes", address, f"{message}: the rule is used", corruption=True))
    return computed


def _flag(target: Target, symbols: Mapping[str, int], name: str, size: int) -> Optional[int]:
    if name not in symbols:
        return None
    try:
        return target.reader.uint(symbols[name], size, f"jemalloc's {name}")
    except FaultError:
        return None


def _exact_large(target: Target, symbols: Mapping[str, int], layout: Layout) -> bool:
    """Whether large blocks are sized by pages: an option of 5.3.1, on unless it is switched off."""
    if not layout.has("large_stats", "active_bytes"):
        return False
    return _flag(target, symbols, "opt_disable_large_size_classes", 1) != 0


def _broken_slots(fit: Fit) -> list[Problem]:
    slots = fit.slots
    found = []
    for index in slots.broken:
        address = int(slots.addresses[index])
        message = f"arenas[{index}] is {address:#x}, whose base->ind is not {index}: left out"
        found.append(Problem("arena", address, message, corruption=True))
    for index in slots.absent:
        address = int(slots.addresses[index])
        message = f"arena {index} at {address:#x} is not in the target: left out"
        found.append(Problem("absent-memory", address, message))
    return found


def _evidence(candidate: Globals, fit: Fit, tsd: str) -> tuple[Evidence, ...]:
    where = candidate.module.path if candidate.module is not None else "no module"
    build = candidate.module.build_id if candidate.module is not None else None
    prefix = "names not known" if candidate.prefix is None else f"prefix {candidate.prefix!r}"
    arenas = count_text(len(fit.slots.sound), "arena")
    geometry = fit.geometry
    levels = "/".join(str(bits) for bits in geometry.bits)
    leaves = "compact" if geometry.compact else "wide"
    return (
        Evidence("jemalloc", f"{where}, build-id {build}, found by {candidate.found_by}, {prefix}"),
        Evidence("layout", f"{fit.layout.origin}; {arenas} whose base->ind is their index"),
        Evidence(
            "radix tree",
            f"{geometry.lg_vaddr} address bits, pages of {geometry.page}, levels {levels}, {leaves} leaves; "
            f"{_votes_text(fit.votes)}",
        ),
        Evidence("tsd", tsd),
    )


def _version(target: Target, location: Location) -> str:
    """Return jemalloc's version: the table's, else what the module's words say, else ""."""
    texts = find_versions(target, location.module) if location.module is not None else []
    return location.layout.version or (texts[0].split("-")[0] if len(texts) == 1 else "")


def _votes_text(votes: Votes) -> str:
    tried = votes.back + votes.elsewhere
    if not tried:
        return "there is no slab in the target to try it with"
    return f"leads back to {votes.back} of {count_text(tried, 'current slab')}"


def sound_arenas(target: Target, location: Location) -> dict[int, int]:
    """Return the addresses of the initialised arenas by index."""
    slots = read_slots(target, location.arenas, max(location.arena_limit, 1), location.layout)
    if slots is None:
        return {}
    return {index: int(slots.addresses[index]) for index in slots.sound}

"""Finds ptmalloc in a target: ``main_arena``, the other arenas, ``mp_`` and the layouts that fit.

Order of evidence: names and types from files whose build-id is the target's own (``find_symbols``),
held to the same invariants as everything else; then structure alone (``find_structural``). Where libc's
data is not in the core, the thread arenas are still found by their heaps and ``main_arena`` is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, Optional, Sequence

from gdbext.heap.glibc.find.invariants import ARENA_LIMIT, Probe, check_arena
from gdbext.heap.glibc.find.location import Location
from gdbext.heap.glibc.find.named import Named, find_named
from gdbext.heap.glibc.find.par import Par, find_par, sbrk_bases, weigh_par
from gdbext.heap.glibc.find.structural import (
    Candidate,
    HeapSeen,
    ThreadArenas,
    choose_heap_info,
    choose_heap_max,
    find_bin_arenas,
    find_heap_infos,
    fit_arena,
    fit_layout,
)
from gdbext.heap.glibc.layouts import (
    TcacheLayout,
    alignments,
    fastbin_count,
    heap_infos,
    malloc_pars,
    tcache_layouts,
)
from gdbext.heap.glibc.sizes import sizes_for
from gdbext.layout import StructLayout
from gdbext.progress import Progress
from gdbext.report import Evidence, Problem
from gdbext.target import Target
from gdbext.wording import count_text, size_text

_SAMPLE = 16  # thread arenas that are tried where the main arena is absent


@dataclass(frozen=True)
class Origin:
    """A main arena, or where there is none, the thread arena that speaks for all.

    :param main: whether ``best`` is the main arena.
    :param named: its libc's symbols, when it was found by them.
    :param par: its ``mp_``, or None.
    """

    best: Candidate
    main: bool
    named: Optional[Named] = None
    par: Optional[Par] = None


@dataclass
class Notes:
    """What is gathered on the way."""

    evidence: list[Evidence] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def found(self, subject: str, message: str) -> None:
        """Add evidence."""
        self.evidence.append(Evidence(subject, message))

    def doubt(self, kind: str, address: Optional[int], message: str, corruption: bool = False) -> None:
        """Add a problem."""
        self.problems.append(Problem(kind, address, message, corruption))


def find_arenas(target: Target, progress: Progress) -> Optional[Location]:
    """Return where ptmalloc is and by which layouts, or None when the target does not use it.

    A libc whose malloc nobody has called (another allocator took its place) counts as not used.
    """
    probe, notes = Probe(target), Notes()
    heaps = find_heap_infos(probe)
    known = ThreadArenas(probe, heaps)
    origin = _by_name(probe, notes, known) or _by_structure(probe, notes, known, progress)
    origin = origin or _by_heaps(probe, notes, known)
    if origin is None:
        return None
    hp_pagesize = _hp_pagesize(probe, origin)
    if hp_pagesize:
        heaps = find_heap_infos(probe, 4 * hp_pagesize)
        known = ThreadArenas(probe, heaps)
    return _locate(probe, notes, origin, heaps, known)


# -- the main arena ---------------------------------------------------------------------------------


def _by_name(probe: Probe, notes: Notes, known: ThreadArenas) -> Optional[Origin]:
    named, problems = find_named(probe.target)
    notes.problems += problems
    origins = []
    for name in named:
        fit = _fit_named(probe, notes, name, known)
        if fit is not None:
            origins.append(Origin(fit, True, name, _par_of_name(probe, notes, name, fit)))
    return _choose(probe, notes, origins)


def _fit_named(probe: Probe, notes: Notes, named: Named, known: ThreadArenas) -> Optional[Candidate]:
    """Return the arena under the layout of its debug info, else under the table that fits; or None."""
    layout, address = named.structs.get("malloc_state"), named.main_arena
    if probe.find_word(address) is None:
        notes.doubt("absent-memory", address, f"main_arena at {address:#x}, known by name, cannot be read")
        return None
    if layout is None:
        return fit_arena(probe, address, known)
    fit = fit_layout(probe, address, layout, _alignment_of(probe, layout), known)
    # Else structure alone will find it, if it is one, by a layout of its own.
    if fit is not None and len(fit.check.faults) + (not fit.ring.closed) <= 1:
        return fit
    _doubt_named(probe, notes, named, layout)
    return None


def _doubt_named(probe: Probe, notes: Notes, named: Named, layout: StructLayout) -> None:
    """Say that the debug info's arena breaks the invariants, unless it only was never used."""
    bins = probe.find_words(named.main_arena + layout.offset("bins"), 2)
    if bins != (0, 0):
        address = named.main_arena
        message = f"main_arena at {address:#x} by debug info breaks malloc's invariants: not believed"
        notes.doubt("wrong-debug-info", address, message)


def _alignment_of(probe: Probe, layout: StructLayout) -> int:
    """Return ``MALLOC_ALIGNMENT`` as the number of fastbins tells it, else the ABI's first."""
    choices = alignments(probe.abi)
    if "fastbinsY" in layout:
        for alignment in choices:
            if fastbin_count(sizes_for(probe.abi, alignment)) == layout.member("fastbinsY").count:
                return alignment
    return choices[0]


def _by_structure(
    probe: Probe, notes: Notes, known: ThreadArenas, progress: Progress
) -> Optional[Origin]:
    origins = []
    fits, skipped = find_bin_arenas(probe, known, progress)
    if skipped:
        message = f"{skipped} places that resemble an arena's bins were not examined: there are too many"
        notes.doubt("search-limit", None, message)
    for fit in fits:
        if fit.address not in known.addresses:
            origins.append(Origin(fit, True, None, find_par(probe, fit.address, fit.layout)))
    return _choose(probe, notes, origins)


def _choose(probe: Probe, notes: Notes, origins: Sequence[Origin]) -> Optional[Origin]:
    """Return the main arena that is used most; the others that are used become problems."""
    used = [origin for origin in origins if _is_used(probe, origin)]
    used.sort(key=lambda origin: (origin.best.check.system_mem, len(origin.best.ring.arenas)))
    for other in used[:-1]:
        best = other.best
        message = f"another main_arena at {best.address:#x} holds {best.check.system_mem} bytes: not analysed"
        notes.doubt("several-heaps", best.address, message)
    return used[-1] if used else None


def _is_used(probe: Probe, origin: Origin) -> bool:
    best, par = origin.best, origin.par
    if best.check.system_mem or len(best.ring.arenas) > 1:
        return True
    return par is not None and bool(probe.find_member(par.layout, par.address, "n_mmaps"))


def _by_heaps(probe: Probe, notes: Notes, known: ThreadArenas) -> Optional[Origin]:
    """Where the data segments are not in the core: the thread arena that fits best."""
    sample = sorted(known.addresses)[:_SAMPLE]
    fits = [fit for fit in (fit_arena(probe, arena, known) for arena in sample) if fit is not None]
    if not fits:
        return None
    message = "main_arena is not in what the target holds of its data segments: thread arenas only"
    notes.doubt("no-main-arena", None, message)
    return Origin(max(fits, key=lambda fit: fit.rank), False)


# -- mp_ ----------------------------------------------------------------------------------------------


def _par_of_name(probe: Probe, notes: Notes, named: Named, fit: Candidate) -> Optional[Par]:
    if named.malloc_par is None:
        return find_par(probe, fit.address, fit.layout)
    typed = named.structs.get("malloc_par")
    layouts = malloc_pars(probe.abi) if typed is None else (typed,)
    bases = sbrk_bases(probe, fit.address, fit.layout)
    scores = [(weigh_par(probe, named.malloc_par, layout, bases), layout) for layout in layouts]
    known = [Par(named.malloc_par, layout, score) for score, layout in scores if score is not None]
    if known:
        return max(known, key=lambda par: par.score)
    message = f"mp_ at {named.malloc_par:#x} by symbol breaks malloc's invariants: its figures are not used"
    notes.doubt("malloc-par", named.malloc_par, message)
    return None


def _hp_pagesize(probe: Probe, origin: Optional[Origin]) -> Optional[int]:
    """Return ``mp_.hp_pagesize``, 0 where huge pages are not in use; None when that is not known."""
    par = origin.par if origin is not None else None
    if par is None:
        return None
    if "hp_pagesize" not in par.layout:
        return 0
    return probe.find_member(par.layout, par.address, "hp_pagesize")


# -- everything together ------------------------------------------------------------------------------


def _locate(
    probe: Probe, notes: Notes, origin: Origin, heaps: Sequence[HeapSeen], known: ThreadArenas
) -> Location:
    best, named, par = origin.best, origin.named, origin.par
    structs = named.structs if named is not None else {}
    seen_info = choose_heap_info(probe, heaps, best.alignment)
    info = structs.get("heap_info") or seen_info or _likely_heap_info(probe, best, par)
    arenas = _all_arenas(probe, notes, origin, known)
    heap_max = choose_heap_max(probe, heaps, _hp_pagesize(probe, origin))
    caches = _open_tcaches(probe, best.layout, info, par, named.tcache if named is not None else None)
    _tell(probe, notes, origin, heaps, info, heap_max, caches)
    return Location(
        main_arena=best.address if origin.main else None,
        arenas=arenas,
        malloc_par=par.address if par is not None else None,
        malloc_state=best.layout,
        heap_info=info,
        malloc_par_layout=par.layout if par is not None else None,
        tcache_layouts=caches,
        heap_max=heap_max,
        alignment=best.alignment,
        evidence=tuple(notes.evidence),
        problems=tuple(notes.problems),
        trusted_debug=named is not None,
    )


def _likely_heap_info(probe: Probe, best: Candidate, par: Optional[Par]) -> StructLayout:
    """Where there is no heap to tell: newer than 2.35 as far as the other structures are."""
    newer, older = heap_infos(probe.abi, best.alignment)
    if par is not None:
        return newer if "hp_pagesize" in par.layout else older
    return newer if "have_fastchunks" in best.layout or "fastbinsY" not in best.layout else older


def _all_arenas(
    probe: Probe, notes: Notes, origin: Origin, known: ThreadArenas
) -> tuple[int, ...]:
    """Return the ring, and the arenas of heaps that it does not reach."""
    ring, first = origin.best.ring, known.addresses
    members = dict.fromkeys(arena for arena in ring.arenas if origin.main or arena in first)
    if origin.main and not ring.closed:
        notes.problems.append(_broken_ring(probe, origin))
        members = dict.fromkeys(a for a in members if a == origin.best.address or a in first)
    others = list(_unreached(probe, origin, sorted(first - set(members))))
    if others and origin.main:
        at = others[0]
        message = f"{len(others)} arenas have heaps but are not in the ring: added, the first at {at:#x}"
        notes.doubt("arena-ring", at, message, corruption=not _cut_ring(probe, origin))
    return (*members, *others)


def _broken_ring(probe: Probe, origin: Origin) -> Problem:
    """Return the problem of a ring that does not close: damage, unless the core lacks the next arena."""
    at = origin.best.ring.broken_at
    if _cut_ring(probe, origin):
        known = "those behind it are known by their heaps"
        message = f"the ring of arenas leads to {at:#x}, which is not in the core: {known}"
        return Problem("absent-memory", at, message)
    message = f"next of the arena at {at:#x} does not lead back to main_arena"
    return Problem("arena-ring", at, message, corruption=True)


def _cut_ring(probe: Probe, origin: Origin) -> bool:
    at = origin.best.ring.broken_at
    return at is not None and probe.target.lacks(at, origin.best.layout.size)


def _unreached(probe: Probe, origin: Origin, arenas: Sequence[int]) -> Iterator[int]:
    """Iterate over those that are sound arenas and in no other libc's ring."""
    best = origin.best
    foreign = _foreign(probe, best.layout, arenas, best.address) if origin.main else set()
    for arena in arenas:
        check = check_arena(probe, arena, best.layout, best.alignment)
        if check is not None and check.sound and arena not in foreign:
            yield arena


def _foreign(probe: Probe, layout: StructLayout, arenas: Sequence[int], main: int) -> set[int]:
    """Return what is on, or leads into, a ring that closes without ``main``."""
    verdicts: dict[int, bool] = {}
    for start in arenas:
        path: dict[int, None] = {}
        at: Optional[int] = start
        while at is not None and at not in path and at not in verdicts and len(path) < ARENA_LIMIT:
            path[at] = None
            at = probe.find_member(layout, at, "next")
        closes = at is not None and at in path
        verdict = closes and main not in path
        if at is not None and at in verdicts:
            verdict = verdicts[at]
        verdicts.update(dict.fromkeys(path, verdict))
    return {arena for arena, verdict in verdicts.items() if verdict}


def _open_tcaches(
    probe: Probe,
    state: StructLayout,
    info: StructLayout,
    par: Optional[Par],
    known: Optional[TcacheLayout],
) -> tuple[TcacheLayout, ...]:
    """Return the thread caches that can stand beside the other structures, likeliest first."""
    if known is not None:
        return (known,)
    if par is not None and "tcache_bins" not in par.layout:
        return ()
    down, wide, narrow, plain = tcache_layouts(probe.abi)
    if "fastbinsY" not in state:
        return (down,)
    if "pagesize" in info or (par is not None and "hp_pagesize" in par.layout):
        return _in_order(probe, par, wide, down)
    return (wide, plain, narrow) if "have_fastchunks" in state else (plain,)


def _in_order(
    probe: Probe, par: Optional[Par], wide: TcacheLayout, down: TcacheLayout
) -> tuple[TcacheLayout, ...]:
    """Since 2.42 the default of ``tcache_max_bytes`` is one beyond the largest small size."""
    largest = probe.find_member(par.layout, par.address, "tcache_max_bytes") if par is not None else None
    return (down, wide) if largest is not None and largest % 2 else (wide, down)


def _tell(
    probe: Probe,
    notes: Notes,
    origin: Origin,
    heaps: Sequence[HeapSeen],
    info: StructLayout,
    heap_max: int,
    caches: Sequence[TcacheLayout],
) -> None:
    best, par, named = origin.best, origin.par, origin.named
    how = f"by symbol of build-id {named.build_id}" if named is not None else "by structure"
    what = "main_arena" if origin.main else "thread arena"
    arenas = count_text(len(best.ring.arenas), "arena")
    ring = f"ring of {arenas} {'closes' if best.ring.closed else 'does not close'}"
    layout = best.layout.origin
    notes.found("main_arena", f"{what} at {best.address:#x} {how}, layout {layout}; {best.check}; {ring}")
    if par is not None:
        votes = f"{par.score} votes"
        notes.found("mp_", f"at {par.address:#x}, layout {par.layout.origin}; {votes}")
    elif origin.main:
        message = "mp_ was not found: mmapped blocks cannot be reconciled, nor where brk began"
        notes.doubt("malloc-par", None, message)
    notes.found("heap_info", f"{count_text(len(heaps), 'heap')} of up to {size_text(heap_max)}, layout {info.origin}")
    names = ", ".join(dict.fromkeys(cache.struct.origin for cache in caches)) or "none"
    notes.found("tcache", f"layouts possible: {names}")

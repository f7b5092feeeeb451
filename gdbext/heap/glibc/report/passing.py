"""What an arena shows while a thread is in the middle of malloc, and what no single operation can leave.

malloc hangs chunks in and out, and writes their headers, one after the other; where it was stopped in between, links
and sizes around one chunk do not agree. So of each kind below at most ``MOST`` in an arena in flux are no damage; more
are, as are all other kinds. An arena in which malloc itself found damage and aborted is locked for good: it is excused
nothing but what stands in ``ALWAYS``.

Mirrors malloc/malloc.c (the same in 2.36 and 2.44 but for names): ``_int_malloc``, where the remainder of a split is on
the unsorted list before it has a header (``chunk-size``, ``list-chunk``); ``unlink_chunk`` and the ways into bins
(``bin-link``); an exact fit, marked in use before it is unlinked (``bin-in-use``) and before it has its arena's bit
(``chunk-flags``); ``_int_free``, which merges a chunk before its header says so (``bin-in-use``); ``systrim`` and
``heap_trim``, which give pages back before top is smaller (``top-size``). A chunk on the unsorted list without a header
has no skip list to be judged, either (``bin-nextsize``). Compilers move stores of sizes past those of links, which are
of another type: a chunk may be split before it has left its bin (``bin-size``, ``bin-order``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Callable, Iterator, Mapping, Optional, Sequence, Set, Tuple

from gdbext.heap.glibc.sizes import FLAG_BITS, IS_MMAPPED
from gdbext.heap.glibc.view import ArenaView, GlibcHeap
from gdbext.report import Problem

MOST = 2
ALWAYS = ("prev-size", "top-header")
_BEHIND = ("bin-in-use", "chunk-flags", "list-chunk")  # where the walk took bytes of a chunk for chunks

Found = Tuple[Optional[ArenaView], Problem]


@dataclass(frozen=True)
class _Explained:
    """What of an arena in flux is no damage.

    :param kinds: of problems.
    :param headless: addresses of listed chunks that have no header yet.
    """

    kinds: Set[str]
    headless: Set[Optional[int]]


_NOTHING = _Explained(set(), set())


def excused(heap: GlibcHeap, found: Sequence[Found]) -> Iterator[Problem]:
    """Iterate over the problems of a heap, those that an operation under way explains as no damage.

    :param found: each problem with the arena whose segment or list it is of, or None.
    """
    placed = [(view or _find_arena(heap, problem), problem) for view, problem in found]
    explained = {
        view.head.address: _explain(heap, [problem for owner, problem in placed if owner is view])
        for view in heap.arenas
        if view.head.in_flux
    }
    for owner, problem in placed:
        passing = _NOTHING if owner is None else explained.get(owner.head.address, _NOTHING)
        yield _excused(problem) if problem.corruption and _passes(heap, problem, passing) else problem


def _excused(problem: Problem) -> Problem:
    return replace(problem, corruption=False, message=f"{problem.message}; its arena is in flux")


def _find_arena(heap: GlibcHeap, problem: Problem) -> Optional[ArenaView]:
    """Return the arena in flux that a damage lies in, or None."""
    at = problem.address
    if at is None or not problem.corruption:
        return None
    for view in heap.arenas:
        if view.head.in_flux and any(one.segment.start <= at < one.segment.end for one in view.walked):
            return view
    return None


def _explain(heap: GlibcHeap, problems: Sequence[Problem]) -> _Explained:
    if heap.underway.aborted:
        return _Explained(set(ALWAYS), set())
    damage = [problem for problem in problems if problem.corruption]
    counts = Counter(problem.kind for problem in damage)
    kinds = {*ALWAYS, *(kind for kind in _PASSING if counts[kind] <= MOST)}
    if 0 < counts["chunk-size"] <= MOST:
        kinds.update(_BEHIND)
    listed = {problem.address for problem in damage if problem.kind == "list-chunk"}
    return _Explained(kinds, listed if "list-chunk" in kinds else set())


def _passes(heap: GlibcHeap, problem: Problem, explained: _Explained) -> bool:
    if problem.kind == "bin-nextsize":
        return problem.address in explained.headless
    test = _PASSING.get(problem.kind)
    return problem.kind in explained.kinds and (test is None or test(heap, problem))


def _size_word(heap: GlibcHeap, problem: Problem) -> int:
    return heap.target.reader.word((problem.address or 0) + heap.sizes.word, "size")


def _ends_a_page(heap: GlibcHeap, top: Problem) -> bool:
    """Whether top ends where pages do, as before some were given back: its size is another's otherwise."""
    end = (top.address or 0) + (_size_word(heap, top) & ~FLAG_BITS)
    return end % heap.target.abi.page_size == 0


def _is_arenas_bit(heap: GlibcHeap, chunk: Problem) -> bool:
    """Whether what does not fit is NON_MAIN_ARENA: no operation sets or clears IS_MMAPPED."""
    return not _size_word(heap, chunk) & IS_MMAPPED


# Kinds of damage, with what must be true of one besides.
_PASSING: Mapping[str, Optional[Callable[[GlibcHeap, Problem], bool]]] = {
    "bin-in-use": None,
    "bin-link": None,
    "bin-order": None,
    "bin-size": None,
    "chunk-flags": _is_arenas_bit,
    "chunk-size": None,
    "list-chunk": None,
    "top-size": _ends_a_page,
}

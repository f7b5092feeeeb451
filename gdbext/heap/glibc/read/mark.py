"""What state every chunk is in: from complete free lists, never from a prefix of one."""

from __future__ import annotations

from typing import Callable, List, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.heap.glibc.read.chunks import Chunks
from gdbext.heap.glibc.read.lists import FreeList
from gdbext.heap.glibc.read.tcache import Cache
from gdbext.heap.glibc.sizes import IS_MMAPPED, NON_MAIN_ARENA
from gdbext.heap.model import U8, U64, Mask, State
from gdbext.kernels import rows_of
from gdbext.memory.intervals import slices
from gdbext.report import Problem

Rows = npt.NDArray[np.int64]

MOST_PROBLEMS = 1000  # told singly, of one kind
NO_ROWS: Rows = np.empty(0, np.int64)

_STATE_OF = {
    "fastbin": State.FASTBIN,
    "unsorted": State.UNSORTED,
    "small": State.SMALL,
    "large": State.LARGE,
}


def mark_states(
    chunks: Chunks,
    lists: Sequence[Sequence[FreeList]],
    caches: Sequence[Cache],
    unknown: Callable[[int], bool] = lambda address: False,
) -> List[Problem]:
    """Set the state of every chunk that is on a list; return what the lists and the chunks disagree about.

    :param chunks: of all arenas.
    :param lists: the free lists of each arena, by arena index.
    :param unknown: whether a chunk may be at an address without being known, because the core lacks memory.
    """
    problems: List[Problem] = []
    for arena, free_lists in enumerate(lists):
        for free_list in free_lists:
            problems += _mark_list(chunks, arena, free_list)
    for cache in caches:
        for one in cache.classes:
            place = f"{cache.label}, class {one.index}"
            members = np.array(one.chunks, np.uint64)
            problems += _mark(chunks, members, _rows(chunks, members), State.TCACHE, place)
    return [_unless_absent(problem, unknown) for problem in problems]


def _unless_absent(problem: Problem, unknown: Callable[[int], bool]) -> Problem:
    """A chunk that was not seen because the core lacks it, or what leads to it, is no damage."""
    at = problem.address
    if problem.kind != "list-chunk" or at is None or not unknown(at):
        return problem
    return Problem("absent-memory", at, f"{problem.message}: memory there is missing from the core")


def _mark_list(chunks: Chunks, arena: int, free_list: FreeList) -> List[Problem]:
    kind = _STATE_OF[free_list.kind]
    place = f"{free_list.kind} bin {free_list.index}"
    rows = _rows(chunks, free_list.chunks)
    problems = _mark(chunks, free_list.chunks, rows, kind, place)
    known = rows[rows >= 0]
    for row in known[chunks.owner[known] != arena].tolist():
        chunk = int(chunks.address[row])
        message = f"{place}: chunk {chunk:#x} lies in another arena"
        problems.append(Problem("bin-arena", chunk, message, corruption=True))
    return problems


def _rows(chunks: Chunks, members: U64) -> Rows:
    """Return the row of each member, or -1. Looked up in order of address: a list may be millions long."""
    rows = np.empty(len(members), np.int64)
    for part in slices(len(members)):
        order = np.argsort(members[part], kind="stable")
        rows[part][order] = rows_of(chunks.address, members[part][order])
    return rows


def _mark(chunks: Chunks, members: U64, rows: Rows, kind: State, place: str) -> List[Problem]:
    """Set the state of a list's chunks; a problem for each that cannot be what the list says."""
    problems = [
        Problem("list-chunk", chunk, f"{place} holds {chunk:#x}, where no chunk begins", corruption=True)
        for chunk in members[rows < 0].tolist()
    ]
    state, found = chunks.state, rows[rows >= 0]
    binned = kind in (State.UNSORTED, State.SMALL, State.LARGE)
    expected = State.FREE if binned else State.IN_USE
    for row in found[state[found] != expected].tolist():
        chunk = int(chunks.address[row])
        if state[row] == kind:
            continue  # twice in one list: the list's own problem
        message = f"{place} holds {chunk:#x}, which is also {State(int(state[row])).label}"
        corrupt_kind = "bin-in-use" if state[row] in (State.IN_USE, State.FREE) else "double-free"
        problems.append(Problem(corrupt_kind, chunk, message, corruption=True))
    state[found] = kind
    return problems


def check_unlisted(chunks: Chunks, excuses: Sequence[str]) -> List[Problem]:
    """Return a problem for each chunk that is free by its neighbour but on no list.

    :param excuses: why that is no damage in an arena ("" where it is): a thread holds it locked and the
        chunk is on its way, or the core lacks part of its lists.
    """
    rows = np.flatnonzero(chunks.state == State.FREE)
    problems = [_unlisted(chunks, row, excuses[int(chunks.owner[row])]) for row in rows[:MOST_PROBLEMS].tolist()]
    return problems + _rest("free-unlisted", len(rows), "chunks are marked free but are on no list", problems)


def _unlisted(chunks: Chunks, row: int, excuse: str) -> Problem:
    why = f"; {excuse}" if excuse else ""
    size = int(chunks.size[row])
    message = f"chunk of {size} bytes is marked free by the chunk after it but is on no list{why}"
    return Problem("free-unlisted", int(chunks.address[row]), message, corruption=not excuse)


def _rest(kind: str, total: int, what: str, told: Sequence[Problem]) -> List[Problem]:
    """Return one problem for all that were not told singly: in a wrecked heap there may be millions."""
    if total <= MOST_PROBLEMS:
        return []
    damage = any(problem.corruption for problem in told)
    return [Problem(kind, None, f"{total - MOST_PROBLEMS} more {what}", corruption=damage)]


def check_merged(chunks: Chunks, in_flux: Sequence[bool]) -> List[Problem]:
    """Return a problem for each chunk in a bin behind another one: free() makes one chunk of the two.

    :param in_flux: of each arena, whether a thread holds it locked and may be about to do so.
    """
    rows = np.concatenate([NO_ROWS, *(_rows_unmerged(chunks, part) for part in slices(len(chunks) - 1))])
    problems = [_unmerged(chunks, row, in_flux[int(chunks.owner[row])]) for row in rows[:MOST_PROBLEMS].tolist()]
    return problems + _rest("free-adjacent", len(rows), "chunks in bins lie behind others", problems)


def _is_binned(state: U8) -> Mask:
    binned: Mask = (state >= State.UNSORTED) & (state <= State.LARGE)
    return binned


def _rows_unmerged(chunks: Chunks, part: slice) -> Rows:
    both = slice(part.start, part.stop + 1)
    binned = _is_binned(chunks.state[both])
    rows = part.start + np.flatnonzero(binned[:-1] & binned[1:])
    behind: Rows = rows[chunks.address[rows] + chunks.size[rows] == chunks.address[rows + 1]] + 1
    return behind


def _unmerged(chunks: Chunks, row: int, in_flux: bool) -> Problem:
    before, chunk = int(chunks.address[row - 1]), int(chunks.address[row])
    message = f"chunk {chunk:#x} is in a bin, as {before:#x} before it is: two free chunks side by side are one"
    return Problem("free-adjacent", chunk, message + "; its arena is in flux" * in_flux, corruption=not in_flux)


def check_flags(chunks: Chunks, main: int, in_flux: Sequence[bool]) -> List[Problem]:
    """Return a problem for each chunk whose flag bits do not fit its arena, or the bin that it is in.

    :param main: position of the main arena, or -1.
    :param in_flux: of each arena, whether a thread holds it locked and may be about to hand a chunk out.
    """
    rows = np.concatenate([NO_ROWS, *(_rows_of_wrong_flags(chunks, part, main) for part in slices(len(chunks)))])
    problems = [_wrong_flags(chunks, row, in_flux) for row in rows[:MOST_PROBLEMS].tolist()]
    return problems + _rest("chunk-flags", len(rows), "chunks have flag bits that do not fit their arena", problems)


def _rows_of_wrong_flags(chunks: Chunks, part: slice, main: int) -> Rows:
    flags, thread = chunks.flags[part], chunks.owner[part] != main
    wrong = (chunks.state[part] == State.IN_USE) & ((flags & NON_MAIN_ARENA != 0) != thread)
    wrong |= _is_binned(chunks.state[part]) & (flags & NON_MAIN_ARENA != 0)  # set when it is handed out
    rows: Rows = part.start + np.flatnonzero(wrong | (flags & IS_MMAPPED != 0))
    return rows


def _wrong_flags(chunks: Chunks, row: int, in_flux: Sequence[bool]) -> Problem:
    flags, address = int(chunks.flags[row]), int(chunks.address[row])
    flag = "IS_MMAPPED" if flags & IS_MMAPPED else "NON_MAIN_ARENA"
    message = f"flag bits are {flags}: {flag} does not fit a chunk"
    if flags & IS_MMAPPED or chunks.state[row] == State.IN_USE:
        return Problem("chunk-flags", address, f"{message} of this arena", corruption=True)
    passing = in_flux[int(chunks.owner[row])]
    why = "; its arena is in flux" * passing
    return Problem("chunk-flags", address, f"{message} in a bin{why}", corruption=not passing)

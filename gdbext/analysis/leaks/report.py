"""What is unreachable from any root: by state, by size, by type, and by what each leak root keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.leaks.doubts import Doubt, doubts_text, find_doubts
from gdbext.analysis.leaks.groups import LEAK_ROOT, LeakGroups, group_leaks
from gdbext.analysis.leaks.tables import LeakedRow, LeakRootRow, MaybeRow, OffsetRow, SizeRow, Tables, TypeRow
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import ROOT_KINDS
from gdbext.analysis.reach.reporting import report_on_reach
from gdbext.analysis.types.model import BlockTypes
from gdbext.heap.model import Mask
from gdbext.kernels import MAYBE_REACHED, NOT_REACHED
from gdbext.memory import for_each_written
from gdbext.report import Evidence, Kind, Problem, Report, Rows, column, hidden, line, table
from gdbext.wording import count_text, grouped, size_text

LEAK_ROOTS = 1000  # that are listed where nobody asks for more


@dataclass(frozen=True)
class Totals:
    """All blocks in use; reached, possibly leaked and leaked ones add up to them, leak roots and indirect to leaked.

    :param blocks: blocks in use; tcached and free ones are none.
    :param bytes: usable bytes of them, as everywhere here.
    :param reached_blocks: start pointers lead there from a root.
    :param reached_bytes: of these.
    :param possibly_leaked_blocks: every path from a root needs an interior pointer.
    :param possibly_leaked_bytes: of these.
    :param leaked_blocks: unreachable.
    :param leaked_bytes: of these.
    :param leak_root_blocks: leaked blocks that no other leaked block points at; of a cycle that nothing else leaked
        points at, the lowest.
    :param leak_root_bytes: of these.
    :param indirect_blocks: all other leaked blocks.
    :param indirect_bytes: of these.
    :param shared_blocks: of the indirect ones, those that several leak roots lead to.
    :param shared_bytes: of these.
    :param reached_by_offset_blocks: of the reached ones, those that start pointers behind a header lead to, and would
        be possibly leaked without.
    :param reached_by_offset_bytes: of these.
    """

    blocks: int = line("blocks in use", Kind.COUNT)
    bytes: int = line("bytes", Kind.BYTES)
    reached_blocks: int = line("reached", Kind.COUNT)
    reached_bytes: int = line("reached bytes", Kind.BYTES)
    possibly_leaked_blocks: int = line("possibly leaked", Kind.COUNT)
    possibly_leaked_bytes: int = line("possibly leaked bytes", Kind.BYTES)
    leaked_blocks: int = line("leaked", Kind.COUNT)
    leaked_bytes: int = line("leaked bytes", Kind.BYTES)
    leak_root_blocks: int = line("leak roots", Kind.COUNT)
    leak_root_bytes: int = line("leak root bytes", Kind.BYTES)
    indirect_blocks: int = line("indirect", Kind.COUNT)
    indirect_bytes: int = line("indirect bytes", Kind.BYTES)
    shared_blocks: int = line("shared", Kind.COUNT)
    shared_bytes: int = line("shared bytes", Kind.BYTES)
    reached_by_offset_blocks: int = line("reached by offset", Kind.COUNT)
    reached_by_offset_bytes: int = line("bytes reached by offset", Kind.BYTES)


@dataclass(frozen=True)
class StateRow:
    """The blocks of one state."""

    state: str = column("blocks")
    blocks: int = column("number", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    share: Optional[float] = column("share", Kind.SHARE)


@dataclass(frozen=True)
class RootRow:
    """The roots of one kind.

    :param kind: ``register``, ``stack``, ``tls``, ``global`` (writable data of modules), ``file`` (other mapped files),
        ``anonymous`` (other memory); kinds of which there are none are left out.
    :type kind: word
    :param ranges: stretches of memory.
    :param bytes: of them.
    :param words: registers, and words that the ABI says to be pointers.
    :param pointers: of all words, those that point into blocks in use.
    """

    kind: str = column("roots")
    ranges: int = column("ranges", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    words: int = column("words", Kind.COUNT)
    pointers: int = column("pointers to blocks", Kind.COUNT)


@dataclass(frozen=True)
class HeaderRow:
    """A header before what the program's own allocator hands out; see :class:`gdbext.analysis.reach.headers.Header`.

    :param offset: bytes into blocks at which pointers are start pointers, since so many lead there:
        [leaks.md](leaks.md#headers-of-the-programs-own); None where it grows with the blocks.
    :param part: 5: a fifth of the block; None where the offset is constant.
    :param blocks: that have a pointer there, among ``of``.
    :param of: possibly leaked blocks that interior pointers lead to, without those that the offsets before explain.
    :param share: ``blocks`` of ``of``.
    :param chance: that would have one by chance.
    :param reached_blocks: reached by this offset.
    """

    offset: Optional[int] = column("bytes of header", Kind.COUNT)
    part: Optional[int] = column("or one part of", Kind.COUNT)
    blocks: int = column("blocks", Kind.COUNT)
    of: int = column("of", Kind.COUNT)
    share: float = column("share", Kind.SHARE)
    chance: float = column("by chance", Kind.SHARE)
    reached_blocks: int = column("reached so", Kind.COUNT)


@dataclass(frozen=True)
class Leaks:
    """What ``blocks leaks`` answers; the two lists at its end are made when they are asked for."""

    verdict: str = line("verdict", json=False)
    missing: Sequence[Doubt] = table("Missing, so that blocks may look leaked that are not")
    totals: Totals = line(None, Kind.OBJECT)
    states: Sequence[StateRow] = table("Blocks in use", json=False)
    roots: Sequence[RootRow] = table("Roots")
    headers: Sequence[HeaderRow] = table("Headers of the program's own: pointers behind them are start pointers")
    by_type: Optional[Rows[TypeRow]] = table("Leaked by type, those whose leak roots keep most first")
    leak_roots: Rows[LeakRootRow] = table("Leak roots, those that keep most first", equal_but=("address", "contents"))
    by_size: Rows[SizeRow] = table("Leaked by size, most bytes first")
    leaked: Optional[Rows[LeakedRow]] = table("Leaked blocks")
    possibly_leaked: Optional[Rows[MaybeRow]] = table("Possibly leaked blocks")
    reached_by_offset: Optional[Rows[OffsetRow]] = table(None)


# What the text of an answer leaves out where nothing leaked: it is the verdict then, and what is missing.
_OF_LEAKS = ("states", "roots", "headers", "by_type", "leak_roots", "by_size", "leaked")


def leaks(
    reach: Reach,
    types: Optional[BlockTypes],
    listed: bool = False,
    maybe: bool = False,
    problems: Sequence[Problem] = (),
    limit: Optional[int] = None,
) -> Report:
    """Report what leaked.

    :param types: None where they were not looked for, or in vain.
    :param listed: whether every leaked block, and every leak root, is listed.
    :param maybe: whether every possibly leaked block is listed.
    :param problems: besides those of the heaps and of the search: of the types.
    :param limit: rows of a table that are asked for; 0: all.
    """
    most = None if listed or limit == 0 else max(limit or 0, LEAK_ROOTS)
    groups = group_leaks(reach)
    tables = Tables(reach, groups, types)
    doubts = find_doubts(reach)
    totals = count_totals(reach, groups)
    report = report_on_reach(
        reach,
        Leaks(
            verdict(totals, doubts),
            doubts,
            totals,
            _states(totals),
            list(_roots(reach)),
            list(_headers(reach)),
            tables.by_type(),
            tables.leak_roots(most),
            tables.by_size(),
            tables.leaked() if listed else None,
            tables.possibly_leaked() if maybe else None,
            tables.reached_by_offset() if listed else None,
        ),
        problems,
        list(_notes(totals, listed, maybe, most)),
        list(_evidence(reach)),
    )
    # Where anything is missing that could point at blocks, neither their looking leaked nor silence is an answer.
    certain = not doubts and reach.whole
    unasked = [name for name, asked in (("leaked", listed), ("possibly_leaked", maybe)) if not asked]
    return replace(
        report,
        findings=certain and bool(totals.leaked_blocks),
        complete=certain and report.complete,
        labels=hidden(Leaks, (*unasked, *(() if totals.leaked_blocks else _OF_LEAKS))),
    )


# -- figures ---------------------------------------------------------------------------------------------


def count_totals(reach: Reach, groups: LeakGroups) -> Totals:
    """Return how many blocks and bytes are in each state."""
    role, size = groups.role, reach.size[groups.rows]
    every = [len(reach), int(reach.size.sum())]
    maybe, leaked = (_sums(reach.states == state, reach) for state in (MAYBE_REACHED, NOT_REACHED))
    reached = [whole - some - others for whole, some, others in zip(every, maybe, leaked)]
    figures: List[int] = [*every, *reached, *maybe, *leaked]
    for chosen in (role == LEAK_ROOT, role != LEAK_ROOT, groups.shared):
        figures += [int(np.count_nonzero(chosen)), int(size[chosen].sum())]
    figures += _sums(reach.header_offsets != 0, reach)
    return Totals(*figures)


def _sums(mask: Mask, reach: Reach) -> Tuple[int, int]:
    return int(np.count_nonzero(mask)), int(reach.size[mask].sum())


def _states(totals: Totals) -> Sequence[StateRow]:
    rows = (
        ("reached", totals.reached_blocks, totals.reached_bytes),
        ("reached: behind a header", totals.reached_by_offset_blocks, totals.reached_by_offset_bytes),
        ("possibly leaked", totals.possibly_leaked_blocks, totals.possibly_leaked_bytes),
        ("leaked", totals.leaked_blocks, totals.leaked_bytes),
        ("leaked: leak roots", totals.leak_root_blocks, totals.leak_root_bytes),
        ("leaked: indirect", totals.indirect_blocks, totals.indirect_bytes),
    )
    shown = [row for row in rows if row[1] or "behind" not in row[0]]
    return [StateRow(*row, row[2] / totals.bytes if totals.bytes else None) for row in shown]


def _roots(reach: Reach) -> Iterator[RootRow]:
    """Iterate over the kinds of roots that the target has."""
    roots = reach.marked.roots
    pointers = _pointers_by_kind(reach)
    for kind in ROOT_KINDS:
        ranges = [one.size for one in roots.ranges if one.kind == kind]
        words = sum(word.kind == kind for word in roots.words)
        if ranges or words:
            yield RootRow(kind, len(ranges), sum(ranges), words, pointers[kind])


def _headers(reach: Reach) -> Iterator[HeaderRow]:
    if reach.marked.headers is None:
        return
    offsets = reach.header_offsets.astype(np.uint64)
    for one in reach.marked.headers.found:
        reached = int(np.count_nonzero((offsets > 0) & one.explains(offsets, reach.size)))
        yield HeaderRow(one.offset or None, one.part or None, one.blocks, one.of, one.share, one.chance, reached)


def _pointers_by_kind(reach: Reach) -> Dict[str, int]:
    roots, hits = reach.marked.roots, reach.marked.hits
    found = dict.fromkeys(ROOT_KINDS, 0)
    starts = np.array([one.start for one in roots.ranges], np.uint64)
    places = np.searchsorted(starts, hits.memory.place, side="right") - 1
    counts = np.bincount(places[places >= 0], minlength=len(roots.ranges))
    for one, count in zip(roots.ranges, counts.tolist()):
        found[one.kind] += count
    for word, _, _ in hits.words:
        found[roots.words[word].kind] += 1
    return found


# -- words -----------------------------------------------------------------------------------------------


def verdict(totals: Totals, doubts: Sequence[Doubt]) -> str:
    """Return the answer in a sentence or two."""
    if not totals.blocks and doubts:
        return f"No block in use is known; {doubts_text(doubts)} could not be examined."
    if not totals.blocks:
        return "No block is in use."
    answer = f"Nothing leaked of {count_text(totals.blocks, 'block')} in use, {size_text(totals.bytes)}."
    if totals.leaked_blocks:
        blocks, size = count_text(totals.leaked_blocks, "block"), size_text(totals.leaked_bytes)
        answer = f"Leaked: {blocks}, {size}: {_split_text(totals)}."
    if doubts and totals.leaked_blocks:
        answer = f"INCONCLUSIVE, since {doubts_text(doubts)} could not be examined. {answer}"
    elif doubts:
        answer = f"Nothing leaked of what is known; {doubts_text(doubts)} could not be examined."
    if totals.possibly_leaked_blocks:
        answer += f" {_maybe_text(totals)}"
    return answer


def _split_text(totals: Totals) -> str:
    if not totals.indirect_blocks:
        return f"nothing points at {'it' if totals.leaked_blocks == 1 else 'them'}"
    roots = count_text(totals.leak_root_blocks, "leak root")
    return f"{roots}, and {count_text(totals.indirect_blocks, 'block')} that only leaked blocks lead to"


def _maybe_text(totals: Totals) -> str:
    blocks = count_text(totals.possibly_leaked_blocks, "block")
    size = size_text(totals.possibly_leaked_bytes)
    be = "is" if totals.possibly_leaked_blocks == 1 else "are"
    return f"{blocks}, {size}, {be} possibly leaked: only interior pointers lead there."


def _notes(totals: Totals, listed: bool, maybe: bool, most: Optional[int]) -> Iterator[str]:
    if totals.shared_blocks:
        what = f"{count_text(totals.shared_blocks, 'block')}, {size_text(totals.shared_bytes)}"
        yield f"several leak roots lead to {what}: counted as kept by none of them"
    if most is not None and totals.leak_root_blocks > most:
        these = f"of {grouped(totals.leak_root_blocks)} leak roots these are the {grouped(most)} that keep most"
        yield f"{these}: --limit 0 lists all"
    if totals.leaked_blocks and not listed:
        yield "--list shows every leaked block, with its leak root"
    if totals.possibly_leaked_blocks and not maybe:
        yield "--possible shows the possibly leaked ones"


def _evidence(reach: Reach) -> Iterator[Evidence]:
    roots = reach.marked.roots
    memory = reach.target.memory
    written = [(one.code, piece) for one in roots.ranges for piece in for_each_written(memory, one.start, one.end)]
    size, code = (sum(end - start for is_code, (start, end) in written if is_code is kind) for kind in (False, True))
    how = f", bits {reach.rules.clear:#x} cleared" if reach.rules.clear else ""
    how += ", as it stands or else XORed with its own address >> 12" if reach.rules.mangled else ""
    looked = f"every aligned word of {size_text(size)} of root memory and of the blocks reached from it{how}"
    looked += f", the words at every byte of {size_text(code)} of code that the program made" if code else ""
    words = count_text(len(roots.words), "register or other word", "registers and other words")
    yield Evidence("roots", f"{looked}, and {words}")

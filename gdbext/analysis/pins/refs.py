"""``blocks refs``: who points at a block or an address, and who at those, upwards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.addresses import block_at, find_block
from gdbext.analysis.leaks.doubts import doubts_text, find_doubts
from gdbext.analysis.pins.naming import FREE_BLOCK, Place, Places, state_text
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import STATE_NAMES
from gdbext.analysis.reach.reporting import report_on_reach
from gdbext.analysis.reach.scan import Pointers, PointerSearch
from gdbext.errors import FaultError
from gdbext.kernels import BlockIndex
from gdbext.report import Kind, Problem, Report, Rows, column, line, table
from gdbext.wording import count_text

WIDE = 16  # of a block's pointers that are followed and shown, where --depth goes beyond 1
EXPANDED = 128  # blocks that are looked for at one level
DEEPEST = 64
ALIKE = 3  # levels between the first and the last of a run that are still shown one by one
_DOTS = 8  # deeper levels are told by their number, so that names stay in view


@dataclass(frozen=True)
class Reference:
    """A word that points at the block, or at one that leads there.

    :param depth: 1: points at the block itself.
    :param kind: where the word is: ``register``, ``stack``, ``tls``, ``global``, ``file``, ``anonymous`` (roots),
        ``block`` (in use).
    :type kind: word
    :param address: of the word; None: a register.
    :param target: beginning of what it points at.
    :param into: bytes behind that beginning; None: it cannot be read any more.
    :param mangled: with ``--mangled``: the word is the pointer XORed with its own address >> 12; None: it cannot be
        read any more.
    :param thread: the debugger's number, of a register, a stack, thread-local storage.
    :param block: the block that the word lies in; None, as are the three below, of a root.
    :param size: of that block.
    :type size: bytes
    :param type: of that block.
    :param offset: of the word: in that block, or in the variable or module that ``place`` names.
    :type offset: signed
    :param again: the block that the word lies in is listed elsewhere, or is the one asked about: not followed.
    :param pointers: words that point at the block that this one lies in; None: not followed.
    :param place: the place in words.
    """

    depth: int = column(None, Kind.COUNT)
    kind: str = column(None)
    address: Optional[int] = column(None, Kind.ADDRESS)
    at: str = column("word", json=False)
    target: int = column(None, Kind.ADDRESS)
    into: Optional[int] = column("into", Kind.COUNT)
    mangled: Optional[bool] = column(None, Kind.FLAG)
    thread: Optional[int] = column(None, Kind.COUNT)
    block: Optional[int] = column(None, Kind.ADDRESS)
    size: Optional[int] = column(None, Kind.COUNT)
    type: Optional[str] = column(None)
    offset: Optional[int] = column(None, Kind.COUNT)
    again: bool = column(None, Kind.FLAG)
    pointers: Optional[int] = column(None, Kind.COUNT)
    place: str = column("from")


@dataclass(frozen=True)
class References:
    """What ``blocks refs`` answers; the counts are of words, whatever is shown.

    :param address: the one asked about.
    :param block: user pointer of the block that it is in; None, as are the four below, when there is none.
    :param size: usable bytes.
    :type size: bytes
    :param state: ``in use``, ``mmapped``, ``tcache``, ``fastbin``, ``unsorted``, ``small``, ``large``, ``top``,
        ``free``, ``fencepost``, ``dirty``, ``muzzy``.
    :type state: word
    :param reach: ``reached``, ``possibly leaked``, ``leaked``; None: the block is not in use, so that these pointers
        dangle.
    :type reach: word
    :param type: what the block is, as in ``blocks types``; None: not known, or not looked for (``--types``).
    :param what: all that in one sentence.
    :param pointers: words in roots and in blocks in use that are start pointers, behind a recognised header too.
    :param interior: those that are interior pointers.
    :param stale: words in freed blocks, and in allocators' own memory, that point at or into it.
    """

    address: int = column(None, Kind.ADDRESS)
    block: Optional[int] = column(None, Kind.ADDRESS)
    size: Optional[int] = column(None, Kind.COUNT)
    state: Optional[str] = column(None)
    reach: Optional[str] = column(None)
    type: Optional[str] = column(None)
    what: str = line("what")
    pointers: int = line("start pointers", Kind.COUNT)
    interior: int = line("interior pointers", Kind.COUNT)
    stale: int = line("in memory that is not in use", Kind.COUNT)
    references: Rows[Reference] = table(None)
    shown: Rows[Reference] = table("Pointers", json=False)
    stale_references: Rows[Reference] = table("In memory that is not in use: these keep nothing alive")


@dataclass(frozen=True)
class Wanted:
    """What is asked about.

    :param size: 0 where only the address itself counts.
    :param row: of a live block, or None.
    :param state: None where the address is in no block; ``what`` is that in words.
    """

    address: int
    size: int
    row: Optional[int]
    state: Optional[str] = None
    what: str = ""


@dataclass
class _Link:
    """One pointer: a word of ``Roots.words``, or one in memory."""

    word: Optional[int]
    place: int
    source: int
    target: int
    interior: bool
    depth: int
    again: bool = False
    pointers: Optional[int] = None
    above: "List[_Link]" = field(default_factory=list)


def refs(
    reach: Reach, places: Places, address: int, interior: bool = False, depth: int = 1, problems: Sequence[Problem] = ()
) -> Report:
    """Find who points at an address.

    :param interior: whether pointers into the middle of blocks count, at every level.
    :param depth: how many levels of pointers are followed upwards; 0 for as many as ever are.
    """
    wanted = find_wanted(reach, address)
    finder = _Finder(reach, places, interior)
    links, stale, counts = finder.find(wanted)
    depth = min(depth, DEEPEST) or DEEPEST
    if depth > 1:
        links = links[:WIDE]
        finder.climb(wanted, links, depth)
    total = len(links) if depth <= 1 else None
    rows = Rows(lambda: finder.rows(links), Reference, total)
    shown = rows if depth <= 1 else Rows(lambda: folded(finder.rows(links)), Reference, None)
    stale_rows = Rows(lambda: finder.rows(stale), Reference, len(stale))
    data = _data(reach, places, address, wanted, counts, (rows, shown, stale_rows))
    notes = _notes(counts, interior, depth)
    return report_on_reach(reach, data, problems, notes)


def find_wanted(reach: Reach, address: int) -> Wanted:
    """Return the block that an address is in; one in no block stands for itself alone."""
    row = reach.find_row(address)
    block = find_block(reach.heaps, address) if row is None else block_at(*reach.block_of(row), address)
    if block is None:
        return Wanted(address, 0, None)
    size = block.size if row is None else int(reach.size[row])  # damage may have made the block longer
    return Wanted(block.start, size, row, block.state.label, state_text(block))


def _data(
    reach: Reach,
    places: Places,
    address: int,
    wanted: Wanted,
    counts: "_Counts",
    tables: Tuple[Rows[Reference], Rows[Reference], Rows[Reference]],
) -> References:
    row, known = wanted.row, wanted.state is not None
    return References(
        address,
        wanted.address if known else None,
        wanted.size if known else None,
        wanted.state,
        None if row is None else STATE_NAMES[int(reach.states[row])],
        None if row is None else places.block_type(row),
        what_text(reach, places, address, wanted),
        counts.beginning,
        counts.interior,
        counts.stale,
        *tables,
    )


def what_text(reach: Reach, places: Places, address: int, wanted: Wanted) -> str:
    """Return one line on an address that was asked about."""
    offset = address - wanted.address
    where = "the beginning of" if not offset else f"{offset} bytes into"
    if wanted.state is None:
        where = "is not mapped" if reach.target.index.find(address) is None else "is in no block"
        mangled = ", or mangled so" if reach.rules.mangled else ""
        return f"{address:#x} {where}: words of exactly this value{mangled}"
    if wanted.row is None:
        block = f"{where} a block of {wanted.size} bytes at {wanted.address:#x} that is not in use: {wanted.what}"
        return f"{address:#x} is {block}. These are dangling pointers"
    state = STATE_NAMES[int(reach.states[wanted.row])]
    doubts = find_doubts(reach) if state != "reached" else ()
    if doubts:
        state = f"{state} (INCONCLUSIVE, since {doubts_text(doubts)} could not be examined)"
    return f"{address:#x} is {where} {places.of_block(wanted.row).text}, {wanted.state}, {state}"


@dataclass(frozen=True)
class _Counts:
    beginning: int
    interior: int
    stale: int
    own: int  # of the first two, those that lie in the block itself


def _notes(counts: _Counts, interior: bool, depth: int) -> Sequence[str]:
    notes = []
    if counts.own and counts.own == counts.beginning + counts.interior:
        notes.append("nothing but the block itself points there")
    elif not interior and not counts.beginning and counts.interior:
        notes.append(f"no start pointer, {count_text(counts.interior, 'interior pointer')}: see --interior")
    if depth > 1:
        most = f"at most {WIDE} pointers to a block and {DEEPEST} levels are followed and shown"
        notes.append(f"a dot for each level upwards (·{_DOTS + 1}· is {_DOTS + 1}); {most}")
    return notes


def folded(rows: Iterable[Reference]) -> Iterator[Reference]:
    """Iterate over rows for people: of a long run of levels that are alike the first, how many more, and the last."""
    run: "List[Reference]" = []
    for row in rows:
        if run and not _continues(run[-1], row):
            yield from _shortened(run)
            run = []
        run.append(row)
    yield from _shortened(run)


def _continues(below: Reference, row: Reference) -> bool:
    """Return whether a row is the one pointer to the block of the row before it, and lies in another such block."""
    alike = (row.size, row.type, row.offset) == (below.size, below.type, below.offset)
    alike = alike and (row.into, row.mangled) == (below.into, below.mangled)
    return alike and row.block is not None and below.pointers == 1 and row.depth == below.depth + 1 and not row.again


def _shortened(run: "Sequence[Reference]") -> Iterator[Reference]:
    if len(run) - 2 < ALIKE:
        yield from run
        return
    yield run[0]
    yield replace(run[-2], place=f"… {len(run) - 2} more levels like this (--json has all)")
    yield run[-1]


class _Finder:
    """Finds pointers and makes rows of those that are shown."""

    def __init__(self, reach: Reach, places: Places, interior: bool) -> None:
        self._reach = reach
        self._places = places
        self._interior = interior
        self._search = PointerSearch(reach)
        self._wanted: Optional[BlockIndex] = None

    def find(self, wanted: Wanted) -> "Tuple[Sequence[_Link], Sequence[_Link], _Counts]":
        """Return what points at a block: from what is in use, then from what is not, and how many in all."""
        self._wanted = BlockIndex(np.array([wanted.address], np.uint64), np.array([wanted.size], np.uint64))
        found = self._search.of_block(wanted.address, wanted.size, wanted.row)
        live = found.root | (found.source >= 0)
        inside = int(np.count_nonzero(found.hits.interior & live)) + sum(word[2] for word in found.words)
        total = int(np.count_nonzero(live)) + len(found.words)
        kept = np.ones(len(found.hits), np.bool_) if self._interior else ~found.hits.interior
        links = _Links(found, np.flatnonzero(kept & live), self._words(found, 0), wanted.address)
        stale = _Links(found, np.flatnonzero(kept & ~live), [], wanted.address)
        own = int(np.count_nonzero(found.source == wanted.row)) if wanted.row is not None else 0
        return links, stale, _Counts(total - inside, inside, int(np.count_nonzero(~live)), own)

    def _words(self, found: Pointers, position: int) -> Sequence[Tuple[int, bool]]:
        return [(at, inside) for at, to, inside in found.words if to == position and (self._interior or not inside)]

    # -- upwards

    def climb(self, wanted: Wanted, links: "Sequence[_Link]", depth: int) -> None:
        """Follow pointers upwards, level by level; each block is followed once, so that cycles end."""
        told = {wanted.row}
        level = list(links)
        for deep in range(2, depth + 1):
            open_: "Dict[int, _Link]" = {}
            for link in level:
                link.again = link.source >= 0 and (link.source in told or link.source in open_)
                if link.source >= 0 and not link.again and len(open_) < EXPANDED:
                    open_[link.source] = link
            told.update(open_)
            level = self._above(open_, deep) if open_ else []
        for link in level:
            link.again = link.source in told

    def _above(self, open_: "Dict[int, _Link]", depth: int) -> "List[_Link]":
        rows = np.array(sorted(open_), np.int64)
        found = self._search.of_rows(rows)
        kept = found.root | (found.source >= 0)
        kept &= np.ones(len(kept), np.bool_) if self._interior else ~found.hits.interior
        chosen = np.flatnonzero(kept)
        chosen = chosen[np.argsort(found.hits.row[chosen], kind="stable")]
        bounds = np.searchsorted(found.hits.row[chosen], np.arange(len(rows) + 1))
        level: "List[_Link]" = []
        for position, row in enumerate(rows.tolist()):
            part = chosen[bounds[position] : bounds[position + 1]]
            links = _Links(found, part, self._words(found, position), int(self._reach.address[row]), depth)
            open_[row].pointers = len(links)
            open_[row].above = links[:WIDE]
            level += open_[row].above
        return level

    # -- rows

    def rows(self, links: "Sequence[_Link]") -> Iterator[Reference]:
        """Iterate over links with all above them, each before what points at it."""
        stack = [iter(links)]
        while stack:
            link = next(stack[-1], None)
            if link is None:
                stack.pop()
                continue
            yield self._row(link)
            stack.append(iter(link.above))

    def _row(self, link: _Link) -> Reference:
        place = self._name(link)
        into, mangled = self._meaning(link)
        above = link.depth - 1
        dots = "· " * above if above <= _DOTS else f"·{above}· "
        again = " (shown elsewhere)" if link.again and link.depth > 1 else " (itself)" if link.again else ""
        return Reference(
            link.depth, place.kind, place.address, "-" if place.address is None else f"{place.address:#x}",
            link.target, into, mangled, place.thread, place.block, place.size, place.type, place.offset,
            link.again, link.pointers, dots + place.text + (", mangled" if mangled else "") + again,
        )  # fmt: skip

    def _name(self, link: _Link) -> Place:
        if link.word is not None:
            return self._places.of_word(self._reach.marked.roots.words[link.word])
        place = self._places.of_address(link.place)
        if place.kind == FREE_BLOCK:
            return replace(place, text=f"{place.text}, stale")
        return place

    def _meaning(self, link: _Link) -> "Tuple[Optional[int], Optional[bool]]":
        """Return how far behind the beginning of what it points at a pointer leads, and whether it is mangled."""
        reach = self._reach
        if link.word is not None:
            return (reach.marked.roots.words[link.word].value & ~reach.rules.clear) - link.target, False
        if not (link.interior or reach.rules.mangled or reach.rules.headers or reach.rules.part):
            return 0, False
        try:
            value = reach.target.reader.word(link.place)
        except FaultError:
            return (None, None) if link.interior else (0, None)
        address, mangled = reach.meaning(value, link.place, self._wanted if link.depth == 1 else None)
        return address - link.target, mangled


class _Links(Sequence["_Link"]):
    """Pointers as links, made when they are looked at: registers first, then memory."""

    def __init__(
        self,
        found: Pointers,
        chosen: "np.ndarray[tuple[int], np.dtype[np.int64]]",
        words: Sequence[Tuple[int, bool]],
        target: int,
        depth: int = 1,
    ) -> None:
        self._found, self._chosen, self._words = found, chosen, words
        self._target, self._depth = target, depth

    def __len__(self) -> int:
        return len(self._words) + len(self._chosen)

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        if isinstance(at, slice):
            return [self._link(one) for one in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self._link(at)

    def _link(self, at: int) -> _Link:
        if at < len(self._words):
            word, inside = self._words[at]
            return _Link(word, 0, -1, self._target, inside, self._depth)
        hit = int(self._chosen[at - len(self._words)])
        source = -1 if self._found.root[hit] else int(self._found.source[hit])
        place, inside = int(self._found.hits.place[hit]), bool(self._found.hits.interior[hit])
        return _Link(None, place, source, self._target, inside, self._depth)


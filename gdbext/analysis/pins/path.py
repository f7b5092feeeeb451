"""``blocks path``: what keeps a block alive: a shortest chain of pointers to it from a root."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from gdbext.analysis.pins.naming import Place, Places
from gdbext.analysis.pins.refs import Wanted, find_wanted, what_text
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import (
    REGISTER,
    ROOT_KINDS,
    STACK,
    STATE_NAMES,
    Marked,
    RootHits,
    RootRange,
    states_by_roots,
)
from gdbext.analysis.reach.reporting import report_on_reach
from gdbext.errors import GdbextError
from gdbext.heap.model import U8, U32, U64, Mask
from gdbext.kernels import (
    NONE,
    NOT_REACHED,
    REACHED,
    ROOT,
    Edges,
    Hits,
    Tree,
    breadth_first,
    follow_words,
    gather_scalars,
)
from gdbext.kernels.graph import sources_of
from gdbext.kernels.pointers import Followed
from gdbext.memory.intervals import columns, unite
from gdbext.report import Kind, Problem, Report, Rows, column, line, table
from gdbext.wording import count_text, grouped

ALL = 1 << 30  # chains: as many as there are

ALIKE = 3  # steps between the first and the last of a run that are still shown one by one

# Which root of several is told: one that lasts, rather than a register.
_BEST = ("global", "tls", "file", "anonymous", "stack", "register")
assert sorted(_BEST) == sorted(ROOT_KINDS)


@dataclass(frozen=True)
class Step:
    """A pointer of the chain.

    :param chain: which chain, from 1 on; its steps follow each other.
    :param kind: where the pointer is: ``register``, ``stack``, ``tls``, ``global``, ``file``, ``anonymous`` (roots),
        ``block``.
    :type kind: word
    :param address: of the pointer; None: a register.
    :param thread: the debugger's number, of a register, a stack, thread-local storage.
    :param block: the block that the pointer lies in; None, as are the three below, of a root.
    :param size: of that block.
    :type size: bytes
    :param type: of that block.
    :param offset: of the pointer: in that block, or in the variable or module that ``place`` names.
    :type offset: signed
    :param to: beginning of the block that it points at.
    :param into: bytes behind that beginning.
    :param interior: whether it is an interior pointer: ``into`` is neither 0 nor the bytes of a recognised header.
    :param mangled: whether it is XORed with the word's own address >> 12; None where it cannot be found any more.
    :param place: the place in words.
    """

    chain: int = column(None, Kind.COUNT)
    kind: str = column(None)
    address: Optional[int] = column(None, Kind.ADDRESS)
    thread: Optional[int] = column(None, Kind.COUNT)
    block: Optional[int] = column(None, Kind.ADDRESS)
    size: Optional[int] = column(None, Kind.COUNT)
    type: Optional[str] = column(None)
    offset: Optional[int] = column(None, Kind.COUNT)
    to: int = column("to block", Kind.ADDRESS)
    into: Optional[int] = column("into", Kind.COUNT)
    interior: bool = column(None, Kind.FLAG)
    mangled: Optional[bool] = column(None, Kind.FLAG)
    place: str = column("from")


@dataclass(frozen=True)
class Paths:
    """What ``blocks path`` answers.

    :param address: the one asked about.
    :param block: None where the address is in no block.
    :type block: address
    :type size: bytes
    :param state: ``in use``, ``mmapped``, ``tcache``, ``fastbin``, ``unsorted``, ``small``, ``large``, ``top``,
        ``free``, ``fencepost``, ``dirty``, ``muzzy``.
    :type state: word
    :param reach: ``reached``, ``possibly leaked``, ``leaked``; None: not in use.
    :type reach: word
    :param type: what the block is; None: not known.
    :param what: all that in one sentence.
    :param depth: pointers of the first chain; None: there is none.
    :param from_root: whether the chains begin at roots; else at a leaked block, or there is none.
    :param kept_by: what keeps it alive, in words.
    :param chains: how many: one, or with ``--roots`` more.
    """

    address: int = column(None, Kind.ADDRESS)
    block: Optional[int] = column(None, Kind.ADDRESS)
    size: Optional[int] = column(None, Kind.COUNT)
    state: Optional[str] = column(None)
    reach: Optional[str] = column(None)
    type: Optional[str] = column(None)
    what: str = line("what")
    depth: Optional[int] = column(None, Kind.COUNT)
    from_root: bool = column(None, Kind.FLAG)
    kept_by: str = line("kept by")
    chains: int = column(None, Kind.COUNT)
    steps: Rows[Step] = table(None)
    shown: Rows[Step] = table("Pointers", json=False)


@dataclass(frozen=True)
class _Chain:
    """Rows from the first to the asked one; what points at the first is a root, or nothing."""

    rows: Sequence[int]
    root: bool


def paths(reach: Reach, places: Places, address: int, several: int = 1, problems: Sequence[Problem] = ()) -> Report:
    """Find shortest chains that keep a block alive.

    :param several: chains that are told at most, each from another root.
    :raises GdbextError: when the address is in no block.
    """
    wanted = find_wanted(reach, address)
    if wanted.state is None:
        raise GdbextError(f"{address:#x} is in no block", "`blocks refs ADDRESS` shows what points at it")
    chains = _chains(reach, wanted, several, places.frames())
    walker = _Walker(reach, places)
    made = Rows(lambda: walker.rows(chains), Step, sum(len(one.rows) - (not one.root) for one in chains))
    row = wanted.row
    data = Paths(
        address, wanted.address, wanted.size, wanted.state,
        None if row is None else STATE_NAMES[int(reach.states[row])],
        None if row is None else places.block_type(row),
        what_text(reach, places, address, wanted).partition(". ")[0],
        len(chains[0].rows) - (not chains[0].root) if chains else None,
        bool(chains) and chains[0].root,
        walker.kept_by(wanted, chains),
        len(chains),
        made,
        Rows(lambda: walker.folded(chains), Step, None),
    )  # fmt: skip
    return report_on_reach(reach, data, problems)


def _chains(reach: Reach, wanted: Wanted, several: int, frames: Sequence[Tuple[int, int]]) -> Sequence[_Chain]:
    row = wanted.row
    if row is None:
        return []
    if reach.states[row] == NOT_REACHED:
        return _leaked_chain(reach, row, _leaked_tree(reach))
    if several > 1:
        return _several_chains(reach, row, several)
    lasting = _lasting(reach.marked)
    for hits in ([_in_frames(lasting, frames)] if frames else []) + [lasting]:
        chain = _shortest_chain(reach, row, hits)
        if chain is not None:
            return [chain]
    tree = breadth_first(reach.edges, reach.roots, np.ones(len(reach), np.bool_))
    return [_Chain(_climb(tree, row), True)]


def _shortest_chain(reach: Reach, row: int, hits: RootHits) -> Optional[_Chain]:
    """Return a shortest chain from some pointers of roots.

    None where there is none, or where it needs a pointer into the middle of a block and the block is reached without.
    """
    tree = breadth_first(reach.edges, states_by_roots(len(reach), hits), np.ones(len(reach), np.bool_))
    if tree.depth[row] == NONE:
        return None
    rows = _climb(tree, row)
    if reach.states[row] == REACHED and not _by_beginnings(reach, rows, hits):
        return None
    return _Chain(rows, True)


def _in_frames(hits: RootHits, frames: Sequence[Tuple[int, int]]) -> RootHits:
    """Return those that lie in frames of a language: they say more than data of which no name is known."""
    memory = hits.memory
    kept = unite([columns(frames)]).covered.holds(memory.place)
    return RootHits(Hits(memory.place[kept], memory.row[kept], memory.interior[kept]))


def _lasting(marked: Marked) -> RootHits:
    """Return the pointers from roots that last: what is left on a stack, or in a register, says little."""
    roots, memory = marked.roots, marked.hits.memory
    starts = np.array([one.start for one in roots.ranges], np.uint64)
    passing = np.array([one.kind == STACK for one in roots.ranges], np.bool_)
    kept = np.zeros(len(memory), np.bool_)
    if len(starts):
        kept = ~passing[np.searchsorted(starts, memory.place, side="right") - 1]
    words = [one for one in marked.hits.words if roots.words[one[0]].kind not in (REGISTER, STACK)]
    return RootHits(Hits(memory.place[kept], memory.row[kept], memory.interior[kept]), words)


def _by_beginnings(reach: Reach, rows: Sequence[int], hits: RootHits) -> bool:
    """Return whether every pointer of a chain, its root's too, is one to the beginning of a block."""
    memory, first = hits.memory, rows[0]
    begins = bool(np.any(~memory.interior[memory.row == first]))
    if not begins and all(interior for _, row, interior in hits.words if row == first):
        return False
    above, below = np.array(rows[:-1], np.int64), np.array(rows[1:], np.uint32)
    counts = (reach.edges.first[above + 1] - reach.edges.first[above]).astype(np.int64)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(reach.edges.first[above].astype(np.int64), counts) + within
    chosen = reach.edges.to[at] == np.repeat(below, counts)
    return not reach.edges.interior[at[chosen]].any()


def _climb(tree: Tree, row: int) -> List[int]:
    """Return the rows from the one that a root points at, or where the search began, down to ``row``."""
    rows = [row]
    while int(tree.parent[rows[-1]]) not in (ROOT, NONE):
        rows.append(int(tree.parent[rows[-1]]))
    return rows[::-1]


def leaked_paths(reach: Reach, places: Places, rows: Sequence[int]) -> Iterator[Tuple[str, Sequence[str]]]:
    """Iterate over what keeps leaked blocks, in words, and the pointers that lead to each, the first one's first."""
    tree, walker = _leaked_tree(reach), _Walker(reach, places)
    for row in rows:
        chains = _leaked_chain(reach, row, tree)
        wanted = find_wanted(reach, int(reach.address[row]))
        yield walker.kept_by(wanted, chains), [step.place for step in walker.folded(chains)]


def _leaked_tree(reach: Reach) -> Tree:
    """Return the shortest chains from leaked blocks that nothing points at."""
    leaked: Mask = reach.states == NOT_REACHED
    pointed = np.zeros(len(reach), np.bool_)
    pointed[reach.leaked_edges.to] = True
    heads: U8 = np.where(leaked & ~pointed, REACHED, 0).astype(np.uint8)
    return breadth_first(reach.leaked_edges, heads, leaked)


def _leaked_chain(reach: Reach, row: int, tree: Tree) -> Sequence[_Chain]:
    """Return the chain from a leaked block that nothing points at; of a cycle, one step; else nothing."""
    edges = reach.leaked_edges
    if tree.depth[row] == NONE:
        above = sources_of(edges)[edges.to == row]
        return [_Chain([int(above[0]), row], False)] if len(above) else []
    return [_Chain(_climb(tree, row), False)]


# -- several roots


def _several_chains(reach: Reach, row: int, several: int) -> Sequence[_Chain]:
    """Return shortest chains from different blocks that roots point at, shortest first, none through another's first.

    Found backwards: from the block along turned edges, as far as blocks that roots point at.
    """
    known = reach.states[row] == REACHED
    turned = _turned(reach.edges, beginnings=bool(known))
    start = np.zeros(len(reach), np.uint8)
    start[row] = REACHED
    live = np.ones(len(reach), np.bool_)
    tree = breadth_first(turned, start, live)
    first = np.flatnonzero((reach.roots >= (REACHED if known else 1)) & (tree.depth != NONE))
    order = first[np.argsort(tree.depth[first], kind="stable")]
    taken: "set[int]" = set()
    chains: List[_Chain] = []
    for head in order.tolist():
        rows = _climb(tree, head)[::-1]
        if len(chains) == several:
            break
        if not taken.intersection(rows[1:]):
            taken.add(head)
            chains.append(_Chain(rows, True))
    return chains


def _turned(edges: Edges, beginnings: bool) -> Edges:
    """Return the edges the other way round.

    :param beginnings: only those to beginnings.
    """
    source, to, interior = sources_of(edges), edges.to, edges.interior
    if beginnings:
        kept = ~interior
        source, to, interior = source[kept], to[kept], interior[kept]
    order = np.argsort(to, kind="stable")
    counts = np.bincount(to, minlength=len(edges.first) - 1)
    first = np.concatenate((np.zeros(1, np.uint64), np.cumsum(counts, dtype=np.uint64)))
    return Edges(first, source[order].astype(np.uint32), interior[order])


# -- rows


class _Walker:
    """Makes steps of chains that are shown."""

    def __init__(self, reach: Reach, places: Places) -> None:
        self._reach = reach
        self._places = places

    def rows(self, chains: Sequence[_Chain]) -> Iterator[Step]:
        """Iterate over the pointers of all chains."""
        for number, chain in enumerate(chains, 1):
            if chain.root:
                yield self._root_step(number, chain.rows[0])
            for above, row in zip(chain.rows, chain.rows[1:]):
                yield self._step(number, above, row)

    def folded(self, chains: Sequence[_Chain]) -> Iterator[Step]:
        """Iterate over the same for people: of a long run of equal pointers the first, how many more, and the last."""
        for number, chain in enumerate(chains, 1):
            if chain.root:
                yield self._root_step(number, chain.rows[0])
            rows: U32 = np.array(chain.rows, np.uint32)
            at = 0
            while at < len(rows) - 1:
                step = self._step(number, int(rows[at]), int(rows[at + 1]))
                yield step
                alike = self._count_alike(rows[at:], step)
                at += 1
                if alike > ALIKE:
                    at += alike - 1
                    more = f"… {grouped(alike - 1)} more like this (--json has all)"
                    yield replace(step, to=int(self._reach.address[rows[at]]), place=more)

    def _count_alike(self, rows: U32, step: Step) -> int:
        """Return how many pointers behind that of the first row are like it: the same but for addresses."""
        if step.offset is None or step.into is None:
            return 0
        count, width = 0, 16
        while count + 2 < len(rows):
            part = rows[count + 1 : count + 2 + width]
            alike = self._are_alike(part[:-1], part[1:], rows[0], step)
            if not alike.all():
                return count + int(np.argmin(alike))
            count, width = count + len(alike), width * 2
        return count

    def _are_alike(self, above: U32, below: U32, first: int, step: Step) -> Mask:
        reach, types = self._reach, self._places.types
        found, known = self._follow(reach.address[above] + np.uint64(step.offset or 0))
        alike: Mask = known & (found.address == reach.address[below] + np.uint64(step.into or 0))
        alike &= found.mangled == bool(step.mangled)
        alike &= reach.size[above] == reach.size[first]
        return alike if types is None else alike & (types.code[above] == types.code[first])

    def kept_by(self, wanted: Wanted, chains: Sequence[_Chain]) -> str:
        """Return in words what keeps a block alive."""
        if wanted.row is None:
            return "nothing: it is not in use. `blocks refs` shows what still points at it"
        if not chains:
            return "nothing: no root leads to it, and no block points at it"
        first = chains[0].rows[0]
        if chains[0].root:
            more = f", and {count_text(len(chains) - 1, 'more root')}" if len(chains) > 1 else ""
            pointers = count_text(len(chains[0].rows), "pointer")
            return f"{self._root_step(1, first).place}, by {pointers}{more}"
        if first == wanted.row:
            return "nothing: no root leads to it, and no other block points at it"
        return f"no root leads to it: it is kept by the leaked {self._places.of_block(first).text}"

    def _root_step(self, number: int, row: int) -> Step:
        word, place, interior = self._best_root(row)
        if word is not None:
            root = self._reach.marked.roots.words[word]
            found, value, mangled = self._places.of_word(root), root.value & ~self._reach.rules.clear, False
        else:
            found, stored = self._places.of_address(place), int(self._reach.target.reader.word(place))
            value, mangled = self._reach.meaning(stored, place)
        return self._made(number, found, (row, interior), value, mangled)

    def _best_root(self, row: int) -> Tuple[Optional[int], int, bool]:
        """Return the root that is told of those that point at a row: to its beginning, then by kind."""
        roots, hits = self._reach.marked.roots, self._reach.marked.hits
        found: "Dict[Tuple[bool, int, int], Tuple[Optional[int], int, bool]]" = {}
        for at, to, interior in hits.words:
            if to == row:
                found[interior, _BEST.index(roots.words[at].kind), 0] = (at, 0, interior)
        for at in np.flatnonzero(hits.memory.row == row)[:256].tolist():
            place, interior = int(hits.memory.place[at]), bool(hits.memory.interior[at])
            known = self._places.find_range(place)
            if known is not None:
                found.setdefault((interior, self._rank(known, place), place), (None, place, interior))
        return found[min(found)]

    def _rank(self, root: RootRange, place: int) -> int:
        """Return how little a word of a root says: in a frame of a language it has a name."""
        return -1 if self._places.is_framed(place) else _BEST.index(root.kind)

    def _step(self, number: int, above: int, row: int) -> Step:
        place, value, interior, mangled = self._pointer(above, row)
        start = int(self._reach.address[above])
        found = self._places.of_block(above, None if place is None else place - start)
        return self._made(number, found, (row, interior), value, mangled)

    def _made(
        self, number: int, place: Place, to_row: Tuple[int, bool], value: Optional[int], mangled: Optional[bool]
    ) -> Step:
        row, interior = to_row
        to = int(self._reach.address[row])
        into = None if value is None else value - to
        return Step(
            number, place.kind, place.address, place.thread, place.block, place.size, place.type, place.offset,
            to, into, interior, mangled, place.text + (", mangled" if mangled else ""),
        )  # fmt: skip

    def _pointer(self, above: int, row: int) -> "Tuple[Optional[int], Optional[int], bool, Optional[bool]]":
        """Return the word of one block that points at another (to its beginning if any does), and what it means.

        That is its place, the address that it stands for, whether that is behind the beginning, and whether it is
        mangled.
        """
        index, word = self._reach.marked.blocks.index, self._reach.rules.word
        first = -(-int(index.address[above]) // word) * word
        end = int(index.address[above]) + int(index.size[above])
        places = np.arange(first, max(end - word + 1, first), word, dtype=np.uint64)
        found, known = self._follow(places)
        inside = known & (found.row == row)
        begins = ~self._reach.rules.are_interior(found.address - index.address[row], index.size[row])
        at = np.flatnonzero(inside & begins)
        at = at if len(at) else np.flatnonzero(inside)
        if not len(at):
            return None, None, True, None
        one = at[0]
        return int(places[one]), int(found.address[one]), not begins[one], bool(found.mangled[one])

    def _follow(self, places: U64) -> Tuple[Followed, Mask]:
        """Return what words of live blocks stand for, and which could be read."""
        reach = self._reach
        words, known = gather_scalars(reach.marked.spans, places, reach.rules.word, reach.rules.byteorder)
        return follow_words(words, places, reach.marked.blocks.index, reach.rules), known

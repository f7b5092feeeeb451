"""Blocks that point at blocks, as a graph: its edges, its components, and ways from roots.

The definition that a native version must equal. Nothing here recurses: a list may have a million nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.kernels.chains import Span
from gdbext.kernels.pointers import REACHED, U8, U32, U64, BlockIndex, Hits, Mask, PointerRules, hits_from_blocks

NONE = 0xFFFF_FFFF  # no row, no node
ROOT = 0xFFFF_FFFE  # a root, as what points at a block

MOST_ROWS = (1 << 31) - 2

I64 = npt.NDArray[np.int64]


class TooManyEdges(Exception):
    """There are more edges than the caller has room for."""


@dataclass(frozen=True)
class Edges:
    """Which blocks point at which: compressed rows.

    The targets of row i are ``to[first[i]:first[i + 1]]``, each once: the word that stands for it is the lowest that
    points at its beginning, or else the lowest. They are in the order of these words.

    :param first: one more than there are rows.
    :param to: rows.
    :param interior: whether that edge points behind the target's beginning.
    """

    first: U64
    to: U32
    interior: Mask

    def __len__(self) -> int:
        return len(self.to)


@dataclass(frozen=True)
class Tree:
    """Shortest ways from roots.

    :param parent: row, or :data:`ROOT` where a root points at it, or :data:`NONE` where it is not reached.
    :param depth: edges from a block that a root points at, or :data:`NONE`.
    """

    parent: U32
    depth: U32


# -- edges ----------------------------------------------------------------------------------------------


def block_edges(
    spans: Sequence[Span], index: BlockIndex, rules: PointerRules, live: Mask, most: Optional[int] = None
) -> Edges:
    """Find the edges from live blocks to other live blocks.

    :param spans: the memory, sorted, disjoint; bytes of blocks that are not there are not looked at.
    :param live: which blocks count.
    :param most: edges; None takes as many as there are.
    :raises TooManyEdges: there are more than ``most``.
    """
    if len(live) != len(index):
        raise ValueError("a mark is needed for every block")
    source, hits = hits_from_blocks(spans, index, rules, live)
    kept = _chosen(source, hits)
    if most is not None and len(kept) > most:
        raise TooManyEdges(f"{len(kept)} edges, of which {most} were asked for")
    counts = np.bincount(source[kept], minlength=len(index)).astype(np.uint64)
    first = np.concatenate((np.zeros(1, np.uint64), np.cumsum(counts, dtype=np.uint64)))
    return Edges(first, hits.row[kept], hits.interior[kept])


def _chosen(source: I64, hits: Hits) -> I64:
    """Return which hits stand for an edge, in the order of their places."""
    edge = (source.astype(np.uint64) << np.uint64(32)) | hits.row
    order = np.lexsort((hits.interior, edge))  # it is stable: the lowest first
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = edge[order][1:] != edge[order][:-1]
    return np.sort(order[fresh])


# -- sound graphs, and parts of them ---------------------------------------------------------------------


def check_edges(edges: Edges, *columns: "npt.NDArray[np.generic]") -> int:
    """Return how many rows there are.

    :param columns: that must have an item for each row.
    :raises ValueError: an edge leads out of the graph, or a column is of another length.
    """
    first, rows = edges.first, len(edges.first) - 1
    sound = rows >= 0 and first[0] == 0 and first[-1] == len(edges.to) == len(edges.interior)
    sound = sound and rows <= MOST_ROWS and bool(np.all(first[1:] >= first[:-1]))
    if not sound or (len(edges.to) and edges.to.max() >= rows):
        raise ValueError("edges that lead out of their graph")
    if any(len(column) != rows for column in columns):
        raise ValueError("a column has not one item for each row")
    return rows


def sources_of(edges: Edges) -> I64:
    """Return the row that each edge comes from."""
    return np.repeat(np.arange(len(edges.first) - 1), np.diff(edges.first).astype(np.int64))


class Graph:
    """Compressed rows that Python's own numbers come from."""

    def __init__(self, source: I64, to: "npt.NDArray[np.integer]", nodes: int) -> None:
        order = np.argsort(source, kind="stable")
        counts = np.bincount(source, minlength=nodes)
        self.nodes = nodes
        self.first = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64))).data
        self.to = to[order].astype(np.int64).data

    def of(self, node: int) -> List[int]:
        """Return where a node leads."""
        return self.to[self.first[node] : self.first[node + 1]].tolist()


def _subgraph(edges: Edges, wanted: Mask, interior: bool) -> Graph:
    source, to = sources_of(edges), edges.to.astype(np.int64)
    kept = wanted[source] & wanted[to]
    if not interior:
        kept &= ~edges.interior
    return Graph(source[kept], to[kept], len(wanted))


# -- components ------------------------------------------------------------------------------------------


def find_components(edges: Edges, wanted: Mask, interior: bool = True) -> U32:
    """Return the strongly connected component of each wanted row, or :data:`NONE`.

    They are numbered in the order of their lowest rows. The algorithm is Tarjan's.

    :param interior: whether edges into the middle of a block count.
    """
    check_edges(edges, wanted)
    search = _Components(_subgraph(edges, wanted, interior))
    rows = np.flatnonzero(wanted)
    for row in rows.tolist():
        if not search.number[row]:
            search.visit(row)
    return _by_lowest_row(np.array(search.component, np.int64), rows)


def _by_lowest_row(component: I64, rows: I64) -> U32:
    _, lowest, which = np.unique(component[rows], return_index=True, return_inverse=True)
    place = np.empty(len(lowest), np.uint32)
    place[np.argsort(lowest)] = np.arange(len(lowest), dtype=np.uint32)
    found = np.full(len(component), NONE, np.uint32)
    found[rows] = place[which.reshape(-1)]
    return found


class _Components:
    """Tarjan's search: numbers by first visit, the lowest number that each leads back to."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.number, self.low = [0] * graph.nodes, [0] * graph.nodes
        self.component = [-1] * graph.nodes
        self._open: List[int] = []
        self._seen = self._closed = 0

    def visit(self, row: int) -> None:
        way = [(row, self._enter(row))]
        while way:
            row, rest = way[-1]
            if rest:
                to = rest.pop()
                if not self.number[to]:
                    way.append((to, self._enter(to)))
                elif self.component[to] < 0:
                    self.low[row] = min(self.low[row], self.number[to])
                continue
            way.pop()
            if self.low[row] == self.number[row]:
                self._close(row)
            if way:
                self.low[way[-1][0]] = min(self.low[way[-1][0]], self.low[row])

    def _enter(self, row: int) -> List[int]:
        self._seen += 1
        self.number[row] = self.low[row] = self._seen
        self._open.append(row)
        return self.graph.of(row)

    def _close(self, row: int) -> None:
        member = -1
        while member != row:
            member = self._open.pop()
            self.component[member] = self._closed
        self._closed += 1


# -- ways from roots -------------------------------------------------------------------------------------


def breadth_first(edges: Edges, roots: U8, live: Mask) -> Tree:
    """Find a shortest way to each live row.

    First by pointers to beginnings alone, from rows that roots point at so. To what is left of any edges, from
    rows that were reached and those that roots point into. Among equals the parent is the lowest row.

    :param roots: the state that roots give each block, as :func:`gdbext.kernels.mark_blocks` takes it.
    """
    check_edges(edges, roots, live)
    search = _Levels(len(live))
    search.spread(_subgraph(edges, live, False), {0: np.flatnonzero(live & (roots >= REACHED)).tolist()})
    levels = search.levels()
    levels.setdefault(0, []).extend(np.flatnonzero(live & (roots > 0) & (search.depths() == NONE)).tolist())
    search.spread(_subgraph(edges, live, True), levels)
    return Tree(np.array(search.parent, np.uint32), search.depths())


class _Levels:
    """Rows by how far they are."""

    def __init__(self, rows: int) -> None:
        self.parent, self.depth = [NONE] * rows, [NONE] * rows

    def depths(self) -> U32:
        return np.array(self.depth, np.uint32)

    def levels(self) -> Dict[int, List[int]]:
        found: Dict[int, List[int]] = {}
        for row, depth in enumerate(self.depth):
            if depth != NONE:
                found.setdefault(depth, []).append(row)
        return found

    def spread(self, graph: Graph, levels: Dict[int, List[int]]) -> None:
        """Go on from rows at the depths where they are; those at 0 that nothing has reached are roots' own."""
        for row in levels[0]:
            if self.depth[row] == NONE:
                self.depth[row], self.parent[row] = 0, ROOT
        depth, found = 0, levels[0]
        while found:
            found = self._next(graph, sorted(found), depth + 1)
            depth += 1
            found += levels.get(depth, [])

    def _next(self, graph: Graph, rows: List[int], depth: int) -> List[int]:
        found = []
        for row in rows:
            for to in graph.of(row):
                if self.depth[to] == NONE:
                    self.depth[to], self.parent[to] = depth, row
                    found.append(to)
        return found

"""What keeps blocks alive: dominators in the graph of blocks and roots, and sums over their tree.

The definition that a native version must equal. Nothing here recurses: a list may have a million nodes.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

import numpy as np

from gdbext.kernels.graph import MOST_ROWS, NONE, Edges, Graph, check_edges, sources_of
from gdbext.kernels.pointers import U32, U64

SUPER = 0xFFFF_FFFE  # what dominates all roots


def find_dominators(edges: Edges, entry: U32, entries: U32) -> U32:
    """Return the immediate dominator of each node: the last that every way from any root goes through.

    Nodes are the blocks, then the roots: root k is node ``rows + k``; there are as many as the greatest number in
    ``entries`` asks for. Edges of both kinds count. T. Lengauer, R. E. Tarjan, "A Fast Algorithm for Finding Dominators
    in a Flowgraph", with simple linking: a list that is linked both ways takes no longer than others.

    :param entry: rows that roots point at.
    :param entries: the numbers of these roots, from 0 on.
    :return: a node for each node; :data:`SUPER` where several roots lead, and for roots; :data:`NONE` where none does.
    """
    rows = check_edges(edges)
    roots = check_entries(rows, entry, entries)
    graph = _with_roots(edges, entry, entries, roots)
    return _Dominators(graph).found(rows + roots)


def check_entries(rows: int, entry: U32, entries: U32) -> int:
    """Return how many roots there are.

    :raises ValueError: a root points at no row, or there are too many.
    """
    roots = int(entries.max()) + 1 if len(entries) else 0
    if len(entry) != len(entries) or (len(entry) and entry.max() >= rows) or rows + roots > MOST_ROWS:
        raise ValueError("roots that point out of the graph")
    return roots


def _with_roots(edges: Edges, entry: U32, entries: U32, roots: int) -> Graph:
    """Return a graph with roots behind the rows, and what leads to all roots behind these."""
    rows = len(edges.first) - 1
    top = rows + roots
    source = np.concatenate((sources_of(edges), entries.astype(np.int64) + rows, np.full(roots, top)))
    to = np.concatenate((edges.to.astype(np.int64), entry.astype(np.int64), np.arange(rows, top)))
    return Graph(source, to, top + 1)


class _Dominators:
    """Dominators of what the last node of a graph leads to, by numbers in the order of a depth-first search from there.

    Of the numbers from some ``last`` on, ``up`` is one that each came from, or some further up, and ``label`` the one
    with the lowest semidominator between the two.
    """

    def __init__(self, graph: Graph) -> None:
        self.order, self.up = _search(graph)
        self.semi, self.label = (list(range(len(self.order))) for _ in range(2))
        self.above = _turned(graph, self.order)

    def found(self, nodes: int) -> U32:
        order, found = np.array(self.order), np.full(nodes, NONE, np.uint32)
        by = np.append(np.uint32(SUPER), order[1:].astype(np.uint32))
        found[order[1:]] = by[self._dominators()[1:]]
        return found

    def _dominators(self) -> List[int]:
        found = self._found_from_last()
        for number in range(1, len(found)):
            if found[number] != self.semi[number]:
                found[number] = found[found[number]]
        return found

    def _found_from_last(self) -> List[int]:
        """Return for each number its dominator, or a lower number that has the same and another semidominator."""
        found, semi = [0] * len(self.order), self.semi
        buckets: Dict[int, List[int]] = {}
        for number in range(len(found) - 1, 0, -1):
            up = self.up[number]
            semi[number] = min(semi[self._lowest(above, number + 1)] for above in self.above.of(number))
            buckets.setdefault(semi[number], []).append(number)
            for below in buckets.pop(up, ()):
                lowest = self._lowest(below, number)
                found[below] = lowest if semi[lowest] < up else up
        return found

    def _lowest(self, number: int, last: int) -> int:
        """Return the label of a number, once the way up from it through those from ``last`` on is made one step."""
        way, up, label, semi = [], self.up, self.label, self.semi
        while up[number] >= last:
            way.append(number)
            number = up[number]
        top, lowest = up[number], label[number]
        for below in reversed(way):
            if semi[label[below]] <= semi[lowest]:
                lowest = label[below]
            up[below], label[below] = top, lowest
        return lowest


def _search(graph: Graph) -> Tuple[List[int], List[int]]:
    """Return what the last node leads to, depth first, and for each the number of what it came from."""
    order: List[int] = []
    seen, ups = [False] * graph.nodes, []
    way = [(graph.nodes - 1, 0)]
    while way:
        node, up = way.pop()
        if not seen[node]:
            seen[node] = True
            way += [(to, len(order)) for to in graph.of(node) if not seen[to]]
            order.append(node)
            ups.append(up)
    return order, ups


def _turned(graph: Graph, order: List[int]) -> Graph:
    """Return the graph of what these nodes come from, by their numbers in this order."""
    number = np.full(graph.nodes, -1)
    number[order] = np.arange(len(order))
    source = number[np.repeat(np.arange(graph.nodes), np.diff(graph.first))]
    kept = source >= 0  # what a node of the order leads to is one, too
    return Graph(number[np.asarray(graph.to)[kept]], source[kept], len(order))


def sum_up_tree(dominator: U32, size: U64) -> Tuple[U64, U32]:
    """Return the bytes and the number of the nodes that each node dominates, itself included.

    A root is a node as others are: its number is one more than the blocks that only it keeps.

    :param dominator: as :func:`find_dominators` returns it.
    :param size: bytes of each node; those behind its end, as roots are, have none.
    :return: zeros for nodes that are not reached.
    :raises ValueError: that is no tree.
    """
    nodes = len(dominator)
    if len(size) > nodes:
        raise ValueError("more sizes than nodes")
    size = np.concatenate((size, np.zeros(nodes - len(size), np.uint64)))
    reached, inner = dominator != NONE, dominator < SUPER
    if inner.any() and not (dominator[inner].max() < nodes and reached[dominator[inner]].all()):
        raise ValueError("a dominator that is no node of the tree")
    total, count = np.where(reached, size, np.uint64(0)), reached.astype(np.uint32)
    open_ = np.bincount(dominator[inner], minlength=nodes)
    if _add_up(dominator.tolist(), open_.tolist(), total.data, count.data) != int(reached.sum()):
        raise ValueError("nodes that dominate each other")
    return total, count


def _add_up(dominator: List[int], open_: List[int], total: memoryview, count: memoryview) -> int:
    """Add each node to what dominates it, once all below it are added; return how many were."""
    done = 0
    leaves = [node for node, below in enumerate(open_) if not below and dominator[node] != NONE]
    for node in leaves:
        done += 1
        above = dominator[node]
        if above == SUPER:
            continue
        total[above] = (total[above] + total[node]) & ((1 << 64) - 1)
        count[above] += count[node]
        open_[above] -= 1
        if not open_[above]:
            leaves.append(above)
    return done

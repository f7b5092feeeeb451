"""What keeps blocks alive: dominators in the graph of blocks and roots, and sums over their tree.

The definition that a native version must equal. Nothing here recurses: a list may have a million nodes.
"""

from __future__ import annotations

from typing import List, Tuple

import numpy as np

from gdbext.kernels.graph import MOST_ROWS, NONE, Edges, Graph, check_edges, sources_of
from gdbext.kernels.pointers import U32, U64

SUPER = 0xFFFF_FFFE  # what dominates all roots



def find_dominators(edges: Edges, entry: U32, entries: U32) -> U32:
    """Return the immediate dominator of each node: the last that every way from any root goes through.

    Nodes are the blocks, then the roots: root k is node ``rows + k``; there are as many as the greatest number in
    ``entries`` asks for. Edges of both kinds count. K. D. Cooper, T. J. Harvey, K. Kennedy, "A Simple, Fast Dominance
    Algorithm".

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
    """Dominators of what the last node of a graph leads to, by numbers in postorder."""

    def __init__(self, graph: Graph) -> None:
        self.number = [-1] * graph.nodes
        self.order = _postorder(graph, graph.nodes - 1)
        for number, node in enumerate(self.order):
            self.number[node] = number
        self.above: List[List[int]] = [[] for _ in self.order]
        for number, node in enumerate(self.order):
            for to in graph.of(node):
                self.above[self.number[to]].append(number)

    def found(self, nodes: int) -> U32:
        dominator, found = self._fixpoint(), np.full(nodes, NONE, np.uint32)
        top = len(self.order) - 1
        for number, node in enumerate(self.order[:top]):
            by = dominator[number]
            found[node] = SUPER if by == top else self.order[by]
        return found

    def _fixpoint(self) -> List[int]:
        top = len(self.order) - 1
        dominator = [-1] * top + [top]
        changed = True
        while changed:
            changed = False
            for number in range(top - 1, -1, -1):
                common = -1
                for above in self.above[number]:
                    if dominator[above] >= 0:
                        common = above if common < 0 else _common(dominator, common, above)
                changed = changed or dominator[number] != common
                dominator[number] = common
        return dominator


def _common(dominator: List[int], one: int, other: int) -> int:
    while one != other:
        if one < other:
            one = dominator[one]
        else:
            other = dominator[other]
    return one


def _postorder(graph: Graph, start: int) -> List[int]:
    seen, order, way = {start}, [], [(start, graph.of(start))]
    while way:
        node, rest = way[-1]
        if not rest:
            order.append(node)
            way.pop()
            continue
        to = rest.pop()
        if to not in seen:
            seen.add(to)
            way.append((to, graph.of(to)))
    return order


def sum_up_tree(dominator: U32, size: U64) -> Tuple[U64, U64]:
    """Return the bytes and the number of the nodes that each node dominates, itself included.

    A root is a node as others are: its number is one more than the blocks that only it keeps.

    :param dominator: as :func:`find_dominators` returns it.
    :param size: bytes of each node; a root has none.
    :return: zeros for nodes that are not reached.
    :raises ValueError: that is no tree.
    """
    nodes = len(dominator)
    if len(size) != nodes:
        raise ValueError("a size is needed for every node")
    reached, inner = dominator != NONE, dominator < SUPER
    if inner.any() and not (dominator[inner].max() < nodes and reached[dominator[inner]].all()):
        raise ValueError("a dominator that is no node of the tree")
    total, count = np.where(reached, size, np.uint64(0)), reached.astype(np.uint64)
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

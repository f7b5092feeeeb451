"""Who keeps whom among leaked blocks: leak roots, and what only they lead to.

A *leak root* is a leaked block that no other leaked block points at, or the lowest block of a cycle that nothing
outside of it points at. Every other leaked block is *indirect*. Pointers into the middle of a leaked block count like
those to its beginning, as valgrind has it (``memcheck/mc_leakcheck.c``, ``lc_push_with_clique_if_a_chunk_ptr``): who
frees the one has to free the other, too.

What a leak root *keeps* is itself and what only it leads to (what it dominates), so nothing is counted twice. A block
that several leak roots lead to is *shared*, and kept by none of them alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdbext.analysis.reach.graph import Reach
from gdbext.heap.model import U8, U32, U64, Mask
from gdbext.kernels import NOT_REACHED, Edges, find_components, find_dominators, sum_up_tree
from gdbext.memory.intervals import I64

LEAK_ROOT, INDIRECT, CYCLE = range(3)
ROLE_NAMES = ("leak root", "indirect", "cycle")

NO_LEADER = -1


@dataclass(frozen=True)
class LeakGroups:
    """The leaked blocks in address order, as columns; a *place* is a position in them.

    :param rows: the row of each in the :class:`gdbext.analysis.reach.graph.Reach`.
    :param role: LEAK_ROOT, INDIRECT, or CYCLE: in the cycle of a leak root, and not its lowest block.
    :param leader: place of the leak root that alone leads to each, or :data:`NO_LEADER` where several do.
    :param roots: places of the leak roots.
    :param cycle: of each leak root, how many blocks its cycle has; 0 where it is in none.
    :param kept_bytes: of each leak root, of all that it keeps; itself included, like ``kept_blocks``.
    """

    rows: I64
    role: U8
    leader: I64
    roots: I64
    cycle: I64
    kept_bytes: U64
    kept_blocks: U64

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shared(self) -> Mask:
        """Which blocks several leak roots lead to."""
        mask: Mask = self.leader == NO_LEADER
        return mask

    @property
    def by_kept(self) -> I64:
        """Positions in ``roots``, those that keep most bytes first, of equals the lowest address."""
        return np.argsort(-self.kept_bytes.astype(np.int64), kind="stable")


def group_leaks(reach: Reach) -> LeakGroups:
    """Group the leaked blocks of a target; their edges are looked for only where there are any."""
    rows = np.flatnonzero(reach.states == NOT_REACHED)
    if not len(rows):
        return _grouped(rows, np.empty(0, np.uint64), Edges(np.zeros(1, np.uint64), *_NO_EDGES))
    return _grouped(rows, reach.size[rows], reach.find_leaked_edges(rows))


_NO_EDGES = np.empty(0, np.uint32), np.empty(0, np.bool_)


def _grouped(rows: I64, size: U64, edges: Edges) -> LeakGroups:
    component = find_components(edges, np.ones(len(rows), np.bool_))
    lowest = np.unique(component, return_index=True)[1]  # components are numbered from 0 without a gap
    free = _without_incoming(edges, component, len(lowest))
    roots = np.sort(lowest[free])
    role = np.where(free[component], CYCLE, INDIRECT).astype(np.uint8)
    role[roots] = LEAK_ROOT
    members = np.bincount(component, minlength=len(lowest))[component[roots]]
    dominator = find_dominators(edges, roots.astype(np.uint32), np.zeros(len(roots), np.uint32))
    kept, count = sum_up_tree(dominator, size)
    leader = _leaders(dominator, roots)
    cycle, blocks = np.where(members > 1, members, 0), count[roots].astype(np.uint64)
    return LeakGroups(rows, role, leader, roots, cycle, kept[roots], blocks)


def _without_incoming(edges: Edges, component: U32, components: int) -> Mask:
    """Return which components no edge from another one leads to."""
    source = np.repeat(component, np.diff(edges.first).astype(np.int64))
    to = component[edges.to]
    free: Mask = np.ones(components, np.bool_)
    free[to[source != to]] = False
    return free


def _leaders(dominator: U32, roots: I64) -> I64:
    """Return the leak root above each block in the tree of dominators, by doubling steps: chains may be long."""
    count = len(dominator) - 1 if len(roots) else 0  # the last node stands for whatever holds the leak roots
    above = dominator[:count].astype(np.int64)
    above = np.where(above >= count, np.arange(count), above)  # SUPER cannot be, and would be no row
    while True:
        further = above[above]
        if np.array_equal(further, above):
            break
        above = further
    is_root = np.zeros(count, np.bool_)
    is_root[roots] = True
    return np.where(is_root[above], above, NO_LEADER)

"""Hand-made lists, tables and walks."""

import numpy as np

from gdbext.analysis.tables.counts import Walked
from gdbext.structures.shapes.resolve import Opened
from gdbext.structures.walk.model import (
    BinArray,
    BinsWalk,
    ChainEnd,
    End,
    Group,
    Links,
    ListHead,
    ListWalk,
    Node,
    Table,
)


def u64(values):
    return np.array(list(values), np.uint64)


def list_walk(nodes, reason=End.NULL, address=None, cycle=None):
    return ListWalk(u64(nodes), ChainEnd(reason, len(nodes), address, cycle))


def bins_walk(chains, ends=None, complete=True):
    """The walk of bins that hold these nodes.

    :param ends: ``ChainEnd`` by bin, for those that end badly.
    """
    ends = ends or {}
    reasons = np.zeros(len(chains), np.uint8)
    for number, end in ends.items():
        reasons[number] = end.reason
    lengths = [len(chain) for chain in chains]
    nodes = [node for chain in chains for node in chain]
    owners = [number for number, chain in enumerate(chains) for _ in chain]
    return BinsWalk(u64(lengths), reasons, u64(nodes), u64(owners), ends, complete)


def table(bins, entries=None, address=0x9000, element=0, type="struct entry"):
    node = Node(Links(0), element=element, type=type)
    return Table(address, node, [BinArray(address + 0x100, bins, 8)], entries=entries, shape="made")


def head(entries=None, address=0x8000, element=0, type="struct entry"):
    return ListHead(address, 0x10, Node(Links(0), element=element, type=type), entries=entries, shape="made")


def opened(*tables, problems=()):
    structure = tables[0] if len(tables) == 1 else Group(0x7000, tables, shape="group", problems=tuple(problems))
    return Opened(structure, (), tuple(problems), "made by hand")


def walked(*pairs):
    return [Walked(index, each, walk) for index, (each, walk) in enumerate(pairs)]

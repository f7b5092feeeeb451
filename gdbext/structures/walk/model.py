"""What walkers are given and what they return: addresses and numbers, no names of members.

A table is a bound shape opened on one object. A walk always says why each chain ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Callable, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt

from gdbext.report import Problem

U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

NUMBER_SIZES = (1, 2, 4, 8)  # bytes of numbers that are read whole


def unsigned(number: int) -> np.uint64:
    """Return a number modulo 2**64, as columns have it: distances may be negative."""
    wrapped: np.uint64 = np.uint64(number & ((1 << 64) - 1))
    return wrapped


class End(IntEnum):
    """Why a chain ended. The first four are sound ends."""

    NULL = 0
    HEAD = 1  # back at its own head
    SENTINEL = 2  # at a value that stands for the end (a nulls marker, an end node, `--end VALUE`)
    COUNT = 3  # after as many nodes as its own count says, or where another bin's nodes begin
    LIMIT = 4  # at the bound given by the user
    CYCLE = 5
    BAD_POINTER = 6  # to memory that is not mapped
    DECODE_ERROR = 7  # misaligned after decoding
    FORBIDDEN = 8  # a marker of an unlinked or busy node
    ABSENT = 9  # to memory that the core lacks: unknown, not damaged
    INTERRUPTED = 10

    @property
    def word(self) -> str:
        """As text and JSON write it: ``bad-pointer``."""
        return self.name.lower().replace("_", "-")

    @property
    def sound(self) -> bool:
        """Whether a healthy structure ends so."""
        return self <= End.COUNT


class Scalar(NamedTuple):
    """A number at an offset.

    :param offset: bytes from the start of its structure.
    :param size: bytes.
    :param bits: (shift, width) of a bit-field in it.
    """

    offset: int
    size: int
    signed: bool = False
    bits: Optional[tuple[int, int]] = None


class Links(NamedTuple):
    """How one node leads to the next.

    :param next: bytes from the node's start to the link.
    :param prev: the same of the link back, or None.
    :param prev_is_link: the link back holds the address of the *link* that points here (BSD queues, hlist).
    :param mask: bits cleared in each link before it is an address (tags).
    :param mangled: each link is XORed with its own address >> 12 (glibc's safe-linking); heads are plain.
    :param xor: each link is the address before XOR the address after.
    :param relative: bytes added to a link that is not null (links that point inside the next node).
    :param end_bits: a link with any of these bits set is the end (Linux's nulls).
    :param leaf_bits: a link with any of these bits set is one last entry without a link (redis' bare keys).
    :param sentinels: values besides null that stand for the end.
    :param forbidden: values that mark a node as unlinked or busy, as unsigned words.
    :param alignment: of node addresses, bytes; 1 checks nothing.
    """

    next: int
    prev: Optional[int] = None
    prev_is_link: bool = False
    mask: int = 0
    mangled: bool = False
    xor: bool = False
    relative: int = 0
    end_bits: int = 0
    leaf_bits: int = 0
    sentinels: tuple[int, ...] = ()
    forbidden: tuple[int, ...] = ()
    alignment: int = 1


class Key(NamedTuple):
    """What tells entries apart.

    :param at: where in the node it stands.
    :param compare: ``value`` (the number itself), ``pointer`` (only the pointer: entries with equal contents
        count as different), ``string`` (what it points to, to the NUL), ``inline`` (bytes in the node).
    :param size: bytes of an inline key, or of what a pointer leads to with ``compare`` "bytes".
    :param length: where in the node that number of bytes stands, where each entry has its own; ``size`` is 0 then.
    """

    at: Scalar
    compare: str = "pointer"
    size: int = 0
    length: Optional[Scalar] = None


class Node(NamedTuple):
    """One entry of a chain.

    :param hash: where the stored hash is, or None.
    :param element: bytes from the element's start to the node (``container_of`` subtracts it); negative where the
        element stands in the node.
    :param type: name of the element's type, for printing; None when unknown.
    """

    links: Links
    hash: Optional[Scalar] = None
    key: Optional[Key] = None
    element: int = 0
    type: Optional[str] = None


BinOf = Callable[[U64], U64]  # stored hashes -> indices of their bins, vectorised


class ListHead(NamedTuple):
    """One list.

    :param first: what the head's link leads to, as ``kernels.decode_links`` returns it: 0 when the list is empty.
    :param stop: a node address that ends it besides null (the head itself of a circular list), or None.
    :param last: what the head holds as last node, or (``last_is_link``) as address of the last link; None: nothing.
    :param entries: its own count, or None.
    """

    address: int
    first: int
    node: Node
    stop: Optional[int] = None
    last: Optional[int] = None
    last_is_link: bool = False
    entries: Optional[int] = None
    shape: str = ""


@dataclass(frozen=True)
class BinArray:
    """The bins of a table, or one of its two arrays while it is rehashed.

    :param address: of the first bin; of the directory of segments with ``segment``.
    :param stride: bytes from bin to bin.
    :param head: bytes from a bin's start to its head link.
    :param segment: bins a segment, where ``address`` is an array of pointers to segments (dynahash); else 0.
    :param length: each bin's own count, or None.
    :param bin_of: stored hashes -> bins of this array, counted from its own first one.
    :param stop: bytes from a bin's start to the node that ends a circular chain; None: the head link is that of a node.
    """

    address: int
    count: int
    stride: int
    head: int = 0
    segment: int = 0
    length: Optional[Scalar] = None
    bin_of: Optional[BinOf] = None
    stop: Optional[int] = None


class Table(NamedTuple):
    """A chained hash table.

    :param address: of the object.
    :param end: how chains end: ``null``; ``head`` (circular, closed by the bin itself); ``count`` (each bin's
        own count); ``next-bin`` (all nodes are one list, from ``list_first`` on; a bin points to the node
        *before* its first: libstdc++).
    :param arrays: one, or two while it is rehashed; bins are numbered through.
    :param entries: the table's own count, or None.
    :param slab_of: stored hashes -> the index of the slab that each belongs to, for tables of a group.
    :param lru: a list through all entries that must have as many, or None.
    :param lock: address of its lock, or None.
    :param bin_lock: bytes from a bin's start to its lock, or None.
    """

    address: int
    node: Node
    arrays: Sequence[BinArray]
    end: str = "null"
    list_first: int = 0
    entries: Optional[int] = None
    rehashing: bool = False
    lru: Optional[ListHead] = None
    lock: Optional[int] = None
    bin_lock: Optional[int] = None
    shape: str = ""

    @property
    def bins(self) -> int:
        """Bins of all arrays."""
        return sum(array.count for array in self.arrays)


class SlotField(NamedTuple):
    """One array that runs beside the slots of an open-addressing table.

    :param address: of the array.
    :param stride: bytes from item to item.
    :param at: the number in an item.
    :param per: slots that share an item (khash packs 16 flags in a word).
    """

    address: int
    stride: int
    at: Scalar
    per: int = 1


SlotColumns = Mapping[str, U64]
SlotRule = Callable[[SlotColumns], U64]  # columns by field name, and "index" -> one number a slot


class ProbeTable(NamedTuple):
    """An open-addressing table.

    :param slots: how many.
    :param occupied: nonzero where a slot holds an entry.
    :param home: the slot where a lookup of each entry starts, or None where nothing tells.
    :param step: how a lookup goes on: ``linear``, ``triangular`` (1, 2, 3 … further).
    :param distance: the probe distance where the table stores it, or None: from ``home``.
    :param hash: name of the field that is the stored hash, or None.
    """

    address: int
    slots: int
    fields: Mapping[str, SlotField]
    occupied: SlotRule
    home: Optional[SlotRule] = None
    step: str = "linear"
    distance: Optional[SlotRule] = None
    hash: Optional[str] = None
    key: Optional[str] = None
    entries: Optional[int] = None
    element_type: Optional[str] = None
    shape: str = ""


class TreeRoot(NamedTuple):
    """A binary tree, walked in order.

    :param root: address of its root node; 0 when it is empty.
    :param left: bytes from a node's start to its left link; ``right``, ``parent`` likewise.
    :param header: what the root's parent link holds (libstdc++'s header node), or None.
    :param sentinel: a link that holds it leads nowhere, like one that is null.
    :param mask: bits cleared in each link before it is an address (a colour in the parent link).
    :param leftmost: what the object itself holds as its first node, or None; ``rightmost`` likewise its last.
    :param alignment: of node addresses, bytes; 1 checks nothing.
    """

    address: int
    root: int
    left: int
    right: int
    parent: Optional[int] = None
    header: Optional[int] = None
    sentinel: int = 0
    mask: int = 0
    entries: Optional[int] = None
    element: int = 0
    element_type: Optional[str] = None
    shape: str = ""
    leftmost: Optional[int] = None
    rightmost: Optional[int] = None
    alignment: int = 1


Walkable = Union[ListHead, Table, ProbeTable, TreeRoot]


class Group(NamedTuple):
    """Tables that share the work by the hash's bits (Unbound's slabs).

    :param tables: each at its index; one that could not be opened is a :class:`Table` without arrays.
    :param slab_of: stored hashes -> index of the table that each belongs to, or None.
    :param problems: why tables could not be opened.
    """

    address: int
    tables: Sequence[Walkable]
    slab_of: Optional[BinOf] = None
    shape: str = ""
    problems: tuple[Problem, ...] = ()


class ChainEnd(NamedTuple):
    """Where and why one chain ended.

    :param link: how many nodes it had before; the number of the link that was bad, from 1.
    :param address: what the last link held, decoded (a bad pointer, the cycle's first node); None for null.
    :param cycle: nodes in the cycle; None otherwise.
    """

    reason: End
    link: int
    address: Optional[int] = None
    cycle: Optional[int] = None


@dataclass(frozen=True)
class ListWalk:
    """What a walk along one list found.

    :param nodes: their addresses, in order; each once, also in a cycle.
    """

    nodes: U64
    end: ChainEnd


@dataclass(frozen=True)
class BinsWalk:
    """What a walk through all bins of a table found.

    :param lengths: nodes of each bin; open addressing: of each slot, the entries whose look-up starts there.
    :param reasons: an :class:`End` for each bin.
    :param nodes: the addresses of all nodes, bin by bin.
    :param owners: the bin of each node.
    :param ends: the detail of each end that is not sound, by bin; at most 1000.
    :param complete: False when it was interrupted, met absent memory, or was given up.
    :param given_up: why bins were left with LIMIT though nobody asked for a limit, as a sentence; or None.
    """

    lengths: U64
    reasons: U8
    nodes: U64
    owners: U64
    ends: Mapping[int, ChainEnd] = field(default_factory=dict)
    complete: bool = True
    given_up: Optional[str] = None


class ChainsWalk(BinsWalk):
    """A walk along chains, whose nodes come bin by bin: owners given as None are worked out when they are asked for.

    A sum over millions of bins needs none.
    """

    @property
    def owners(self) -> U64:
        """As in :class:`BinsWalk`."""
        known: Optional[U64] = self.__dict__["owners"]
        if known is None:
            known = np.repeat(np.arange(len(self.lengths), dtype=np.uint64), self.lengths.astype(np.intp))
            self.__dict__["owners"] = known
        return known

    @owners.setter
    def owners(self, given: Optional[U64]) -> None:
        self.__dict__["owners"] = given

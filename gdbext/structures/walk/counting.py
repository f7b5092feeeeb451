"""Counts one chain with plain reads: quick for short chains, bounded in nodes and time for all others.

Conditions of breakpoints call it at each hit, so it needs no table of mappings and no numpy. Memory is read by
pages, since neighbours in a chain are often neighbours in memory too; where a page cannot be read whole,
the link alone is.
"""

from __future__ import annotations

import struct
import time
from typing import Callable, NamedTuple, Optional

from gdbext.errors import FaultError
from gdbext.memory import Buffer

NODE_LIMIT = 1_000_000  # where nobody says otherwise

_PAGE = 1 << 12  # mappings of every supported machine are multiples of this
_KEPT = 1 << 12  # pages, 16 MiB
_ROUND = 1 << 10  # nodes between looks at the clock


class Chain(NamedTuple):
    """A chain as :func:`count_nodes` takes it.

    :param first: address of the first node; 0 when the chain is empty.
    :param link: bytes from a node's start to the link.
    :param stop: a node address that ends it besides null, or None.
    :param word: struct format of a link, with byte order.
    """

    first: int
    link: int
    word: str
    stop: Optional[int] = None


class Count(NamedTuple):
    """How many nodes a chain has.

    :param nodes: how many were met; at the node limit and in a cycle, the limit.
    :param why: one line when that is not the whole truth, or None.
    :param broken: it ended at memory that cannot be read.
    """

    nodes: int
    why: Optional[str] = None
    broken: bool = False


class Pages:
    """Reads of single words by way of whole pages, which are kept.

    :param read: returns ``size`` bytes from an address or raises ``FaultError``.
    :param word: struct format of a word, with byte order.
    """

    def __init__(self, read: Callable[[int, int], Buffer], word: str) -> None:
        self._read = read
        self._word = struct.Struct(word)
        self._last = _PAGE - self._word.size
        self._pages: dict[int, Optional[Buffer]] = {}

    def word(self, address: int) -> int:
        """Return the word at an address.

        :raises FaultError: when it cannot be read.
        """
        start = address & ~(_PAGE - 1)
        page = self._pages.get(start) or self._fetch(start)
        if page is None or address - start > self._last:
            return int(self._word.unpack(self._read(address, self._word.size))[0])
        return int(self._word.unpack_from(page, address - start)[0])

    def _fetch(self, start: int) -> Optional[Buffer]:
        if start in self._pages:
            return None
        if len(self._pages) >= _KEPT:
            self._pages.clear()
        try:
            page: Optional[Buffer] = self._read(start, _PAGE)
        except FaultError:
            page = None
        self._pages[start] = page
        return page


def count_nodes(
    read: Callable[[int, int], Buffer],
    chain: Chain,
    most: int = NODE_LIMIT,
    seconds: float = 0.0,
) -> Count:
    """Return how many nodes a chain has, by Brent's algorithm; it never raises for what memory holds.

    :param read: returns ``size`` bytes from an address or raises ``FaultError``.
    :param most: nodes after which it ends.
    :param seconds: after which it ends with what it has; 0 is never.
    """
    pages = Pages(read, chain.word)
    deadline = time.monotonic() + seconds if seconds else None
    node, nodes = chain.first, 0
    mark, marked, distance = node, 0, 1  # Brent: the mark jumps to the walker after 1, 2, 4 … nodes
    while node and node != chain.stop:
        if nodes >= most:
            return Count(most, f"stopped at the limit of {most} nodes")
        if deadline is not None and nodes % _ROUND == 0 and nodes and time.monotonic() >= deadline:
            return Count(nodes, f"stopped after {seconds:g} s and {nodes} nodes")
        try:
            following = pages.word(node + chain.link)
        except FaultError:
            return Count(nodes, f"bad pointer {node:#x} after {nodes} nodes", broken=True)
        nodes += 1
        if following == mark:
            return Count(most, f"a cycle of {nodes - marked} nodes through {mark:#x}")
        if nodes - marked == distance:
            mark, marked, distance = following, nodes, 2 * distance
        node = following
    return Count(nodes)

"""Walks along many chains at once: the definition that a native version must equal.

A chain is a singly linked list: from its first node on, a word at a fixed offset of each node leads to
the next. All chains of a table are walked side by side, one numpy step a link, which is fast because sound
chains are short; what is still going after some steps is walked alone, with Brent's algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
Span = Tuple[int, object]  # first address, buffer

# Why a chain ended; ``gdbext.structures.model.End`` has the same numbers. OUTSIDE: at an address in no span.
NULL, HEAD, SENTINEL, COUNT, LIMIT, CYCLE, OUTSIDE, MISALIGNED, FORBIDDEN = range(9)


@dataclass(frozen=True)
class LinkRules:
    """How a link becomes an address; see ``gdbext.structures.model.Links`` for each.

    :param word: bytes in a word.
    :param byteorder: ``little`` or ``big``.
    """

    next: int
    word: int
    byteorder: str = "little"
    mask: int = 0
    mangled: bool = False
    relative: int = 0
    end_bits: int = 0
    leaf_bits: int = 0
    sentinels: Tuple[int, ...] = ()
    forbidden: Tuple[int, ...] = ()
    alignment: int = 1


@dataclass(frozen=True)
class Chains:
    """What :func:`walk_chains` found.

    :param lengths: nodes of each chain; those of a cycle once.
    :param ends: why each ended.
    :param last: the address at which each ended (the one in no span, the cycle's first node, the forbidden value).
    :param nodes: addresses of all nodes, chain by chain, in order.
    """

    lengths: U64
    ends: U8
    last: U64
    nodes: U64


def walk_chains(
    spans: Sequence[Span], firsts: U64, stops: Optional[U64], rules: LinkRules, most: int
) -> Chains:
    """Walk each chain to its end.

    :param spans: the memory, sorted, disjoint.
    :param firsts: the first node of each chain, decoded; 0 for an empty one.
    :param stops: a node address that ends each chain (its head), or None.
    :param most: nodes of one chain after which it ends with LIMIT.
    """
    raise NotImplementedError

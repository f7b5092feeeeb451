"""What the chains of a whole table come to, without a column of nodes: the definition that a native version must equal.

Sums, and the longest chain. Only sound chains have sums; of others
:mod:`gdbext.kernels.chains` tells what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.kernels.chains import (
    HEAD,
    NULL,
    SENTINEL,
    U64,
    LinkRules,
    Span,
    decode_links,
    walk_chains,
)

MOST_TALLIED = 1 << 31  # nodes of one call
SAMPLED = 64  # of so many nodes one is kept
SOUND = (NULL, HEAD, SENTINEL)

_SPREADING = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: the highest bits of a product depend on all


@dataclass(frozen=True)
class Tally:
    """What :func:`tally_chains` found.

    :param nodes: of all chains.
    :param nonempty: chains that have any.
    :param longest: nodes of the longest chain.
    :param at: the first chain that is so long; None where all are empty.
    :param ends: chains that ended for each reason of :data:`SOUND`.
    :param sample: the addresses of one in :data:`SAMPLED` nodes, in no order. Whether a node is among them depends on
        its address alone.
    """

    nodes: int
    nonempty: int
    longest: int
    at: Optional[int]
    ends: Tuple[int, int, int]
    sample: U64


def sampled(nodes: U64) -> U64:
    """Return those of some nodes that are kept as a sample: one in :data:`SAMPLED`, whatever the others are."""
    products = nodes * np.uint64(_SPREADING)
    chosen: U64 = nodes[products >> np.uint64(64 - SAMPLED.bit_length() + 1) == 0]
    return chosen


def tally_chains(
    spans: Sequence[Span],
    heads: "npt.NDArray[np.unsignedinteger]",
    stops: Optional[Tuple[int, int]],
    rules: LinkRules,
    total: int = MOST_TALLIED,
) -> Optional[Tally]:
    """Walk each chain to its end and return the sums.

    :param spans: the memory, sorted, disjoint.
    :param heads: what the heads hold, as it is stored: words in any byte order, at any distance.
    :param stops: the node address that ends the first chain, and how much further on that of each next one is; or None.
    :param total: nodes of all chains, :data:`MOST_TALLIED` at most.
    :return: None where a chain ends for another reason than those of :data:`SOUND`, or there are more nodes.
    """
    firsts = decode_links(heads.astype(np.uint64), None, rules)
    ends: Optional[U64] = None
    if stops is not None:
        first, step = (np.uint64(number % (1 << 64)) for number in stops)
        ends = first + step * np.arange(len(firsts), dtype=np.uint64)
    most = min(total, MOST_TALLIED)
    chains = walk_chains(spans, firsts, ends, rules, most, most)
    reasons = np.bincount(chains.ends, minlength=len(SOUND)).tolist()
    if any(reasons[len(SOUND) :]):
        return None
    longest = int(chains.lengths.max()) if len(firsts) else 0
    return Tally(
        len(chains.nodes),
        int(np.count_nonzero(chains.lengths)),
        longest,
        int(chains.lengths.argmax()) if longest else None,
        (reasons[NULL], reasons[HEAD], reasons[SENTINEL]),
        sampled(chains.nodes),
    )

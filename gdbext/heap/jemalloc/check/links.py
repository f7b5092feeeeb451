"""Pairing heaps and rings of extents, checked without being walked: every link at once.

A pairing heap (``ph.h``) holds each of its members by one link, the root's pointer, or a member's ``next`` or
``lchild``; a ring (``qr.h``) by one ``qre_next``. So links are counted; what hangs together is found by doubling
steps, however deep or long it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterator, Sequence

import numpy as np

from gdbext.heap.jemalloc.model import I64, U64, Mask

ROOT = -1


@dataclass(frozen=True, eq=False)
class Members:
    """Those that should be linked.

    :param places: their addresses.
    :param groups: which heap or ring each belongs to.
    """

    places: U64
    groups: I64

    def find(self, addresses: U64) -> I64:
        """Return the position of each address, -1 for none."""
        if not len(self.places):
            return np.full(len(addresses), -1, np.int64)
        order = np.argsort(self.places, kind="stable")
        at = np.minimum(np.searchsorted(self.places[order], addresses), len(order) - 1)
        found = order[at]
        return np.where(self.places[found] == addresses, found, -1)


@dataclass(frozen=True)
class Stray:
    """A link to what is no member of the same group.

    :param source: address of the member that holds it; 0 for the head.
    """

    group: int
    source: int
    value: int


@dataclass
class Verdict:
    """What does not hold.

    :param strays: links that lead elsewhere.
    :param shared: group and address of members that more than one link leads to.
    :param missing: of members that nothing leads to from the head.
    :param backwards: of members whose link back does not lead to where they are held.
    :param heads: of heaps, for each member the position of the head that it hangs from; :data:`ROOT` where it hangs
        from none, or below what two links lead to.
    """

    strays: list[Stray] = field(default_factory=list)
    shared: list[tuple[int, int]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    backwards: list[tuple[int, int]] = field(default_factory=list)
    heads: I64 = field(default_factory=lambda: np.empty(0, np.int64))


def check_heaps(members: Members, links: Sequence[U64], back: U64, heads: U64, groups: I64) -> Verdict:
    """Check pairing heaps.

    :param links: of each member, ``next`` and ``lchild``.
    :param back: of each member, ``prev``.
    :param heads: the roots, 0 for none, and their ``groups``.
    """
    count = len(members.places)
    own = np.arange(count, dtype=np.int64)
    tops = count + np.arange(len(heads), dtype=np.int64)
    sources = np.concatenate([own] * len(links) + [tops])
    owners = np.concatenate([members.groups] * len(links) + [groups])
    values = np.concatenate([*links, heads])
    used = values != 0
    sources, owners, values = sources[used], owners[used], values[used]
    inner = sources < count
    found = members.find(values)
    right = (found >= 0) & (members.groups[found] == owners) if count else found >= 0
    verdict = Verdict(strays=list(_strays(members, np.where(inner, sources, ROOT), owners, values, ~right)))
    held = np.bincount(found[right], minlength=count)
    verdict.shared = _pairs(members, held > 1)
    reached = _climb(_parents(held, len(heads), found[right], sources[right]))[:count]
    verdict.missing = _pairs(members, (held == 0) | (reached < count))
    verdict.heads = np.where((reached >= count) & (reached < count + len(heads)), reached - count, ROOT)
    inner &= right
    wrong = np.zeros(count, np.bool_)
    wrong[found[inner]] = back[found[inner]] != members.places[sources[inner]]
    verdict.backwards = _pairs(members, wrong & (held == 1))
    return verdict


def _parents(held: I64, heads: int, found: I64, sources: I64) -> I64:
    """Return what each member hangs from: a member, or one of the heads, which come behind them.

    The last place is for members that no link leads to, or several: which is the right one is not known.
    """
    count = len(held)
    parents = np.arange(count + heads + 1, dtype=np.int64)
    parents[found] = sources
    parents[:count][held != 1] = count + heads
    return parents


def _climb(parents: I64) -> I64:
    """Return for each place where the way up from it ends, or for one on a circle, another on it."""
    for _ in range(len(parents).bit_length()):
        parents = parents[parents]
    return parents


def check_rings(members: Members, following: U64, back: U64, heads: U64, groups: I64) -> Verdict:
    """Check rings.

    :param following: ``qre_next`` of each member.
    :param back: ``qre_prev`` of each member.
    :param heads: the first of each ring, 0 for none, and their ``groups``.
    """
    count = len(members.places)
    own = np.arange(count, dtype=np.int64)
    found = members.find(following)
    right = (found >= 0) & (members.groups[found] == members.groups) if count else found >= 0
    first = members.find(heads)
    led = (first >= 0) & (members.groups[first] == groups) if count else first >= 0
    strays = [*_strays(members, np.full(len(heads), ROOT), groups, heads, ~led & (heads != 0))]
    begun = np.isin(members.groups, groups[heads != 0])  # what is on no list has any links
    verdict = Verdict([*strays, *_strays(members, own, members.groups, following, ~right & begun)])
    held = np.bincount(found[right], minlength=count)
    verdict.shared = _pairs(members, held > 1)
    wrong = np.zeros(count, np.bool_)
    wrong[found[right]] = back[found[right]] != members.places[own[right]]
    verdict.backwards = _pairs(members, wrong & (held == 1) & begun)
    ring = _lowest(np.where(right, found, own))
    known = {int(group): int(ring[at]) for group, at in zip(groups[led].tolist(), first[led].tolist())}
    wanted = np.array([known.get(group, -1) for group in members.groups.tolist()], np.int64)
    broken = [stray.group for stray in verdict.strays]
    forked = np.isin(members.groups, [group for group, _ in verdict.shared])
    apart = np.where(forked, held == 0, ring != wanted)
    verdict.missing = _pairs(members, apart & ~np.isin(members.groups, broken))
    return verdict


def _lowest(following: I64) -> I64:
    """Return for each place the lowest that is on the way from it."""
    lowest = np.arange(len(following), dtype=np.int64)
    for _ in range(len(following).bit_length()):
        lowest = np.minimum(lowest, lowest[following])
        following = following[following]
    return lowest


def _strays(members: Members, sources: I64, owners: I64, values: U64, wrong: Mask) -> Iterator[Stray]:
    for at in np.flatnonzero(wrong).tolist():
        source = int(sources[at])
        yield Stray(int(owners[at]), 0 if source < 0 else int(members.places[source]), int(values[at]))


def _pairs(members: Members, picked: Mask) -> list[tuple[int, int]]:
    return list(zip(members.groups[picked].tolist(), members.places[picked].tolist()))

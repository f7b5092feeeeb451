"""Walks along many chains at once: the definition that a native version must equal.

A chain is a singly linked list: from its first node on, a word at a fixed offset of each node leads to
the next. All chains of a table are walked side by side, one numpy step a link, which is fast because sound
chains are short; the few that are longer than the rest are walked one by one. Both ways stop in a cycle by
Brent's algorithm (R. P. Brent, "An improved Monte Carlo factorization algorithm", BIT 20, 1980); where the
cycle begins and how long it is, is then read off the nodes.
"""

from __future__ import annotations

import bisect
import struct
from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Span = Tuple[int, object]  # first address, buffer

# Why a chain ended; ``gdbext.structures.walk.model.End`` has the same numbers. OUTSIDE: at an address in no span.
NULL, HEAD, SENTINEL, COUNT, LIMIT, CYCLE, OUTSIDE, MISALIGNED, FORBIDDEN = range(9)

MOST_NODES = 1 << 62
FEW = 16  # numbers for which it is not worth to see all spans
_MANY_SPANS = 8  # from here on it is asked whether one buffer holds them all
_FEW = 96  # chains: so many are walked as fast one by one as side by side
_UNSUSPECTED = 16  # links of a chain before it is watched for a cycle, where many go side by side


class LinkRules(NamedTuple):
    """How a link becomes an address; see ``gdbext.structures.walk.model.Links`` for each.

    A stored link is demangled first; then it may be a forbidden value, an end by its bits, a sentinel. If
    it is none of these, ``mask`` is cleared; what is not 0 then gets ``relative`` added. ``sentinels`` and
    ``forbidden`` are compared with the resulting address too, so that a sentinel may be a node.

    :param word: bytes in a word.
    :param byteorder: ``little`` or ``big``.
    :param alignment: of nodes, bytes; a power of two.
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
    :param last: what comes after the last node: the address in no span, the cycle's first node, the forbidden
        value; with LIMIT the node at which the walk would go on; 0 for null.
    :param nodes: addresses of all nodes, chain by chain, in order.
    :param cycles: nodes in the cycle of each chain that ended with CYCLE; 0 for others.
    """

    lengths: U64
    ends: U8
    last: U64
    nodes: U64
    cycles: U64


def walk_chains(
    spans: Sequence[Span],
    firsts: U64,
    stops: Optional[U64],
    rules: LinkRules,
    most: Union[int, U64],
    total: int = MOST_NODES,
) -> Chains:
    """Walk each chain to its end.

    A node counts when its link lies in the spans (it may cross from one into the next), a leaf when its first
    byte does. Chains that run into each other are each walked to the end.

    :param spans: the memory, sorted, disjoint.
    :param firsts: the first node of each chain, as :func:`decode_links` returns it; 0 for an empty one.
    :param stops: a node address that ends each chain (its head), or None.
    :param most: nodes of one chain after which it ends with LIMIT; one number, or one a chain.
    :param total: nodes of all chains after which those that are still going end with LIMIT. How many each has
        by then is not defined.
    """
    return _Walk(Spans(spans, rules.byteorder), firsts, stops, rules, most, total).run()


def walk_chain(
    read: Callable[[int, int], Optional[bytes]], first: int, stop: Optional[int], rules: LinkRules, most: int
) -> Tuple["array[int]", int, int]:
    """Walk one chain through memory that is read number by number; as :func:`walk_chains`.

    The nodes of a cycle may be there several times: see :func:`close_cycles`.

    :param read: returns that many bytes at an address, or None.
    :return: its nodes, why it ended, what comes after the last.
    """
    return _Alone(_Read(read), rules).walk(first, stop, most)


def decode_links(links: U64, places: Optional[U64], rules: LinkRules) -> U64:
    """Return what stored links lead to: node addresses, 0 for null.

    Forbidden values, sentinels and values with end bits are returned as they are, and leaf bits kept: the
    walk tells what they mean.

    :param places: the address of each link, for mangled ones; None where they are plain (heads).
    """
    if rules.mangled and places is not None:
        links = links ^ (places >> np.uint64(12))
    tags = rules.mask | rules.leaf_bits
    if not (tags or rules.relative):
        return links
    word = _word_mask(rules)
    addresses = (links & np.uint64(word & ~_cleared(rules))) + np.uint64(rules.relative & _ALL)
    decoded = np.where(links & np.uint64(word & ~tags), addresses & np.uint64(word), np.uint64(0))
    kept = (links & np.uint64(rules.end_bits)) != 0
    for value in (*_words(rules.sentinels, rules), *_words(rules.forbidden, rules)):
        kept |= links == np.uint64(value)
    return np.where(kept, links, decoded)


def gather_scalars(
    spans: Sequence[Span], addresses: U64, size: int, byteorder: str, signed: bool = False
) -> Tuple[U64, Mask]:
    """Return the number at each address, and whether the spans hold it.

    :param addresses: in any order, at any alignment.
    :param size: bytes of a number: 1 to 8.
    :param signed: negative numbers come back in two's complement of 64 bits.
    """
    return Spans(spans, byteorder).gather(addresses, size, signed)


_ALL = (1 << 64) - 1


def _word_mask(rules: LinkRules) -> int:
    return (1 << (8 * rules.word)) - 1


def _words(values: Sequence[int], rules: LinkRules) -> Tuple[int, ...]:
    return tuple(value & _word_mask(rules) for value in values)


def _cleared(rules: LinkRules) -> int:
    # what is cleared at once: a leaf is known by its bits until it is counted
    return rules.mask & ~rules.leaf_bits


class Spans:
    """Numbers out of several buffers.

    :param spans: sorted, disjoint.
    """

    def __init__(self, spans: Sequence[Span], byteorder: str) -> None:
        self._order = "<" if byteorder == "little" else ">"
        self._byteorder = byteorder
        self._spans = spans
        self._met: Dict[int, memoryview] = {}
        self._bases = [start for start, _ in spans]
        self._starts = np.array(self._bases, np.uint64)
        self._views: Dict[Tuple[int, str], npt.NDArray[np.generic]] = {}

    def _buffer(self, at: int) -> memoryview:
        if at not in self._met:  # of tens of thousands most are never asked for
            self._met[at] = _bytes_of(self._spans[at][1])
        return self._met[at]

    @cached_property
    def _buffers(self) -> Sequence[memoryview]:
        return [_bytes_of(buffer) for _, buffer in self._spans]

    @cached_property
    def _lengths(self) -> U64:
        return np.array([len(buffer) for buffer in self._buffers], np.uint64)

    @cached_property
    def _wholes(self) -> "Sequence[Tuple[memoryview, Mask, U64]]":
        """The few buffers that all are parts of, as those of a core are: which are, and where in it; else none."""
        owners = {id(buffer.obj): memoryview(buffer.obj) for buffer in self._buffers}
        many = len(self._buffers) >= _MANY_SPANS * len(owners)
        if not owners or not many or not all(owner.c_contiguous for owner in owners.values()):
            return ()
        owner = np.array([id(buffer.obj) for buffer in self._buffers], np.uint64)
        places = np.array([_place_of(buffer) for buffer in self._buffers], np.uint64)
        wholes = ((key, whole.cast("B")) for key, whole in owners.items())
        return [(whole, owner == np.uint64(key), places - np.uint64(_place_of(whole))) for key, whole in wholes]

    def gather(self, addresses: U64, size: int, signed: bool = False) -> Tuple[U64, Mask]:
        """As :func:`gather_scalars`."""
        if size not in (1, 2, 4, 8):
            return self._gather_odd(addresses, size, signed)
        if len(addresses) >= FEW and self._wholes:
            return self._gather_from_wholes(addresses, (size, signed))
        values, known = np.zeros(len(addresses), np.uint64), np.zeros(len(addresses), np.bool_)
        for at, rows in self._by_span(addresses):
            self._gather_in(at, addresses, rows, (size, signed), values, known)
        return values, known

    def read(self, address: int, size: int) -> Optional[bytes]:
        """Return bytes that may lie in several spans, or None."""
        at, parts = bisect.bisect_right(self._bases, address) - 1, b""
        while 0 <= at < len(self._bases) and len(parts) < size:
            offset = address + len(parts) - self._bases[at]
            part = bytes(self._buffer(at)[offset : offset + size - len(parts)]) if offset >= 0 else b""
            if not part:
                return None
            parts += part
            at += 1
        return parts if len(parts) == size else None

    def find(self, address: int) -> Tuple[int, memoryview]:
        """Return the start and the bytes of the last span that begins at or below ``address``, or no bytes."""
        at = bisect.bisect_right(self._bases, address) - 1
        return (self._bases[at], self._buffer(at)) if at >= 0 else (address, memoryview(b""))

    def _by_span(self, addresses: U64) -> Iterator[Tuple[int, Union[Rows, slice]]]:
        if not len(addresses) or not self._bases:
            return
        if len(self._bases) == 1:
            yield 0, slice(None)
            return
        spans = np.searchsorted(self._starts, addresses, side="right") - 1
        least, most = int(spans.min()), int(spans.max())
        if least == most:
            yield from [(least, slice(None))] if least >= 0 else []
            return
        narrow = spans.astype(np.int16) if len(self._bases) < 1 << 15 else spans  # sorted by radix
        order = np.argsort(narrow, kind="stable")
        bounds = np.flatnonzero(np.diff(narrow[order])) + 1
        for rows in np.split(order, bounds):
            if spans[rows[0]] >= 0:
                yield int(spans[rows[0]]), rows

    def _gather_in(
        self,
        at: int,
        addresses: U64,
        rows: Union[Rows, slice],
        number: Tuple[int, bool],
        values: U64,
        known: Mask,
    ) -> None:
        offsets = addresses[rows] - self._starts[at]
        size, held = number[0], len(self._buffer(at))
        inside = offsets < np.uint64(max(held - size + 1, 0))
        found = np.zeros(len(offsets), np.uint64)
        if inside.all():
            found = self._take(at, offsets, number)
        elif inside.any():
            found[inside] = self._take(at, offsets[inside], number)
        if size > 1 and len(self._bases) > 1:
            self._gather_crossing(
                addresses[rows], ~inside & (offsets < np.uint64(held)), number, found, inside
            )
        values[rows], known[rows] = found, inside

    def _gather_from_wholes(self, addresses: U64, number: Tuple[int, bool]) -> Tuple[U64, Mask]:
        size = np.uint64(number[0])
        at = np.searchsorted(self._starts, addresses, side="right") - 1
        offsets = addresses - self._starts[np.maximum(at, 0)]
        begins = (at >= 0) & (offsets < self._lengths[at])
        known: Mask = begins & (self._lengths[at] - offsets >= size)
        values = np.zeros(len(addresses), np.uint64)
        for nth, (whole, parts, places) in enumerate(self._wholes):
            rows = np.flatnonzero(known & parts[at])
            values[rows] = _taken(self._view_of(-1 - nth, whole, number), places[at[rows]] + offsets[rows], number)
        self._gather_crossing(addresses, begins & ~known, number, values, known)
        return values, known

    def _take(self, at: int, offsets: U64, number: Tuple[int, bool]) -> U64:
        return _taken(self._view_of(at, self._buffer(at), number), offsets, number)

    def _view_of(self, at: int, buffer: memoryview, number: Tuple[int, bool]) -> "npt.NDArray[np.generic]":
        # steps of one byte: an unaligned number is an item too
        dtype = f"{self._order}{'i' if number[1] else 'u'}{number[0]}"
        view = self._views.get((at, dtype))
        if view is None:
            view = np.ndarray((max(len(buffer) - number[0] + 1, 0),), dtype, buffer=buffer, strides=(1,))
            self._views[at, dtype] = view
        return view

    def _gather_crossing(
        self, addresses: U64, crossing: Mask, number: Tuple[int, bool], values: U64, known: Mask
    ) -> None:
        for address in sorted(set(addresses[crossing].tolist())):
            data = self.read(address, number[0])
            if data is not None:
                rows = addresses == np.uint64(address)
                values[rows] = int.from_bytes(data, self._byteorder, signed=number[1]) & _ALL  # type: ignore[arg-type]
                known[rows] = True

    def _gather_odd(self, addresses: U64, size: int, signed: bool) -> Tuple[U64, Mask]:
        values, known = np.zeros(len(addresses), np.uint64), np.ones(len(addresses), np.bool_)
        places = range(size) if self._order == ">" else reversed(range(size))
        for place in places:  # the most significant byte first
            byte, held = self.gather(addresses + np.uint64(place), 1)
            values, known = values << np.uint64(8) | byte, known & held
        if signed:
            sign = np.uint64(1 << (8 * size - 1))
            values = (values ^ sign) - sign
        return np.where(known, values, np.uint64(0)), known


def _bytes_of(buffer: object) -> memoryview:
    held = memoryview(buffer)  # type: ignore[arg-type]
    return held if held.format == "B" and held.ndim == 1 else held.cast("B")


def _place_of(buffer: memoryview) -> int:
    """Return where in this process's memory a buffer begins."""
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]) if len(buffer) else 0


def _taken(view: "npt.NDArray[np.generic]", offsets: U64, number: Tuple[int, bool]) -> U64:
    taken = view[offsets.astype(np.intp)]
    return taken.astype(np.int64 if number[1] else np.uint64, copy=False).view(np.uint64)


class _Read:
    """What :class:`Spans` offers for one chain, over a function that reads."""

    def __init__(self, read: Callable[[int, int], Optional[bytes]]) -> None:
        self.read = read

    def find(self, address: int) -> Tuple[int, memoryview]:
        return address, memoryview(b"")


class _Walk:
    """One call of :func:`walk_chains`."""

    def __init__(
        self,
        spans: Spans,
        firsts: U64,
        stops: Optional[U64],
        rules: LinkRules,
        most: Union[int, U64],
        total: int,
    ) -> None:
        self._spans, self._firsts, self._stops, self._rules = spans, firsts, stops, rules
        self._most = most
        self._left = total
        self._lengths = np.zeros(len(firsts), np.uint64)
        self._ends = np.zeros(len(firsts), np.uint8)
        self._last = np.zeros(len(firsts), np.uint64)
        self._round = 0
        self._rounds: List[Tuple[int, Rows, U64]] = []  # nodes before, which chains, their nodes
        self._tails: List[Tuple[int, int, U64]] = []  # nodes before, which chain, its nodes
        self._hares = np.zeros(0, np.uint64)
        self._alone = _Alone(spans, rules)

    def run(self) -> Chains:
        who = np.flatnonzero(self._firsts)
        nodes = self._firsts[who]
        while len(who) > _FEW:
            who, nodes = self._step(who, nodes)
        for chain, node in zip(who.tolist(), nodes.tolist()):
            self._finish(chain, node)
        return close_cycles(self._lengths, self._ends, self._last, self._in_order())

    def _step(self, who: Rows, nodes: U64) -> Tuple[Rows, U64]:
        rules = self._rules
        who, nodes = self._sift(who, nodes)
        places = nodes + np.uint64(rules.next & _ALL)
        links, known = self._spans.gather(places, rules.word)
        if not known.all():
            self._end(who[~known], OUTSIDE, nodes[~known])
            who, nodes, places, links = who[known], nodes[known], places[known], links[known]
        if len(who) > self._left:
            self._end(who, LIMIT, nodes)
            return who[:0], nodes[:0]
        self._note(who, nodes)
        self._round += 1
        return self._watch(who, decode_links(links, places, rules))

    def _note(self, who: Rows, nodes: U64) -> None:
        self._rounds.append((self._round, who, nodes))
        self._lengths[who] += np.uint64(1)
        self._left -= len(who)

    def _end(self, who: Rows, reason: int, at: U64) -> None:
        self._ends[who] = reason
        self._last[who] = at

    def _sift(self, who: Rows, nodes: U64) -> Tuple[Rows, U64]:
        """Take out the chains that end here, for the first reason that applies."""
        rules = self._rules
        who, nodes = self._sift_out(NULL, nodes == 0, who, nodes)
        for value in _words(rules.forbidden, rules):
            who, nodes = self._sift_out(FORBIDDEN, nodes == np.uint64(value), who, nodes)
        if rules.end_bits:
            who, nodes = self._sift_out(SENTINEL, (nodes & np.uint64(rules.end_bits)) != 0, who, nodes)
        if self._stops is not None:
            who, nodes = self._sift_out(HEAD, nodes == self._stops[who], who, nodes)
        for value in _words(rules.sentinels, rules):
            who, nodes = self._sift_out(SENTINEL, nodes == np.uint64(value), who, nodes)
        who, nodes = self._sift_out(LIMIT, self._full(who), who, nodes)
        if rules.leaf_bits:
            who, nodes = self._sift_leaves(who, nodes)
        if rules.alignment > 1:
            misaligned = (nodes & np.uint64(rules.alignment - 1)) != 0
            who, nodes = self._sift_out(MISALIGNED, misaligned, who, nodes)
        return who, nodes

    def _sift_out(self, reason: int, here: Mask, who: Rows, nodes: U64) -> Tuple[Rows, U64]:
        if not here.any():
            return who, nodes
        self._end(who[here], reason, nodes[here])
        return who[~here], nodes[~here]

    def _full(self, who: Rows) -> Mask:
        if isinstance(self._most, int):
            return np.full(len(who), self._round >= self._most)
        full: Mask = self._most[who] <= np.uint64(self._round)
        return full

    def _sift_leaves(self, who: Rows, nodes: U64) -> Tuple[Rows, U64]:
        leaf = (nodes & np.uint64(self._rules.leaf_bits)) != 0
        if not leaf.any():
            return who, nodes
        _, held = self._spans.gather(nodes, 1)
        who, nodes = self._sift_out(OUTSIDE, leaf & ~held, who, nodes)
        leaf = (nodes & np.uint64(self._rules.leaf_bits)) != 0
        if np.count_nonzero(leaf) > self._left:
            return self._sift_out(LIMIT, leaf, who, nodes)
        self._note(who[leaf], nodes[leaf] & np.uint64(_ALL & ~self._rules.mask))
        return self._sift_out(NULL, leaf, who, np.where(leaf, np.uint64(0), nodes))

    def _watch(self, who: Rows, nodes: U64) -> Tuple[Rows, U64]:
        """End chains that are in a cycle; ``nodes`` are those to come."""
        if self._round < _UNSUSPECTED:
            return who, nodes
        if not self._round & (self._round - 1):
            if not len(self._hares):
                self._hares = np.zeros(len(self._firsts), np.uint64)
            self._hares[who] = nodes
            return who, nodes
        return self._sift_out(CYCLE, nodes == self._hares[who], who, nodes)

    def _finish(self, chain: int, node: int) -> None:
        stop = None if self._stops is None else int(self._stops[chain])
        most = self._most if isinstance(self._most, int) else int(self._most[chain])
        room = max(min(most - self._round, self._left), 0)
        found, reason, last = self._alone.walk(node, stop, room)
        self._ends[chain], self._last[chain] = reason, last
        self._lengths[chain] += np.uint64(len(found))
        self._left -= len(found)
        self._tails.append((self._round, chain, np.array(found, np.uint64)))

    def _in_order(self) -> U64:
        ends = np.cumsum(self._lengths)
        begins = (ends - self._lengths).astype(np.intp)
        nodes = np.empty(int(ends[-1]) if len(ends) else 0, np.uint64)
        for before, who, part in self._rounds:
            nodes[begins[who] + before] = part
        for before, chain, part in self._tails:
            begin = int(begins[chain]) + before
            nodes[begin : begin + len(part)] = part
        return nodes


class _Alone:
    """Walks one chain, node by node."""

    def __init__(self, spans: Union[Spans, _Read], rules: LinkRules) -> None:
        self._spans, self._rules = spans, rules
        self._forbidden, self._sentinels = _words(rules.forbidden, rules), _words(rules.sentinels, rules)
        self._order = "<" if rules.byteorder == "little" else ">"
        self._word = struct.Struct(self._order + ("Q" if rules.word == 8 else "I"))
        self._plain = not (rules.mangled or rules.mask or rules.leaf_bits or rules.relative)

    def walk(self, node: int, stop: Optional[int], room: int) -> Tuple["array[int]", int, int]:
        """Return the nodes, at most ``room``, why it ended, and what comes after the last."""
        found, unpack, plain, decode = array("Q"), self._word.unpack_from, self._plain, self._decode
        append = found.append
        ends: Set[Optional[int]] = {0, stop, *self._sentinels, *self._forbidden}
        odd = (self._rules.alignment - 1) | self._rules.end_bits | self._rules.leaf_bits
        base, limit, buffer = 0, -1, memoryview(b"")  # of the span of late, so that a node is its own offset
        hare, turn = node, 1
        while True:
            for _ in range(min(turn, room) - len(found)):
                if node in ends or node & odd:
                    break
                at = node - base
                if not 0 <= at <= limit:
                    base, limit, buffer = self._span_of(node)
                    at = node - base
                    if not 0 <= at <= limit:
                        break
                append(node)
                node = unpack(buffer, at)[0] if plain else decode(unpack(buffer, at)[0], node)
                if node == hare:
                    return found, CYCLE, node
            else:
                if len(found) < room:
                    hare, turn = node, 2 * turn
                    continue
            reason = self._judge(node, stop, len(found) >= room)
            if reason == _LEAF:
                return self._count_leaf(found, node)
            link = self._read(node) if reason is None else None  # across spans, or across the address space
            if link is None:
                return found, OUTSIDE if reason is None else reason, node
            append(node)
            node = decode(link, node)
            if node == hare:
                return found, CYCLE, node

    def _judge(self, node: int, stop: Optional[int], full: bool) -> Optional[int]:
        """Return why the chain ends before ``node``, in the order of ``_Walk._sift``, or None."""
        rules = self._rules
        if not node:
            return NULL
        if node in self._forbidden:
            return FORBIDDEN
        if node & rules.end_bits:
            return SENTINEL
        if node == stop:
            return HEAD
        if node in self._sentinels:
            return SENTINEL
        if full:
            return LIMIT
        if node & rules.leaf_bits:
            return _LEAF
        return MISALIGNED if node & (rules.alignment - 1) else None

    def _count_leaf(self, found: "array[int]", node: int) -> Tuple["array[int]", int, int]:
        if self._spans.read(node, 1) is None:
            return found, OUTSIDE, node
        found.append(node & ~self._rules.mask)
        return found, NULL, 0

    def _read(self, node: int) -> Optional[int]:
        data = self._spans.read((node + self._rules.next) & _ALL, self._rules.word)
        return None if data is None else int(self._word.unpack(data)[0])

    def _span_of(self, node: int) -> Tuple[int, int, memoryview]:
        """Return the node whose link is the first word of the span of ``node``, how far others go, the bytes."""
        start, buffer = self._spans.find((node + self._rules.next) & _ALL)
        return start - self._rules.next, len(buffer) - self._rules.word, buffer

    def _decode(self, link: int, node: int) -> int:
        """:func:`decode_links` for the link of one node."""
        rules = self._rules
        if rules.mangled:
            link ^= ((node + rules.next) & _ALL) >> 12
        if link & rules.end_bits or link in self._sentinels or link in self._forbidden:
            return link
        if not link & ~(rules.mask | rules.leaf_bits):
            return 0
        return ((link & ~_cleared(rules)) + rules.relative) & _word_mask(rules)


_LEAF = -1


def close_cycles(lengths: U64, ends: U8, last: U64, nodes: U64) -> Chains:
    """Return the chains with each node once: those that run into their own nodes are cut there.

    :param last: what comes after the last node of each. Only chains that ended with CYCLE or LIMIT are looked
        at; with CYCLE it must be one of their nodes.
    """
    cycles = np.zeros(len(lengths), np.uint64)
    who = np.flatnonzero(((ends == CYCLE) | (ends == LIMIT)) & (lengths > 0))
    begins = (np.cumsum(lengths) - lengths).astype(np.intp)
    kept = np.ones(len(nodes), np.bool_)
    lengths, ends, last = lengths.copy(), ends.copy(), last.copy()
    for part in np.array_split(who, max(len(who) >> 16, 1)):
        _close(part, begins, (lengths, ends, last, cycles), nodes, kept)
    return Chains(lengths, ends, last, nodes if kept.all() else nodes[kept], cycles)


def _close(who: Rows, begins: Rows, columns: Tuple[U64, U8, U64, U64], nodes: U64, kept: Mask) -> None:
    """Cut those of some chains that hold the node that comes after their last."""
    lengths, ends, last, cycles = columns
    rows, chain = _rows_of(begins[who], lengths[who].astype(np.intp))
    again = np.flatnonzero(nodes[rows] == last[who][chain])
    if not len(again):
        return
    latest = np.full(len(who), -1, np.intp)
    latest[chain[again]] = rows[again]  # the last assignment to each chain holds
    who, latest = who[latest >= 0], latest[latest >= 0]
    begin, length = begins[who], lengths[who].astype(np.intp)
    period = begin + length - latest
    # the first node that comes again a period later; the node after the last does, at the latest
    rows, chain = _rows_of(begin, length)
    later = rows + period[chain]
    within = later < (begin + length)[chain]
    following = np.where(within, nodes[np.where(within, later, 0)], last[who][chain])
    same = np.flatnonzero((nodes[rows] == following) & (later <= (begin + length)[chain]))
    first = np.empty(len(who), np.intp)
    first[chain[same[::-1]]] = rows[same[::-1]]
    ends[who], last[who] = CYCLE, nodes[first]
    cycles[who], lengths[who] = period.astype(np.uint64), (first - begin + period).astype(np.uint64)
    kept[rows[rows >= (first + period)[chain]]] = False


def _rows_of(begins: Rows, lengths: Rows) -> Tuple[Rows, Rows]:
    """Return the rows of some chains' nodes, and for each which of the chains it is."""
    chain = np.repeat(np.arange(len(begins)), lengths)
    starts = np.cumsum(lengths) - lengths
    return np.arange(len(chain)) - np.repeat(starts - begins, lengths), chain

"""Chains followed through a target's memory: the kernel's walk, with memory loaded as it is met."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from gdbext.abi import Abi
from gdbext.errors import FaultError
from gdbext.kernels import (
    MOST_NODES,
    OUTSIDE,
    SAMPLED,
    Chains,
    LinkRules,
    close_cycles,
    decode_links,
    sampled,
    walk_chain,
    walk_chains,
)
from gdbext.progress import SILENT, Progress
from gdbext.structures.walk.gather import Windows
from gdbext.structures.walk.model import U8, U64, ChainEnd, End, Links, Rows, unsigned

_AT_FIRST = 1 << 18  # nodes until the first look at the progress; then twice as many, so that cycles are met
_UNWATCHED = 1 << 18  # nodes before repeats are looked for
_FIRST_LOOK = 1 << 16  # chains among which one that is not empty is looked for
_FEW = 64  # chains that are read on one by one
_MOST_STEPS = 32  # links along which chains are read on side by side
_READS = 1 << 16  # single reads between two looks at the progress


def rules_of(links: Links, abi: Abi) -> LinkRules:
    """Return a node's links as the kernel takes them."""
    return LinkRules(
        next=links.next,
        word=abi.pointer_size,
        byteorder=abi.byteorder,
        mask=links.mask,
        mangled=links.mangled,
        relative=links.relative,
        end_bits=links.end_bits,
        leaf_bits=links.leaf_bits,
        sentinels=links.sentinels,
        forbidden=links.forbidden,
        alignment=links.alignment,
    )


def decode_head(link: int, links: Links, abi: Abi) -> int:
    """Return what the link of a head leads to, as ``kernels.decode_links`` returns it."""
    return int(decode_links(np.array([unsigned(link)], np.uint64), None, rules_of(links, abi))[0])


class Repeats:
    """Tells when most of the nodes that were met had been met before: chains that run into each other.

    Sound chains share no node, so that their number is bounded by the memory; without this, a million bins
    that all lead into one long chain would not be.
    """

    def __init__(self) -> None:
        self._parts: List[U64] = []
        self._samples: List[U64] = []  # of nodes that nobody kept
        self._met = 0
        self._next = _UNWATCHED
        self.unsure = False

    def add(self, nodes: U64) -> None:
        """Note nodes that were walked."""
        self._parts.append(nodes)
        self._met += len(nodes)

    def add_sample(self, sample: U64, met: int) -> None:
        """Note so many nodes of which only ``kernels.sampled`` is known."""
        self._samples.append(sample)
        self._met += met

    def rule(self) -> bool:
        """Whether fewer than half of the nodes were new; ``unsure`` is set where their samples do not tell."""
        if self._met < self._next:
            return False
        self._next = 2 * self._met
        # A node is in the sample, or not, wherever it is met; too few in it mean that nodes are not many.
        sample = np.concatenate([*self._samples, *(sampled(part) for part in self._parts)])
        if len(sample) * SAMPLED * 4 < self._met:
            if self._samples:
                self.unsure = True
                return False
            sample = np.concatenate(self._parts)
        sample.sort()  # numpy.unique would import masked arrays
        return 2 * int(np.count_nonzero(sample[1:] != sample[:-1]) + 1) < len(sample)


class Followed(NamedTuple):
    """Chains that were followed; as ``Chains``, with ``model.End`` for the reasons.

    :param complete: False when it was interrupted, or given up because nodes repeat.
    """

    lengths: U64
    reasons: U8
    last: U64
    nodes: U64
    cycles: U64
    complete: bool = True

    def end(self, chain: int) -> ChainEnd:
        """Return where and why a chain ended."""
        reason = End(int(self.reasons[chain]))
        last = None if reason == End.NULL else int(self.last[chain])
        cycle = int(self.cycles[chain]) if reason == End.CYCLE else None
        return ChainEnd(reason, int(self.lengths[chain]), last, cycle)


def follow(
    windows: Windows,
    firsts: U64,
    stops: Optional[U64],
    rules: LinkRules,
    most: Optional[U64] = None,
    repeats: Optional[Repeats] = None,
    progress: Progress = SILENT,
) -> Followed:
    """Follow each chain to its end.

    An interrupt is not passed on: what was still going ends with INTERRUPTED.

    :param firsts: the first node of each, as ``decode_links`` returns it.
    :param stops: a node address that ends each, or None.
    :param most: nodes of each chain after which it ends with LIMIT, or None.
    :param repeats: the watch over several calls that walk one table; chains still going when it strikes
        end with LIMIT.
    """
    walk = _Following(windows, firsts, stops, rules, most, repeats, progress)
    try:
        at_once = walk.find_at_once()
    except KeyboardInterrupt:
        complete, chains = False, walk.join()
    else:
        complete = at_once is not None or walk.run()
        chains = at_once or walk.join()
    return Followed(chains.lengths, chains.ends, chains.last, chains.nodes, chains.cycles, complete)


class _Following:
    def __init__(
        self,
        windows: Windows,
        firsts: U64,
        stops: Optional[U64],
        rules: LinkRules,
        most: Optional[U64],
        repeats: Optional[Repeats],
        progress: Progress,
    ) -> None:
        self._windows, self._stops, self._rules = windows, stops, rules
        self._most = most
        self._repeats, self._progress = repeats, progress
        self._lengths = np.zeros(len(firsts), np.uint64)
        self._ends = np.full(len(firsts), End.INTERRUPTED, np.uint8)
        self._last = firsts.copy()
        self._cycles = np.zeros(len(firsts), np.uint64)
        self._pieces: List[Tuple[Rows, U64, U64, U64]] = []  # chains, nodes before, nodes now, the nodes
        self._walked = self._steps = 0

    def find_at_once(self) -> Optional[Chains]:
        """Return the chains as one call of the kernel walks them, or None: there is something to go back for."""
        begun = np.flatnonzero(self._last[:_FIRST_LOOK])[:1]
        if self._most is not None or not len(begun):
            return None
        self._windows.load(self._places(begun), self._rules.word)  # a core lends all its memory at once
        total = max(_AT_FIRST, 2 * len(self._last))
        chains = walk_chains(self._windows.spans, self._last, self._stops, self._rules, MOST_NODES, total)
        if ((chains.ends == OUTSIDE) | (chains.ends == End.LIMIT)).any():
            return None
        if self._repeats is not None:
            self._repeats.add(chains.nodes)
        return chains

    def run(self) -> bool:
        """Walk all; return whether it came to an end."""
        who, total = np.arange(len(self._last)), _AT_FIRST
        try:
            while True:
                who = self._go(who, max(total, 2 * len(who)))
                if not len(who):
                    return True
                if self._repeats is not None and self._repeats.rule():
                    self._ends[who] = End.LIMIT
                    return False
                self._progress.at("nodes", self._walked, None)
                total = min(2 * total, MOST_NODES)
        except KeyboardInterrupt:
            return False

    def join(self) -> Chains:
        """Return the chains, their pieces put together."""
        if len(self._pieces) == 1 and len(self._pieces[0][0]) == len(self._lengths):
            _, _, lengths, nodes = self._pieces[0]
            return Chains(lengths, self._ends, self._last, nodes, self._cycles)
        lengths = np.zeros_like(self._lengths)  # an interrupt may have come before those were counted
        for who, _, added, _ in self._pieces:
            lengths[who] += added
        begins = np.cumsum(lengths) - lengths
        nodes = np.empty(int(lengths.sum()), np.uint64)
        for who, before, added, part in self._pieces:
            shift = begins[who] + before - (np.cumsum(added) - added)
            rows = np.arange(len(part), dtype=np.uint64) + np.repeat(shift, added.astype(np.intp))
            nodes[rows.astype(np.intp)] = part
        return close_cycles(lengths, self._ends, self._last, nodes)

    def _go(self, who: Rows, total: int) -> Rows:
        """Walk some chains on in what is loaded, load what they lead to, return those that can go on."""
        stops = None if self._stops is None else self._stops[who]
        chains = walk_chains(self._windows.spans, self._last[who], stops, self._rules, self._room(who), total)
        self._add(who, chains)
        outside, limited = who[chains.ends == OUTSIDE], who[chains.ends == End.LIMIT]
        if self._most is not None:
            limited = limited[self._lengths[limited] < self._most[limited]]
        self._ends[outside] = self._ends[limited] = End.INTERRUPTED
        return np.concatenate((self._load(outside), limited)) if len(outside) else limited

    def _room(self, who: Rows) -> Union[int, U64]:
        return MOST_NODES if self._most is None else self._most[who] - self._lengths[who]

    def _add(self, who: Rows, chains: Chains) -> None:
        self._pieces.append((who, self._lengths[who], chains.lengths, chains.nodes))
        self._lengths[who] += chains.lengths
        self._ends[who], self._last[who], self._cycles[who] = chains.ends, chains.last, chains.cycles
        self._walked += len(chains.nodes)
        if self._repeats is not None:
            self._repeats.add(chains.nodes)

    def _load(self, who: Rows) -> Rows:
        """Load what chains lead to; end those whose nodes cannot be had, return the others."""
        leaf = (self._last[who] & np.uint64(self._rules.leaf_bits)) != 0
        held = np.zeros(len(who), np.bool_)
        for rows, size in ((leaf, 1), (~leaf, self._rules.word)):
            if rows.any():
                places = self._places(who[rows])
                self._windows.load(places, size)
                held[rows] = self._windows.held(places, size)
        lost, going = who[~held], who[held]
        if self._windows.full:
            copied = self._windows.copied(self._places(lost))
            going = np.concatenate((going, self._read_some(lost[copied])))
            lost = lost[~copied]
        self._lose(lost)
        return going

    def _places(self, who: Rows) -> U64:
        """Return what must be read to go on: the links of the nodes to come, or leaves."""
        nodes, links = self._last[who], unsigned(self._rules.next)
        leaf = (nodes & np.uint64(self._rules.leaf_bits)) != 0
        places: U64 = np.where(leaf, nodes, nodes + links)
        return places

    def _lose(self, who: Rows) -> None:
        absent = self._windows.absent(self._places(who), self._rules.word)
        self._ends[who] = np.where(absent, End.ABSENT, End.BAD_POINTER)

    def _read_some(self, who: Rows) -> Rows:
        """Go on by single reads: many chains by one node each, few or long ones to their ends."""
        leaf = (self._last[who] & np.uint64(self._rules.leaf_bits)) != 0
        if len(who) < _FEW or self._steps >= _MOST_STEPS or leaf.any():
            return self._read_on(who)
        self._steps += 1
        places = self._places(who)
        links, known = self._windows.read(places, self._rules.word)
        nodes, who = self._last[who[known]], who[known]
        self._lose(who[~known])
        one = np.ones(len(who), np.uint64)
        to_come = decode_links(links[known], places[known], self._rules)
        going = np.full(len(who), End.INTERRUPTED, np.uint8)
        self._add(who, Chains(one, going, to_come, nodes, np.zeros_like(one)))
        return who

    def _read_on(self, who: Rows) -> Rows:
        """Follow chains to their ends by single reads; return those that are left after many."""
        reading = _Reading(self._windows, self._progress, self._walked)
        room = np.broadcast_to(np.uint64(MOST_NODES) if self._most is None else self._room(who), len(who))
        walks = []
        for row, chain in enumerate(who.tolist()):
            stop = None if self._stops is None else int(self._stops[chain])
            walks.append(walk_chain(reading, int(self._last[chain]), stop, self._rules, int(room[row])))
            if reading.interrupted or reading.reads > self._walked + _AT_FIRST:
                break
        self._add_read(who[: len(walks)], walks)
        if reading.interrupted:
            self._ends[who[len(walks) - 1 :]] = End.INTERRUPTED
            raise KeyboardInterrupt
        return who[len(walks) :]

    def _add_read(self, who: Rows, walks: Sequence[Tuple[Sequence[int], int, int]]) -> None:
        counts = np.array([len(nodes) for nodes, _, _ in walks], np.uint64)
        ends = np.array([reason for _, reason, _ in walks], np.uint8)
        last = np.array([last for _, _, last in walks], np.uint64)
        nodes = [np.array(nodes, np.uint64) for nodes, _, _ in walks]
        self._add(who, Chains(counts, ends, last, np.concatenate([*nodes, last[:0]]), np.zeros_like(last)))
        self._lose(who[ends == OUTSIDE])


class _Reading:
    """Reads for ``walk_chain``; after an interrupt there is nothing more to read.

    :param walked: nodes before.
    """

    def __init__(self, windows: Windows, progress: Progress, walked: int) -> None:
        self.interrupted = False
        self._memory, self._progress, self.reads = windows.target.memory, progress, walked

    def __call__(self, address: int, size: int) -> Optional[bytes]:
        self.reads += 1
        try:
            if not self.reads % _READS:
                self._progress.at("nodes", self.reads, None)
            return bytes(self._memory.read(address, size))
        except FaultError:
            return None
        except KeyboardInterrupt:
            self.interrupted = True
            return None

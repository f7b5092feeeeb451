"""Hand-made heaps: chunks one after the other as an allocator with one header word lays them out."""

from dataclasses import dataclass, field
from typing import Any, Sequence

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.heap.model import Arena, Blocks, Charge, Heap, Span, State
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Identity
from gdbext.target import Target

HEADER = 16
PAGE = 4096


def u64(values):
    return np.array(list(values), np.uint64)


@dataclass
class Maker:
    """Gathers spans of chunks, and makes the heap and a target that maps it.

    :param rows: (address, usable, state, arena) of each block.
    """

    kind: str = "main"
    rows: list = field(default_factory=list)
    spans: list = field(default_factory=list)
    arenas: list = field(default_factory=list)

    def span(self, start: int, chunks: Sequence[Any], kind: str = "brk", arena: int = 0) -> int:
        """Lay (request, state) pairs out from ``start``; return the span's end, a page boundary."""
        at = start
        for request, state in chunks:
            usable = max((request + 8 + 15) // 16 * 16, 32) - 8
            self.rows.append((at + HEADER, usable, int(state), arena))
            at += usable + 8
        end = (at + 8 + PAGE - 1) // PAGE * PAGE
        self.spans.append(Span(start, end, kind, arena))
        while len(self.arenas) <= arena:
            number = len(self.arenas)
            self.arenas.append(Arena(number, 0xA000 + number, "thread" if number else "main", 0))
        return end

    def blocks(self) -> Blocks:
        rows = sorted(self.rows)
        columns = [list(each) for each in zip(*rows)] or [[], [], [], []]
        types = (np.uint64, np.uint64, np.uint8, np.uint32)
        return Blocks(*(np.array(column, kind) for column, kind in zip(columns, types)))

    def heap(self, **extra: Any) -> Heap:
        blocks = self.blocks()
        used = blocks.having([State.IN_USE, State.MMAPPED, State.TCACHE])
        ends = blocks.address + blocks.size
        charges = [
            Charge("test in use", blocks.address[used], ends[used]),
            Charge("test free", blocks.address[~used], ends[~used]),
            self._overhead(blocks),
        ]
        return Heap("test", blocks, self.arenas, self.spans, charges, **extra)

    def _overhead(self, blocks: Blocks) -> Charge:
        starts, ends = [], []
        for span in self.spans:
            at = span.start
            for address, size in zip(blocks.address.tolist(), blocks.size.tolist()):
                if not span.start <= address < span.end:
                    continue
                starts.append(at)
                ends.append(address)
                at = address + size
            starts.append(at)
            ends.append(span.end)
        return Charge("test overhead", u64(starts), u64(ends))

    def target(self, *regions: Region, **extra: Any) -> Target:
        own = [Region(span.start, span.end) for span in self.spans]
        memory = FakeMemory([], sorted([*own, *regions], key=lambda region: region.start))
        return Target(memory, X86_64, Identity(exe="/bin/test", pid=7), **extra)


@pytest.fixture
def maker():
    return Maker()

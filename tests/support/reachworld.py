"""Memory laid out by hand: words at addresses, mappings, blocks, threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Sequence

import numpy as np

from gdbext.abi import X86_64, Abi
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.mark import read_reach
from gdbext.analysis.reach.model import Reading
from gdbext.heap.model import Arena, Blocks, Heap, Span, State
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module, Thread
from gdbext.progress import SILENT
from gdbext.report import Problem
from gdbext.target import Target

HEAP, DATA, STACK = 0x10000, 0x100000, 0x200000
SIZE = 0x4000


class ReachWorld:
    """A heap, a module's data and a main thread's stack, all zeros at first but for a number on the stack."""

    def __init__(self, abi: Abi = X86_64) -> None:
        self.abi = abi
        self.regions = [
            Region(HEAP, HEAP + SIZE, name="[heap]"),
            Region(DATA, DATA + SIZE, name="/bin/app"),
            Region(STACK, STACK + SIZE, name="[stack]"),
        ]
        self.modules = [Module("/bin/app", DATA, DATA + SIZE, None)]
        self.threads = [Thread(1, 101, None, STACK + 0x2000)]
        self.problems: list[Problem] = []
        self.extra: dict[str, Sequence[tuple[int, int]]] = {}
        self._rows: list[tuple[int, int, State]] = []
        self._bytes = {region.start: bytearray(region.size) for region in self.regions}
        self.put(STACK + SIZE - 8, 1)  # a stack is never blank

    def map(self, region: Region) -> None:
        """Add a mapping; one that is absent has no bytes."""
        self.regions = sorted([*self.regions, region], key=lambda one: one.start)
        if region.source != "absent":
            self._bytes[region.start] = bytearray(region.size)

    def block(self, address: int, size: int = 24, state: State = State.IN_USE) -> int:
        """Add a block, and return its address."""
        self._rows.append((address, size, state))
        return address

    def put(self, at: int, *words: int) -> None:
        """Write words from an address on."""
        start = max(start for start in self._bytes if start <= at)
        for number, word in enumerate(words):
            offset = at - start + number * self.abi.pointer_size
            raw = word.to_bytes(self.abi.pointer_size, self.abi.byteorder)
            self._bytes[start][offset : offset + self.abi.pointer_size] = raw

    def thread(self, **changes: object) -> None:
        """Change the first thread."""
        self.threads[0] = replace(self.threads[0], **changes)

    def target(self) -> Target:
        """Return the target."""
        memory = FakeMemory(self._bytes.items(), self.regions)
        return Target(memory, self.abi, modules=self.modules, threads=self.threads, problems=self.problems)

    def heap(self) -> Heap:
        """Return the heap."""
        columns = list(zip(*sorted(self._rows))) or [(), (), ()]
        owner = np.zeros(len(columns[0]), np.uint32)
        blocks = Blocks(np.array(columns[0], np.uint64), np.array(columns[1], np.uint64), _bytes(columns[2]), owner)
        spans = [Span(HEAP, HEAP + SIZE, "brk", 0)]
        return Heap("test", blocks, [Arena(0, 0xA000, "main", SIZE)], spans, **self.extra)

    def reach(self, clear: int = 0, mangled: bool = False) -> Reach:
        """Return what can be reached."""
        return read_reach(self.target(), [self.heap()], Reading(clear, mangled), SILENT)

    def states(self, clear: int = 0, mangled: bool = False) -> dict[int, int]:
        """Return the state of each live block by address."""
        reach = self.reach(clear, mangled)
        return dict(zip(reach.address.tolist(), reach.states.tolist()))


def _bytes(states: Iterable[State]) -> "np.typing.NDArray[np.uint8]":
    return np.array([int(state) for state in states], np.uint8)

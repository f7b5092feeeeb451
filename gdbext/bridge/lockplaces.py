"""What names and places the lock census is told: symbols, stacks, tables that shapes know."""

from __future__ import annotations

from typing import Any, Optional

from gdbext.analysis.lockwait import Knowledge
from gdbext.bridge.stacks import GdbStacks
from gdbext.structures.locks.frames import find_telling
from gdbext.structures.locks.model import Census, Frame
from gdbext.target import Target

_FRAMES = 24


def read_knowledge(context: Any, census: Census, stacks: GdbStacks) -> Knowledge:
    """Return what is known of a census's locks and threads besides the census itself."""
    target = context.target
    frames: "dict[int, Frame]" = {}
    for wait in census.waits:
        telling = find_telling(stacks.frames(wait.thread, _FRAMES))
        if telling is not None:
            frames[wait.thread.number] = telling
    return Knowledge(_Names(target).find_name, {}, frames)


class _Names:
    """Names addresses, each once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: "dict[int, Optional[str]]" = {}

    def find_name(self, address: int) -> Optional[str]:
        """Return "symbol+offset", "stack of thread 3", or None."""
        if address not in self._known:
            self._known[address] = self._target.symbols.find_name(address) or self._stack(address)
        return self._known[address]

    def _stack(self, address: int) -> Optional[str]:
        region = self._target.index.find(address)
        for thread in self._target.threads if region else ():
            if thread.stack_pointer and region and region.start <= thread.stack_pointer <= address < region.end:
                return f"stack of thread {thread.number}"
        return None

"""What is being looked at: its memory, its modules, its threads and what is known of its symbols.

Everything here is plain data or a small port, so that walkers run the same in gdb, over a core
without gdb, and over bytes in a test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Mapping, Optional, Sequence

from gdbext.abi import Abi
from gdbext.debuginfo import NO_DEBUG_INFO, Symbols
from gdbext.memory import Memory, Reader, RegionIndex
from gdbext.memory.elf.corenotes import SignalInfo
from gdbext.process import Identity, Module, Thread
from gdbext.report import Problem

if TYPE_CHECKING:
    from gdbext.memory.live.presence import Presence


@dataclass(frozen=True)
class Target:
    """A stopped process or a core.

    :param live: whether a process is behind it (a core otherwise).
    :param local_pid: the process id when ``/proc`` of this machine speaks of it, else None.
    :param auxv: the auxiliary vector, type to value; empty when unknown.
    :param presence: which pages the process of a snapshot had; None of others.
    :param stopped_clock: ``CLOCK_MONOTONIC`` of the process of a snapshot at the stop, ns; None of others.
    :param held_seconds: for how long that process stood still; None of others.
    :param signal: at which a core was written; None of a process, and where the core does not say.
    :param problems: met while the target was read (truncated core, no build-id, …).
    """

    memory: Memory
    abi: Abi
    identity: Identity = Identity()
    modules: Sequence[Module] = ()
    threads: Sequence[Thread] = ()
    symbols: Symbols = NO_DEBUG_INFO
    live: bool = False
    local_pid: Optional[int] = None
    auxv: Mapping[int, int] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    signal: Optional[SignalInfo] = None
    presence: Optional[Presence] = None
    stopped_clock: Optional[int] = None
    held_seconds: Optional[float] = None

    @cached_property
    def reader(self) -> Reader:
        """Typed reads over the memory."""
        return Reader(self.memory, self.abi)

    @cached_property
    def index(self) -> RegionIndex:
        """The regions, searchable by address."""
        return RegionIndex(self.memory.regions())

    def find_module(self, address: int) -> Optional[Module]:
        """Return the module whose mappings enclose ``address``, or None."""
        for module in self.modules:
            if module.base <= address < module.end:
                return module
        return None

    def lacks(self, address: int, size: int = 1) -> bool:
        """Whether some of these bytes are mapped in the target but not in the core: absent is not damaged."""
        return any(region.source == "absent" for region in self.index.within(address, address + size))

    def find_thread(self, number: int) -> Optional[Thread]:
        """Return the thread of that debugger number, or None."""
        return self._numbered.get(number)

    @cached_property
    def _numbered(self) -> Mapping[int, Thread]:
        return {thread.number: thread for thread in reversed(self.threads)}

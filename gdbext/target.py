"""What is being looked at: its memory, its modules, its threads and what is known of its symbols.

Everything here is plain data or a small port, so that walkers run the same in gdb, over a core
without gdb, and over bytes in a test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Mapping, Optional, Protocol, Sequence

from gdbext.abi import Abi
from gdbext.layout import StructLayout
from gdbext.memory import Memory, Reader, RegionIndex
from gdbext.memory.corenotes import SignalInfo
from gdbext.report import Problem, ThreadRef


@dataclass(frozen=True)
class Identity:
    """Which process or core this is.

    :param time: the core's mtime, or the moment of the stop, in seconds since the epoch.
    """

    exe: Optional[str] = None
    build_id: Optional[str] = None
    pid: Optional[int] = None
    core: Optional[str] = None
    time: Optional[float] = None


@dataclass(frozen=True)
class Module:
    """An ELF object mapped in the target.

    :param path: as the target names it.
    :param base: address of its ELF header.
    :param end: first address after its last mapping.
    :param build_id: hex, read from the target's memory; None when that part is absent.
    """

    path: str
    base: int
    end: int
    build_id: Optional[str]


@dataclass(frozen=True)
class Thread:
    """A thread at the stop.

    :param number: the debugger's number.
    :param lwp: kernel thread id in the debugger's PID namespace.
    :param name: comm, or None (cores do not hold it).
    :param stack_pointer: None when the registers are not known.
    :param tls: thread pointer (x86-64 ``fs_base``), or None.
    :param registers: general registers by gdb's names, unsigned.
    """

    number: int
    lwp: Optional[int]
    name: Optional[str]
    stack_pointer: Optional[int] = None
    tls: Optional[int] = None
    registers: Mapping[str, int] = field(default_factory=dict)

    @property
    def ref(self) -> ThreadRef:
        """The thread as reports name it."""
        return ThreadRef(self.number, self.lwp, self.name)


@dataclass(frozen=True)
class Symbol:
    """An address with the object file that vouches for it.

    :param build_id: of the file that the symbol was read from, hex, or None when it has none.
    """

    name: str
    address: int
    build_id: Optional[str]


@dataclass(frozen=True)
class DebugStruct:
    """A structure's layout from debug info, with the file that it came from."""

    layout: StructLayout
    build_id: Optional[str]


class Symbols(Protocol):
    """What a debugger knows by name. All answers are unverified: see ``verified_symbol``."""

    def find_symbols(self, name: str) -> Sequence[Symbol]:
        """Return every static or global object of that name, from debug info or ``.symtab``."""

    def find_structs(self, name: str) -> Sequence[DebugStruct]:
        """Return the layout of ``struct name`` from every object file that defines it."""

    def find_tls(self, name: str, thread: Thread) -> Optional[int]:
        """Return the address of a thread-local variable in ``thread``, or None."""

    def find_name(self, address: int) -> Optional[str]:
        """Return "symbol+offset" for an address, or None."""


class NoSymbols:
    """For targets without a debugger behind them."""

    def find_symbols(self, name: str) -> Sequence[Symbol]:
        """Return nothing."""
        return ()

    def find_structs(self, name: str) -> Sequence[DebugStruct]:
        """Return nothing."""
        return ()

    def find_tls(self, name: str, thread: Thread) -> Optional[int]:
        """Return None."""
        return None

    def find_name(self, address: int) -> Optional[str]:
        """Return None."""
        return None


@dataclass(frozen=True)
class Target:
    """A stopped process or a core.

    :param live: whether a process is behind it (a core otherwise).
    :param local_pid: the process id when ``/proc`` of this machine speaks of it, else None.
    :param auxv: the auxiliary vector, type to value; empty when unknown.
    :param signal: at which a core was written; None of a process, and where the core does not say.
    :param problems: met while the target was read (truncated core, no build-id, …).
    """

    memory: Memory
    abi: Abi
    identity: Identity = Identity()
    modules: Sequence[Module] = ()
    threads: Sequence[Thread] = ()
    symbols: Symbols = field(default_factory=NoSymbols)
    live: bool = False
    local_pid: Optional[int] = None
    auxv: Mapping[int, int] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    signal: Optional[SignalInfo] = None

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
        return next((thread for thread in self.threads if thread.number == number), None)

"""What a process is made of, as plain data: which one it is, its modules, its threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional

from gdbext.report import ThreadRef


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
    :param signal: with which a debugger of a process has stopped it; 0 for none, and where that is not known.
    """

    number: int
    lwp: Optional[int]
    name: Optional[str]
    stack_pointer: Optional[int] = None
    tls: Optional[int] = None
    registers: Mapping[str, int] = field(default_factory=dict)
    signal: int = 0

    @property
    def ref(self) -> ThreadRef:
        """The thread as reports name it."""
        return ThreadRef(self.number, self.lwp, self.name)

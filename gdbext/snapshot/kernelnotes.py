"""The notes that the kernel gives a core, made of what ptrace(2) and ``/proc`` say: ``fs/binfmt_elf.c``, core(5).

Structures: ``struct elf_prstatus`` and ``elf_prpsinfo``, ``include/linux/elfcore.h`` and its 32-bit twins.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Iterator, Mapping, Sequence, Tuple

from gdbext.abi import Abi
from gdbext.errors import GdbextError
from gdbext.memory.elf.corenotes import (
    NT_386_TLS,
    NT_ARM_TLS,
    NT_AUXV,
    NT_FILE,
    NT_PRPSINFO,
    NT_PRSTATUS,
    NT_SIGINFO,
)
from gdbext.memory.live.mappings import Mapping as MemoryMapping
from gdbext.memory.live.mappings import read_proc, read_status
from gdbext.tracing.tracer import StoppedThread

NT_FPREGSET, NT_PRXFPREG, NT_X86_XSTATE, NT_ARM_PAC_MASK = 2, 0x46E62B7F, 0x202, 0x406
SETS = (NT_PRSTATUS, NT_FPREGSET, NT_PRXFPREG, NT_X86_XSTATE, NT_386_TLS, NT_ARM_TLS, NT_ARM_PAC_MASK)
_SIGINFO = 128
_STATES = "RSDTZW"  # as fill_psinfo numbers them


@dataclass(frozen=True)
class ProcessFacts:
    """What ``stat``, ``status`` and ``cmdline`` say of a process, as far as it is known: zeros and blanks elsewhere."""

    pid: int
    parent: int = 0
    group: int = 0
    session: int = 0
    flags: int = 0
    nice: int = 0
    state: str = "R"
    user: int = 0
    user_group: int = 0
    name: str = ""
    arguments: str = ""


def read_process(pid: int) -> ProcessFacts:
    """Return what is known of a process."""
    with suppress(GdbextError, ValueError, IndexError, KeyError):  # it has ended, or is another user's
        name, _, rest = read_proc(pid, "stat").partition(" (")[2].rpartition(") ")
        words, status = rest.split(), read_status(pid)
        parent, group, session, flags, nice = (int(words[at]) for at in (1, 2, 3, 6, 16))
        user, user_group = (int(status[key].split()[0]) for key in ("Uid", "Gid"))
        arguments = read_proc(pid, "cmdline").rstrip("\0").replace("\0", " ")
        return ProcessFacts(pid, parent, group, session, flags, nice, words[0], user, user_group, name, arguments)
    return ProcessFacts(pid)


def pack_notes(
    process: ProcessFacts, threads: Sequence[StoppedThread], auxv: bytes, mappings: Sequence[MemoryMapping], abi: Abi
) -> bytes:
    """Return the notes of a core, those of the process first, as a debugger writes them."""
    head = [
        ("CORE", NT_PRPSINFO, _prpsinfo(process, abi)),
        ("CORE", NT_AUXV, auxv),
        ("CORE", NT_FILE, _files(mappings, abi)),
    ]
    rows = [row for number, one in enumerate(threads) for row in _thread(process, one, number == 0, abi)]
    return b"".join(pack_note(owner, kind, data, abi) for owner, kind, data in [*head, *rows])


def pack_note(owner: str, kind: int, data: bytes, abi: Abi) -> bytes:
    """Return one note with what pads it."""
    name = owner.encode() + b"\0"
    head = struct.pack(abi.order_mark + "III", len(name), len(data), kind)
    return head + name + bytes(-len(name) % 4) + data + bytes(-len(data) % 4)


def _thread(process: ProcessFacts, thread: StoppedThread, first: bool, abi: Abi) -> Iterator[Tuple[str, int, bytes]]:
    sets = thread.sets
    yield "CORE", NT_PRSTATUS, _prstatus(process, thread.tid, sets, abi)
    if first:
        yield "CORE", NT_SIGINFO, bytes(_SIGINFO)
    for kind in SETS[1:]:
        if sets.get(kind):
            yield "CORE" if kind == NT_FPREGSET else "LINUX", kind, sets[kind]


def _prstatus(process: ProcessFacts, tid: int, sets: Mapping[int, bytes], abi: Abi) -> bytes:
    word = abi.word_format[-1]
    times = bytes(8 * abi.pointer_size)
    head = struct.pack(f"{abi.order_mark}3ihH2{word}4i", 0, 0, 0, 0, 0, 0, 0, tid, *_relatives(process))
    whole = head + times + sets[NT_PRSTATUS] + struct.pack(abi.order_mark + "i", bool(sets.get(NT_FPREGSET)))
    return whole + bytes(-len(whole) % abi.pointer_size)


def _relatives(process: ProcessFacts) -> Tuple[int, int, int]:
    return process.parent, process.group, process.session


def _prpsinfo(process: ProcessFacts, abi: Abi) -> bytes:
    wide = abi.pointer_size == 8
    number = max(_STATES.find(process.state), 0)
    state = struct.pack("Bcbb", number, process.state.encode()[:1], process.state == "Z", process.nice)
    form = abi.order_mark + ("4xQ2I4i" if wide else "I2H4i")
    most = 0xFFFFFFFF if wide else 0xFFFE  # what does not fit is nobody's
    users = min(process.user, most), min(process.user_group, most)
    numbers = struct.pack(form, process.flags & abi.word_mask, *users, process.pid, *_relatives(process))
    return state + numbers + struct.pack("16s80s", _text(process.name, 15), _text(process.arguments, 79))


def _text(text: str, most: int) -> bytes:
    return text.encode("utf-8", "replace")[:most]


def _files(mappings: Sequence[MemoryMapping], abi: Abi) -> bytes:
    found = [one for one in mappings if one.inode]
    word, page = abi.word_format[-1], abi.page_size
    rows = [number for one in found for number in (one.start, one.end, one.offset // page)]
    table = struct.pack(f"{abi.order_mark}{2 + len(rows)}{word}", len(found), page, *rows)
    return table + b"".join(one.name.encode("utf-8", "replace") + b"\0" for one in found)

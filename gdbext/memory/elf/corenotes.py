"""What the notes of a Linux core say: threads, process, mapped files, auxiliary vector.

The kernel (``fs/binfmt_elf.c``) writes the crashing thread first and process-wide notes after its
``NT_PRSTATUS``; gdb's gcore writes ``NT_PRPSINFO`` first and the notes at the end of the file. Here the
order matters for threads only: gdb numbers them as they come.

``elf_prstatus`` and ``elf_prpsinfo`` have no version; their members follow from the word size. Registers
are known for x86-64, i386 and aarch64.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

from gdbext.abi import Abi
from gdbext.memory import Buffer
from gdbext.memory.elf.elffile import Note

NT_PRSTATUS, NT_PRPSINFO, NT_AUXV = 1, 3, 6
NT_FILE, NT_SIGINFO = 0x46494C45, 0x53494749
NT_386_TLS, NT_ARM_TLS = 0x200, 0x401
OWNER = "GDBEXT"  # of the notes that a snapshot has beside the usual ones
NT_GDBEXT_FACTS, NT_GDBEXT_PAGES, NT_GDBEXT_MISSING = 0x67647801, 0x67647802, 0x67647803

AT_PHDR, AT_PAGESZ, AT_ENTRY, AT_RANDOM, AT_EXECFN, AT_SYSINFO_EHDR = 3, 6, 9, 25, 31, 33

SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV = 4, 5, 6, 7, 8, 11
FAULTS = frozenset((SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV))  # those with an address
SI_USER, SI_QUEUE, SI_TKILL, SI_KERNEL = 0, -1, -6, 0x80
_SENT = frozenset((SI_USER, SI_QUEUE, SI_TKILL))

_HIGHEST = 1 << 22  # PID_MAX_LIMIT
_AUXV = 1 << 16  # bytes; the kernel writes some 400

_OWN = frozenset((NT_GDBEXT_FACTS, NT_GDBEXT_PAGES, NT_GDBEXT_MISSING))
KNOWN = _OWN | {NT_PRSTATUS, NT_PRPSINFO, NT_AUXV, NT_FILE, NT_SIGINFO, NT_386_TLS, NT_ARM_TLS}


class MappedFile(NamedTuple):
    """One line of ``NT_FILE``: a mapping with its file.

    :param offset: of ``start`` in the file, in bytes.
    """

    start: int
    end: int
    offset: int
    path: str


class CoreThread(NamedTuple):
    """A thread's ``NT_PRSTATUS``.

    :param registers: by gdb's names; empty for machines that are not known here.
    :param tls: thread pointer, or None.
    :param signal: signal that the thread was handling, 0 for none.
    """

    lwp: int
    registers: Mapping[str, int]
    tls: Optional[int]
    signal: int

    @property
    def stack_pointer(self) -> Optional[int]:
        """The stack pointer, or None when the registers are not known."""
        return find_stack_pointer(self.registers)


class SignalInfo(NamedTuple):
    """The signal at which the core was written: ``siginfo_t`` of the first thread, as far as it is known.

    :param number: 0 for none: a debugger wrote the core of a process that nothing ailed.
    :param code: ``si_code``; None where no ``NT_SIGINFO`` agrees with the thread's own signal.
    :param address: ``si_addr``, for a fault that the kernel met itself and knows the address of; else None.
    :param sender: process id of who sent it, in the sender's view of it, for a signal that a process sent; else None.
    :param user: numeric id of the sender's user, or None.
    :param lwp: of the thread that met it, or None.
    :param by_kernel: whether the kernel wrote the core, which it does for a process that ends; a debugger may at any
        stop.
    """

    number: int
    code: Optional[int] = None
    address: Optional[int] = None
    sender: Optional[int] = None
    user: Optional[int] = None
    lwp: Optional[int] = None
    by_kernel: bool = True


def parse_siginfo(data: Buffer, abi: Abi) -> SignalInfo:
    """Return what a ``siginfo_t`` says (``include/uapi/asm-generic/siginfo.h``; the union follows three ints).

    :raises struct.error: when it is too short.
    """
    number, _, code = struct.unpack_from(abi.order_mark + "3i", data)
    at = 16 if abi.pointer_size == 8 else 12
    if number in FAULTS and 0 < code < SI_KERNEL:
        (address,) = struct.unpack_from(abi.word_format, data, at)
        return SignalInfo(number, code, address)
    if code in _SENT:
        sender, user = struct.unpack_from(abi.order_mark + "iI", data, at)
        return SignalInfo(number, code, None, sender, user)
    return SignalInfo(number, code)


class ProcessInfo(NamedTuple):
    """``NT_PRPSINFO``: the process id, the executable's short name and the start of its arguments."""

    pid: int
    comm: str
    arguments: str


@dataclass(frozen=True)
class CoreNotes:
    """All notes that are understood.

    :param signal: what killed the process, or None when no note says.
    :param files: sorted by address, disjoint.
    :param page_size: from the auxiliary vector or ``NT_FILE``; None when neither is whole.
    :param siginfo: more on that signal, or None when there is no thread.
    :param damage: one line for each note that does not hold what its type promises.
    :param own: contents of the notes that a snapshot has beside these, by type; empty for other cores.
    """

    threads: Sequence[CoreThread] = ()
    process: Optional[ProcessInfo] = None
    auxv: Mapping[int, int] = field(default_factory=dict)
    files: Sequence[MappedFile] = ()
    signal: Optional[int] = None
    page_size: Optional[int] = None
    damage: Sequence[str] = ()
    siginfo: Optional[SignalInfo] = None
    own: Mapping[int, Buffer] = field(default_factory=dict)


# in the order of elf_gregset_t, by gdb's names
_REGISTERS = {
    "x86-64": "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs",
    "i386": "ebx ecx edx esi edi ebp eax ds es fs gs orig_eax eip cs eflags esp ss",
    "aarch64": " ".join(f"x{number}" for number in range(31)) + " sp pc cpsr",
}


def parse_registers(data: Buffer, abi: Abi) -> Mapping[str, int]:
    """Return the registers of an ``elf_gregset_t``, by gdb's names; empty for machines that are not known here.

    :raises struct.error: when it is too short.
    """
    names = _REGISTERS.get(abi.machine, "").split()
    values = struct.unpack_from(f"{abi.order_mark}{len(names)}{abi.word_format[-1]}", data)
    return dict(zip(names, values))


def find_stack_pointer(registers: Mapping[str, int]) -> Optional[int]:
    """Return the stack pointer, or None when the registers are not known."""
    return next((registers[name] for name in ("rsp", "esp", "sp") if name in registers), None)


def find_386_tls(data: Buffer, registers: Mapping[str, int], abi: Abi) -> Optional[int]:
    """Return an i386 thread pointer from ``NT_386_TLS``, or None where its entry is not there."""
    # struct user_desc: entry_number, base_addr, limit, flags; %gs holds the selector of glibc's entry
    for at in range(0, len(data) - 15, 16):
        number, base = struct.unpack_from(f"{abi.order_mark}II", data, at)
        if "gs" in registers and number == (registers["gs"] & 0xFFFF) >> 3:
            return int(base)
    return None


def parse_auxv(data: Buffer, abi: Abi) -> Mapping[int, int]:
    """Return an auxiliary vector, type to value, as far as it is whole."""
    word = abi.pointer_size
    words = struct.unpack_from(f"{abi.order_mark}{len(data) // word}{abi.word_format[-1]}", data)
    pairs = itertools.takewhile(lambda pair: pair[0] != 0, zip(words[::2], words[1::2]))
    return dict(pairs)


def parse_core_notes(notes: Iterable[Note], abi: Abi) -> CoreNotes:
    """Return what the notes say; contents that are too short or nonsense are listed as damage."""
    return _Collector(abi).collect(notes)


class _Collector:
    def __init__(self, abi: Abi) -> None:
        self._abi = abi
        self._threads: list[CoreThread] = []
        self._process: Optional[ProcessInfo] = None
        self._auxv: dict[int, int] = {}
        self._files: list[MappedFile] = []
        self._file_page: Optional[int] = None
        self._siginfo: Optional[SignalInfo] = None
        self._first: Optional[int] = None  # of NT_PRSTATUS and NT_PRPSINFO, which tell the kernel's cores from gdb's
        self._damage: list[str] = []

    def collect(self, notes: Iterable[Note]) -> CoreNotes:
        takers = {
            NT_PRSTATUS: self._take_prstatus,
            NT_PRPSINFO: self._take_prpsinfo,
            NT_AUXV: self._take_auxv,
            NT_FILE: self._take_files,
            NT_SIGINFO: self._take_siginfo,
            NT_386_TLS: self._take_386_tls,
            NT_ARM_TLS: self._take_arm_tls,
        }
        own: dict[int, Buffer] = {}
        for note in notes:
            if note.type in _OWN and note.owner == OWNER:
                own[note.type] = note.contents
            if note.type in takers and note.owner in ("CORE", "LINUX"):
                if note.type in (NT_PRSTATUS, NT_PRPSINFO):
                    self._first = self._first or note.type
                self._take(takers[note.type], note)
        page = _sane_page(self._auxv.get(AT_PAGESZ)) or _sane_page(self._file_page)
        return CoreNotes(
            tuple(self._threads), self._process, self._auxv, self._disjoint_files(),
            self._find_signal(), page, (*self._damage, *_check_ids(self._threads)), self._find_siginfo(), own,
        )  # fmt: skip

    def _take(self, taker: object, note: Note) -> None:
        try:
            taker(note.contents)  # type: ignore[operator]
        except struct.error:
            self._damage.append(f"note {note.type:#x} of {len(note.contents)} bytes is too short")

    def _unpack(self, form: str, data: Buffer, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(self._abi.order_mark + form, data, offset)

    def _take_prstatus(self, data: Buffer) -> None:
        wide = self._abi.pointer_size == 8
        (signal,) = self._unpack("h", data, 12)
        (lwp,) = self._unpack("i", data, 32 if wide else 24)
        registers = parse_registers(data[112 if wide else 72 :], self._abi)
        self._threads.append(CoreThread(lwp, registers, registers.get("fs_base"), signal))

    def _take_prpsinfo(self, data: Buffer) -> None:
        if self._abi.pointer_size == 8:
            pid_at, name_at = 24, 40
        else:
            # uid_t is 16 bits wide on i386 and arm (124 bytes in all), 32 elsewhere (128)
            pid_at, name_at = (12, 28) if len(data) < 128 else (16, 32)
        (pid,) = self._unpack("i", data, pid_at)
        comm, arguments = struct.unpack_from("16s80s", data, name_at)
        self._process = ProcessInfo(pid, _text(comm), _text(arguments).rstrip(" "))

    def _take_auxv(self, data: Buffer) -> None:
        self._auxv.update(parse_auxv(data[:_AUXV], self._abi))

    def _take_files(self, data: Buffer) -> None:
        size = self._abi.pointer_size
        count, page = self._unpack(f"2{self._abi.word_format[-1]}", data, 0)
        if count > (len(data) - 2 * size) // (3 * size):
            self._damage.append(f"NT_FILE announces {count} mappings in {len(data)} bytes")
            return
        table = memoryview(data)[2 * size : (2 + 3 * count) * size]
        rows = struct.iter_unpack(f"{self._abi.order_mark}3{self._abi.word_format[-1]}", table)
        names = bytes(data[(2 + 3 * count) * size :]).split(b"\0", count)
        if len(names) <= count:
            self._damage.append(f"NT_FILE names {len(names) - 1} files for {count} mappings")
        self._file_page = page
        for (start, end, offset), name in zip(rows, names):
            self._files.append(MappedFile(start, end, offset * page, _text(name)))

    def _take_siginfo(self, data: Buffer) -> None:
        # the first one is the crashing thread's; gcore writes one for each thread
        info = parse_siginfo(data, self._abi)
        self._siginfo = self._siginfo or info

    def _take_386_tls(self, data: Buffer) -> None:
        tls = find_386_tls(data, self._threads[-1].registers, self._abi) if self._threads else None
        if tls is not None:
            self._set_tls(tls)

    def _take_arm_tls(self, data: Buffer) -> None:
        if self._threads:
            self._set_tls(self._unpack(self._abi.word_format[-1], data, 0)[0])

    def _set_tls(self, tls: int) -> None:
        last = self._threads[-1]
        self._threads[-1] = CoreThread(last.lwp, last.registers, tls, last.signal)

    def _find_signal(self) -> Optional[int]:
        if self._siginfo is not None:
            return self._siginfo.number
        return next((thread.signal for thread in self._threads), None)

    def _find_siginfo(self) -> Optional[SignalInfo]:
        """Return the first thread's signal, with the rest of NT_SIGINFO where that speaks of the same signal.

        gcore's speaks of the stop itself (SIGSTOP) where the thread has met no signal.
        """
        if not self._threads:
            return None
        first, by_kernel = self._threads[0], self._first == NT_PRSTATUS
        if self._siginfo is None or self._siginfo.number != first.signal:
            return SignalInfo(first.signal, lwp=first.lwp, by_kernel=by_kernel)
        return self._siginfo._replace(lwp=first.lwp, by_kernel=by_kernel)

    def _disjoint_files(self) -> tuple[MappedFile, ...]:
        kept: list[MappedFile] = []
        for file in sorted(self._files, key=lambda file: file.start):
            if file.start < file.end and (not kept or kept[-1].end <= file.start):
                kept.append(file)
        if len(kept) < len(self._files):
            self._damage.append(f"NT_FILE holds {len(self._files) - len(kept)} impossible mappings")
        return tuple(kept)


def _check_ids(threads: Sequence[CoreThread]) -> Iterator[str]:
    """Check that each thread has an id of its own: a debugger tells them apart by it."""
    counts = Counter(thread.lwp for thread in threads)
    odd = [lwp for lwp, count in counts.items() if count > 1 or not 0 < lwp <= _HIGHEST]
    if odd:
        named = ", ".join(map(str, odd[:3])) + (", …" if len(odd) > 3 else "")
        yield f"{sum(counts[lwp] for lwp in odd)} of {len(threads)} threads have no id of their own ({named})"


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def _sane_page(size: Optional[int]) -> Optional[int]:
    if size is None or not 1024 <= size <= 1 << 26 or size & (size - 1):
        return None
    return size

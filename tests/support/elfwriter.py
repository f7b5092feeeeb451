"""Writes small ELF files for tests: cores from segments and notes, shared objects with a build-id.

Both word sizes, both byte orders; offsets of the memory images follow the notes as in a kernel core, or
precede them as in gdb's gcore.
"""

import struct

PT_LOAD, PT_NOTE = 1, 4
R, W, X = 4, 2, 1
MACHINE = {"x86-64": 62, "i386": 3, "aarch64": 183, "ppc64": 21, "s390": 22}

REGISTERS = {
    "x86-64": ["r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi",
               "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs",
               "gs"],
    "i386": ["ebx", "ecx", "edx", "esi", "edi", "ebp", "eax", "ds", "es", "fs", "gs", "orig_eax", "eip", "cs",
             "eflags", "esp", "ss"],
    "aarch64": [f"x{n}" for n in range(31)] + ["sp", "pc", "cpsr"],
}  # fmt: skip


class Writer:
    """Word size and byte order of what is written."""

    def __init__(self, machine="x86-64", wide=True, order="little"):
        self.machine, self.wide, self.order = machine, wide, order
        self.mark = "<" if order == "little" else ">"
        self.size = 8 if wide else 4
        self.word = "Q" if wide else "I"

    def pack(self, form, *values):
        return struct.pack(self.mark + form, *values)

    def words(self, *values):
        return self.pack(f"{len(values)}{self.word}", *values)

    def header(self, kind, phnum, phoff=None, shoff=0, shnum=0):
        ident = bytes([0x7F, 69, 76, 70, 2 if self.wide else 1, 1 if self.order == "little" else 2, 1])
        size = 64 if self.wide else 52
        phoff = size if phoff is None else phoff
        rest = self.pack("HHI", kind, MACHINE.get(self.machine, self.machine), 1) + self.words(
            0, phoff, shoff
        )
        entry = 56 if self.wide else 32
        section = 64 if self.wide else 40
        return ident.ljust(16, b"\0") + rest + self.pack("IHHHHHH", 0, size, entry, phnum, section, shnum, 0)

    def segment(self, kind, flags, offset, address, filesz, memsz, align=0x1000):
        if self.wide:
            return self.pack("IIQQQQQQ", kind, flags, offset, address, 0, filesz, memsz, align)
        return self.pack("IIIIIIII", kind, offset, address, 0, filesz, memsz, flags, align)

    def note(self, owner, kind, contents, align=4):
        name = owner.encode() + b"\0"
        head = self.pack("III", len(name), len(contents), kind) + name
        return _pad(_pad(head, align) + contents, align)


class CoreWriter(Writer):
    """A core: add notes and segments, then :meth:`build`."""

    def __init__(self, machine="x86-64", wide=True, order="little"):
        super().__init__(machine, wide, order)
        self.notes = b""
        self.loads = []

    def add(self, owner, kind, contents):
        self.notes += self.note(owner, kind, contents)
        return self

    def load(self, address, data=b"", memsz=None, flags=R | W):
        self.loads.append((address, data, len(data) if memsz is None else memsz, flags))
        return self

    def prstatus(self, lwp, registers=None, signal=0):
        head = bytearray(112 if self.wide else 72)
        struct.pack_into(self.mark + "h", head, 12, signal)
        struct.pack_into(self.mark + "i", head, 32 if self.wide else 24, lwp)
        names = REGISTERS.get(self.machine, [])
        values = self.words(*[(registers or {}).get(name, 0) for name in names])
        return self.add("CORE", 1, bytes(head) + values + bytes(8 if self.wide else 4))

    def prpsinfo(self, pid, comm, arguments):
        data = bytearray(136 if self.wide else 124)
        struct.pack_into(self.mark + "i", data, 24 if self.wide else 12, pid)
        struct.pack_into("16s80s", data, 40 if self.wide else 28, comm.encode(), arguments.encode())
        return self.add("CORE", 3, bytes(data))

    def auxv(self, **entries):
        numbers = {"phdr": 3, "pagesz": 6, "entry": 9, "random": 25, "execfn": 31, "vdso": 33}
        flat = [word for name, value in entries.items() for word in (numbers[name], value)]
        return self.add("CORE", 6, self.words(*flat, 0, 0))

    def files(self, *files, page=0x1000):
        """Add NT_FILE: tuples of start, end, offset in bytes, path."""
        rows = [word for start, end, offset, _ in files for word in (start, end, offset // page)]
        names = b"".join(path.encode() + b"\0" for _, _, _, path in files)
        return self.add("CORE", 0x46494C45, self.words(len(files), page, *rows) + names)

    def siginfo(self, signal, code=0, rest=b""):
        """Add NT_SIGINFO.

        :param rest: the union's first bytes: sender and user, or an address.
        """
        head = self.pack("iii", signal, 0, code).ljust(16 if self.wide else 12, b"\0")
        return self.add("CORE", 0x53494749, (head + rest).ljust(128, b"\0"))

    def build(self, notes_last=False, xnum=False):
        """Return the file's bytes.

        :param xnum: write the number of program headers where more than 65534 have it.
        """
        count = len(self.loads) + 1
        at = len(self.header(4, 0)) + count * len(self.segment(0, 0, 0, 0, 0, 0))
        note_at = at if not notes_last else at + sum(len(data) for _, data, _, _ in self.loads)
        rows = [self.segment(PT_NOTE, 0, note_at, 0, len(self.notes), 0, 4)]
        offset = at if notes_last else at + len(self.notes)
        for address, data, memsz, flags in self.loads:
            rows.append(self.segment(PT_LOAD, flags, offset, address, len(data), memsz))
            offset += len(data)
        memory = b"".join(data for _, data, _, _ in self.loads)
        table, body = b"".join(rows), memory + self.notes if notes_last else self.notes + memory
        if not xnum:
            return self.header(4, count) + table + body
        head = self.header(4, 0xFFFF, shoff=at + len(body), shnum=1)
        section = bytes(44 if self.wide else 28) + self.pack("I", count)
        return head + table + body + section.ljust(64 if self.wide else 40, b"\0")


def shared_object(writer, build_id, *, text=b"text", data=b"data", base=0, page=0x1000, notes=b""):
    """Return an ELF file: page 0 headers and notes (r--), page 1 text (r-x), page 2 data (rw-).

    The data segment lies one page higher in memory than in the file, and has a page of ``.bss``.
    :param base: address that the program headers begin with.
    """
    if build_id is not None:
        notes += writer.note("GNU", 3, build_id)
    header = writer.header(3, 4)
    note_at = len(header) + 4 * len(writer.segment(0, 0, 0, 0, 0, 0))
    table = b"".join(
        (
            writer.segment(PT_LOAD, R, 0, base, page, page),
            writer.segment(PT_LOAD, R | X, page, base + page, page, page),
            writer.segment(PT_LOAD, R | W, 2 * page, base + 3 * page, page, 2 * page),
            writer.segment(PT_NOTE, R, note_at, base + note_at, len(notes), len(notes), 4),
        )
    )
    return b"".join(part.ljust(page, b"\0") for part in (header + table + notes, text, data))


def _pad(data, align):
    return data + bytes(-len(data) % align)

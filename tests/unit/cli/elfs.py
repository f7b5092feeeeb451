"""Small ELF files, built byte by byte: executables with a build-id, and cores that name them."""

from __future__ import annotations

import struct

ET_EXEC, ET_CORE = 2, 4
PT_LOAD, PT_NOTE, PT_PHDR = 1, 4, 6
PAGE = 4096


class Maker:
    """Packs for one word size and byte order."""

    def __init__(self, wide=True, order="<"):
        self.wide, self.order = wide, order
        self.word = 8 if wide else 4
        self.header_size, self.step = (64, 56) if wide else (52, 32)

    def pack(self, letters, *values):
        return struct.pack(self.order + letters.replace("W", "Q" if self.wide else "I"), *values)

    def header(self, kind, count):
        ident = b"\x7fELF" + bytes([2 if self.wide else 1, 1 if self.order == "<" else 2, 1]) + bytes(9)
        start = self.pack("HHIWWWI", kind, 62, 1, 0, self.header_size, 0, 0)
        return ident + start + self.pack("HHHHHH", self.header_size, self.step, count, 0, 0, 0)

    def segment(self, kind, offset, address, size):
        if self.wide:
            return self.pack("IIQQQQQQ", kind, 4, offset, address, address, size, size, 1)
        return self.pack("IIIIIIII", kind, offset, address, address, size, size, 4, 1)

    def note(self, owner, kind, data):
        name = owner + b"\0"
        return self.pack("III", len(name), len(data), kind) + _padded(name) + _padded(data)

    def executable(self, build_id, phdr=True):
        """Return an executable linked at 0 with its build-id note, whole in its first page."""
        notes = self.note(b"stapsdt", 3, b"probe-of-no-use") if build_id else b""
        notes += self.note(b"GNU", 3, build_id) if build_id else b""
        count = 3 if phdr else 2
        table_size = self.step * count
        note_at = self.header_size + table_size
        table = self.segment(PT_PHDR, self.header_size, self.header_size, table_size) if phdr else b""
        table += self.segment(PT_LOAD, 0, 0, PAGE)
        table += self.segment(PT_NOTE, note_at, note_at, len(notes))
        return (self.header(ET_EXEC, count) + table + notes).ljust(PAGE, b"\0")

    def core(self, modules, main=0, dumped=True):
        """Return a core of modules [(base, path, file bytes)]; ``main`` is the executable's index."""
        base = modules[main][0]
        auxv = self.pack("WWWWWW", 3, base + self.header_size, 5, 3, 0, 0)
        files = self.pack("WW", len(modules), PAGE)
        for start, _, data in modules:
            files += self.pack("WWW", start, start + len(data), 0)
        files += b"".join(path.encode() + b"\0" for _, path, _ in modules)
        notes = self.note(b"CORE", 6, auxv) + self.note(b"CORE", 0x46494C45, files)
        count = 1 + len(modules)
        at = self.header_size + self.step * count
        table, body = self.segment(PT_NOTE, at, 0, len(notes)), notes
        for start, _, data in modules:
            held = data if dumped else b""
            table += self.segment(PT_LOAD, at + len(body), start, len(held))
            body += held
        return self.header(ET_CORE, count) + table + body


def _padded(data):
    return data + bytes(-len(data) % 4)

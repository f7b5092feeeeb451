"""CPython's objects read one by one: text, entries of dicts, what a type says of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Iterator, Optional, Sequence, Tuple

from gdbext.errors import FaultError
from gdbext.heap.cpython.objects.layouts import (
    BYTES_SUBCLASS,
    DICT_KEYS,
    DICT_SUBCLASS,
    DICT_VALUES,
    FREE_THREADED,
    GC_HEAD,
    HAVE_GC,
    HEAPTYPE,
    INLINE_VALUES,
    LAYOUTS,
    LIST_SUBCLASS,
    LONG_SUBCLASS,
    MANAGED,
    MANAGED_DICT,
    MANAGED_WEAKREF,
    OB_TYPE,
    OLD_KEYS,
    READY,
    TP_BASICSIZE,
    TP_DICT,
    TP_DICTOFFSET,
    TP_FLAGS,
    TP_ITEMSIZE,
    TP_NAME,
    TUPLE_SUBCLASS,
    TYPE_SUBCLASS,
    UNICODE_SUBCLASS,
    ObjectLayout,
)
from gdbext.memory import Reader, RegionIndex

MOST_ENTRIES = 1 << 12  # of one dict that is searched
LEAST_TEXT = 5  # words of a str object: PyASCIIObject, in place of the PyUnicodeObject that ``tp_basicsize`` counts
_LONGEST = 512  # characters
_NAME = re.compile(r"[A-Za-z_][\w.\-<>]*$")
_QUALIFIED = re.compile(r"[^\W\d][\w.<>\-]*$")
# Static types by what their flags say; their subclasses are made at run time, but for a few.
_BUILTIN = {
    LONG_SUBCLASS: "int",
    LIST_SUBCLASS: "list",
    TUPLE_SUBCLASS: "tuple",
    BYTES_SUBCLASS: "bytes",
    UNICODE_SUBCLASS: "str",
    DICT_SUBCLASS: "dict",
    TYPE_SUBCLASS: "type",
}
_KINDS = {1: "latin-1", 2: "utf-16", 4: "utf-32"}


@dataclass(frozen=True)
class TypeInfo:
    """What a type object says of its instances.

    :param name: "module.Class"; of builtins without the module.
    :param before: words of the interpreter's before each.
    :param size: bytes of the least of them.
    :param fixed: whether none is larger.
    :param dictoffset: as ``tp_dictoffset``: bytes from the object to the pointer to its dict where that is positive.
    """

    address: int
    name: str
    flags: int
    before: int
    size: int
    dictoffset: int
    fixed: bool


class PythonObjects:
    """Reads objects of one interpreter.

    :param layouts: that fit its version; none where that is not known: then classes have the name that they have in C.
    :param head: words of each object before what all builds have: those of a build without the global lock.
    """

    def __init__(self, reader: Reader, layouts: Sequence[ObjectLayout] = (), head: int = 0) -> None:
        self.reader = reader
        self.word = reader.abi.pointer_size
        self.layouts = layouts
        self.head = head

    @property
    def layout(self) -> Optional[ObjectLayout]:
        """The first of the layouts: they differ in type objects alone."""
        return self.layouts[0] if self.layouts else None

    # ---- words ----

    def find_word(self, address: int, at: int = 0) -> Optional[int]:
        """Return a word, ``at`` words behind an address, or None."""
        try:
            return self.reader.word(address + at * self.word)
        except FaultError:
            return None

    def find_of(self, address: int, at: int) -> Optional[int]:
        """Return a word of an object by its number behind the head, or None."""
        return self.find_word(address, self.head + at)

    def find_number(self, address: int, size: int) -> Optional[int]:
        """Return an unsigned number of ``size`` bytes, or None."""
        try:
            return self.reader.uint(address, size)
        except FaultError:
            return None

    def is_absent(self, address: int) -> bool:
        """Whether an address is mapped in the target, and what is there is not at hand."""
        region = self._regions.find(address)
        return region is not None and region.source == "absent"

    @cached_property
    def _regions(self) -> RegionIndex:
        return RegionIndex(self.reader.memory.regions())

    # ---- types ----

    def find_type(self, address: int) -> Optional[TypeInfo]:
        """Return what a type object says, or None where it cannot be one that has instances."""
        flags, size = self.find_of(address, TP_FLAGS), self.find_of(address, TP_BASICSIZE)
        if flags is None or not flags & READY or size is None or not 2 * self.word <= size < 1 << 20:
            return None
        size -= self.head * self.word
        name = self._type_name(address, flags)
        offset = self.find_of(address, TP_DICTOFFSET) or 0
        signed = offset - (1 << 8 * self.word) if offset >> (8 * self.word - 1) else offset
        signed -= self.head * self.word if signed > 0 else 0
        before = self.head or (GC_HEAD if flags & HAVE_GC else 0)
        before += MANAGED if flags & (MANAGED_DICT | MANAGED_WEAKREF) else 0
        least = min(size, LEAST_TEXT * self.word) if flags & UNICODE_SUBCLASS and not flags & HEAPTYPE else size
        fixed = not self.find_of(address, TP_ITEMSIZE) and not flags & (INLINE_VALUES | UNICODE_SUBCLASS)
        return None if name is None else TypeInfo(address, name, flags, before, least, signed, fixed)

    def _type_name(self, address: int, flags: int) -> Optional[str]:
        text = self.find_of(address, TP_NAME) or 0
        known = self.reader.find_string(text, 256)
        if known is None and self.is_absent(text):  # what is read-only in the interpreter's file is in few cores
            known = _BUILTIN.get(flags & sum(_BUILTIN), f"type_at_{address:#x}")
        if not known or not _NAME.match(known):
            return None
        return (self._full_name(address) if flags & HEAPTYPE else None) or known

    def _full_name(self, address: int) -> Optional[str]:
        words = (self.find_word(address + layout.qualname, self.head) for layout in self.layouts)
        names = (self.find_text(word) for word in words if word)
        name = next((one for one in names if one and _QUALIFIED.match(one)), None)
        if name is None:
            return None
        module = self.find_in_dict(self.find_of(address, TP_DICT) or 0, "__module__")
        owner = None if module is None else self.find_text(module)
        return name if owner in (None, "", "builtins") or not _QUALIFIED.match(owner or "") else f"{owner}.{name}"

    # ---- text ----

    def find_text(self, address: int) -> Optional[str]:
        """Return a str object's text, its first 512 characters, or None where it is none that is compact and ready."""
        layout = self.layout
        if layout is None:
            return None
        address += self.head * self.word
        length, state = self.find_word(address, 2), self.find_number(address + 32, 4)
        if length is None or state is None or not state & 0x20 or length >> 40:
            return None
        kind = state >> 2 & 7
        start = address + (layout.ascii if state & 0x40 else layout.compact)
        if kind not in _KINDS:
            return None
        try:
            data = bytes(self.reader.bytes(start, min(length, _LONGEST) * kind, "text"))
        except FaultError:
            return None
        ending = {"little": "-le", "big": "-be"}[self.reader.abi.byteorder] if kind > 1 else ""
        return data.decode(_KINDS[kind] + ending, "backslashreplace")

    # ---- dicts ----

    def find_in_dict(self, address: int, key: str) -> Optional[int]:
        """Return the value's address of a key that is text, or None."""
        for name, value in self.for_each_entry(address):
            if self.find_of(name, 2) == len(key) and self.find_text(name) == key:
                return value
        return None

    def for_each_entry(self, address: int) -> Iterator[Tuple[int, int]]:
        """Iterate over the addresses of keys and values of a dict object, in order, at most 4096."""
        keys, values = self.find_of(address, DICT_KEYS), self.find_of(address, DICT_VALUES)
        for at, (key, value) in enumerate(self.for_each_key(keys or 0)):
            if values:
                value = self.find_word(values, at) or 0
            if value:
                yield key, value

    def for_each_key(self, keys: int) -> Iterator[Tuple[int, int]]:
        """Iterate over key and value of the entries of a keys object; the value is 0 where others have it."""
        for key, value, _, _ in self.for_each_place(keys):
            yield key, value

    def for_each_place(self, keys: int) -> Iterator[Tuple[int, int, int, int]]:
        """Iterate over key, value, address and words of each entry of a keys object, deleted ones left out."""
        table = self._entries(keys)
        if table is None:
            return
        start, count, words = table
        for at in range(min(count, MOST_ENTRIES)):
            entry = start + at * words * self.word
            key, value = self.find_word(entry, words - 2), self.find_word(entry, words - 1)
            if key is None or value is None:
                return
            if key:
                yield key, value, entry, words

    def _entries(self, keys: int) -> Optional[Tuple[int, int, int]]:
        """Return where the entries of a keys object begin, how many there are, and the words of each."""
        if self.layout is None or not keys:
            return None
        if self.layout.keys == OLD_KEYS:
            size, count = self.find_word(keys, 1), self.find_word(keys, 4)
            if not size or size & (size - 1) or count is None or count > size:
                return None
            width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4 if size <= 0xFFFF_FFFF else 8
            return keys + 40 + size * width, count, 3
        log2, indices, kind = (self.find_number(keys + at, 1) for at in (8, 9, 10))
        count = self.find_word(keys, 3)
        if log2 is None or indices is None or count is None or log2 > 48 or indices > log2 + 3 or count >> log2:
            return None
        return keys + 32 + (1 << indices), count, 2 if kind else 3


def fitting_layouts(reader: Reader, type_type: int, head: int = 0) -> Sequence[ObjectLayout]:
    """Return the layouts of the interpreter that a ``type`` belongs to: none of a version that is not known.

    :param type_type: address of the type object that is its own type.
    :param head: as :class:`PythonObjects` has it.
    """
    size, more = PythonObjects(reader, head=head).find_of(type_type, TP_BASICSIZE), head * reader.abi.pointer_size
    known = [one for one in LAYOUTS if reader.abi.pointer_size == 8 and one.heap_type + more == size]
    return [one for one in known if not head or one.origin in FREE_THREADED]


def is_its_own_type(reader: Reader, address: int, head: int = 0) -> bool:
    """Whether an object is ``type``: by its name, and where that is not in the target by what it says of itself."""
    plain = PythonObjects(reader, head=head)
    if plain.find_of(address, OB_TYPE) != address:
        return False
    name, flags = plain.find_of(address, TP_NAME), plain.find_of(address, TP_FLAGS) or 0
    known = reader.find_string(name or 0, 8)
    if known is None and plain.is_absent(name or 0):
        return bool(flags & READY and flags & TYPE_SUBCLASS and fitting_layouts(reader, address, head))
    return known == "type"

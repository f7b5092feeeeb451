"""What gdb knows by name. Unverified: gdb believes whatever libc it was given.

Every answer carries the build-id of the object file that it came from, so that it can be held against
the module in the target's memory.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, Optional, Sequence

import gdb

from gdbext.bridge.decoded import ask, name_of
from gdbext.bridge.expressions import selection
from gdbext.debuginfo import DebugStruct, Symbol
from gdbext.layout import Member, StructLayout
from gdbext.process import Thread

# Names of C++ have spaces: "(anonymous namespace)::lock".
_WHERE = re.compile(r"^(?P<name>\S.*?)(?: \+ (?P<offset>\d+))? in section \S+?(?: of (?P<file>.+))?$")
_SAME = 8  # threads; a block of a library that was loaded later is malloc's, and nowhere near the same distance
_NAME = re.compile(r"[A-Za-z_]\w*")


class GdbSymbols:
    """The symbols of the selected inferior's program space.

    :param threads: of it, by number, where they have been listed.
    """

    def __init__(self, threads: Sequence[gdb.InferiorThread] = ()) -> None:
        self.threads = threads
        self._threads = {one.num: one for one in threads}
        self._offsets: "dict[str, list[int]]" = {}

    def find_symbols(self, name: str) -> Sequence[Symbol]:
        """Return every static or global object of that name, from debug info or ``.symtab``."""
        found = {symbol.address: symbol for symbol in _minimal_symbols(name)}
        found.update((symbol.address, symbol) for symbol in _full_symbols(name))
        return list(found.values())

    def find_structs(self, name: str) -> Sequence[DebugStruct]:
        """Return the layout of ``struct name`` from every object file that defines it."""
        found: dict[Optional[str], DebugStruct] = {}
        for objfile in gdb.objfiles():
            for kind in _types_of(objfile, name):
                layout = _layout(kind, name)
                if layout.members:
                    found.setdefault(objfile.build_id, DebugStruct(layout, objfile.build_id))
        return list(found.values())

    def find_tls(self, name: str, thread: Thread) -> Optional[int]:
        """Return the address of a thread-local variable in ``thread``, or None.

        Once it is equally far from the pointers of some threads, it is so in all: gdb takes its time for each.
        """
        offsets = self._offsets.setdefault(name, [])
        if thread.tls and len(offsets) == _SAME and len(set(offsets)) == 1:
            return thread.tls + offsets[0]
        address = self._ask_tls(name, thread)
        if address is not None and thread.tls and len(offsets) < _SAME:
            offsets.append(address - thread.tls)
        return address

    def _ask_tls(self, name: str, thread: Thread) -> Optional[int]:
        known = self._find_thread(thread.number) if _NAME.fullmatch(name) else None
        if known is None:
            return None
        with selection.kept():
            known.switch()
            return _address_of(name)

    def _find_thread(self, number: int) -> Optional[gdb.InferiorThread]:
        # gdb makes its list anew each time: a tenth of a second for 2000 threads.
        known = self._threads.get(number)
        if known is None or not known.is_valid():
            self._threads = {one.num: one for one in gdb.selected_inferior().threads()}
        return self._threads.get(number)

    def find_name(self, address: int) -> Optional[str]:
        """Return "symbol+offset" for an address, or None."""
        match = _info_symbol(address)
        if match is None:
            return None
        return match["name"] + (f"+{match['offset']}" if match["offset"] else "")


def _full_symbols(name: str) -> Iterator[Symbol]:
    for symbol in _lookup(name):
        if symbol is None or not symbol.is_variable or symbol.addr_class != gdb.SYMBOL_LOC_STATIC:
            continue  # a thread-local one has no address of its own
        address = symbol.value().address
        if address is not None:
            yield Symbol(name, int(address), symbol.symtab.objfile.build_id)


def _lookup(name: str) -> Sequence[Optional[gdb.Symbol]]:
    found: list[Optional[gdb.Symbol]] = [gdb.lookup_global_symbol(name)]
    if hasattr(gdb, "lookup_static_symbols"):
        found.extend(gdb.lookup_static_symbols(name))
    elif hasattr(gdb, "lookup_static_symbol"):
        found.append(gdb.lookup_static_symbol(name))
    return found


def _minimal_symbols(name: str) -> Iterator[Symbol]:
    address = _address_of(name) if _NAME.fullmatch(name) else None
    match = None if address is None else _info_symbol(address)
    # A local variable, or one in another thread's storage, may have the same name.
    if address is not None and match is not None and match["name"] == name and not match["offset"]:
        yield Symbol(name, address, _build_id(match["file"]))


def _address_of(name: str) -> Optional[int]:
    try:
        ask(f"info address {name}")  # first: of an unknown name an expression searches all source files, for ms
        return int(gdb.parse_and_eval(f"&'{name}'"))
    except gdb.error:  # unknown, optimised out, or thread-local without libthread_db
        return None


def _info_symbol(address: int) -> "Optional[re.Match[str]]":
    text = ask(f"info symbol {address:#x}").strip()
    return _WHERE.match(text.partition("\n")[0])


def _build_id(file: Optional[str]) -> Optional[str]:
    """Return the build-id of an object file; gdb leaves its name out where there is only one."""
    for objfile in gdb.objfiles():
        if file is None or file in (name_of(objfile), name_of(objfile, "username")):
            return objfile.build_id
    return None


def _types_of(objfile: gdb.Objfile, name: str) -> Iterator[gdb.Type]:
    for lookup in (objfile.lookup_static_symbol, objfile.lookup_global_symbol):
        symbol = lookup(name, gdb.SYMBOL_STRUCT_DOMAIN)
        if symbol is not None and symbol.type is not None:
            yield symbol.type


def _layout(kind: gdb.Type, name: str) -> StructLayout:
    members = {member.name: member for member in _members(kind, "", 0)}
    return StructLayout(name, int(kind.sizeof), members, "debug info")


def _members(kind: gdb.Type, prefix: str, base: int) -> Iterator[Member]:
    for field in kind.strip_typedefs().fields():
        # Static members and bit-fields have no byte of their own.
        position: Optional[int] = getattr(field, "bitpos", None)
        if position is None or field.bitsize or field.type is None:
            continue
        offset = base + position // 8
        inner = field.type.strip_typedefs()
        if field.name:
            yield _member(prefix + field.name, offset, inner)
        if inner.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            yield from _members(inner, f"{prefix}{field.name}." if field.name else prefix, offset)


def _member(name: str, offset: int, kind: gdb.Type) -> Member:
    count = None
    while kind.code == gdb.TYPE_CODE_ARRAY:
        low, high = kind.range()
        count = (1 if count is None else count) * (high - low + 1)
        kind = kind.target().strip_typedefs()
    return Member(name, offset, int(kind.sizeof), count, _is_signed(kind))


def _is_signed(kind: Any) -> bool:
    # Type.is_signed came with gdb 12; the value of all-ones tells it everywhere.
    if kind.code != gdb.TYPE_CODE_INT:
        return False
    if kind.sizeof > 8:  # gdb does not calculate with these before 14
        return "unsigned" not in str(kind)
    return int(gdb.Value(b"\xff" * kind.sizeof, kind)) < 0

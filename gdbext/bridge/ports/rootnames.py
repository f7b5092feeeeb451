"""What gdb, and the symbol tables of the files it was given, know of roots: variables, thread-local ones, frames.

Symbol tables are read from the files themselves, which must have the build-id of the module in the target: gdb tells
no sizes, and a word behind the end of a variable must not be taken for a part of it.
"""

from __future__ import annotations

import mmap
import os
import re
from dataclasses import dataclass
from itertools import islice
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import gdb

from gdbext.analysis.reach.members import member_path
from gdbext.bridge.decoded import ask, decoded, find_sysroot, name_of
from gdbext.bridge.expressions import language, lookup, selection, values
from gdbext.bridge.ports.stacks import find_stack_pointer
from gdbext.bridge.ports.typemaker import type_of
from gdbext.bridge.ports.types import GdbTypes
from gdbext.debuginfo import FramePlace
from gdbext.layout.types import Type
from gdbext.memory.elf.elfsymbols import SymbolTable, Variables, find_symbol_table
from gdbext.memory.hostfiles import HostFiles
from gdbext.process import Module
from gdbext.target import Target

_FRAMES = 128  # of one thread
_RED_ZONE = 128
_MANGLED = {"_Z": "c++", "_R": "rust"}  # how linkers' names begin, and whose they are: a frame in libc is of C
_ABI_TAGS = re.compile(r"\[abi:\w+\]")


class GdbRootNames:
    """The ``RootNames`` port over gdb, for one stop; what it has looked up it keeps."""

    def __init__(self, target: Target, types: GdbTypes) -> None:
        self._target = target
        self._types = types
        self._files = HostFiles(find_sysroot())
        self._tables: "Dict[int, Optional[SymbolTable]]" = {}
        self._variables: "Dict[int, Optional[Variables]]" = {}
        self._locals: "Dict[Tuple[int, int], Optional[Variables]]" = {}
        self._readable: "Dict[str, str]" = {}
        self._frames: "Dict[int, Sequence[_Frame]]" = {}

    # -- variables

    def variables_of(self, module: Module) -> Optional[Variables]:
        """Return a module's variables where they are in the target; None where its symbols are not known."""
        if module.base not in self._variables:
            table = self._table(module)
            moved = None if table is None else table.data.moved(module.base - table.first)
            self._variables[module.base] = moved
        return self._variables[module.base]

    def thread_locals_of(self, module: Module, thread: int) -> Optional[Variables]:
        """Return a module's thread-local variables where a thread has them; None where that is not known."""
        key = module.base, thread
        if key not in self._locals:
            table = self._table(module)
            known = table is not None and len(table.thread_local) > 0
            start = self._find_block(module, table, thread) if known and table is not None else None
            self._locals[key] = None if start is None or table is None else table.thread_local.moved(start)
        return self._locals[key]

    def _find_block(self, module: Module, table: SymbolTable, number: int) -> Optional[int]:
        """Return where a thread has a module's thread-local storage."""
        thread = self._target.find_thread(number)
        if thread is None:
            return None
        if table.tls is not None and thread.tls is not None and self._is_program(module):
            return _first_block(self._target.abi.machine, thread.tls, *table.tls)
        for at in range(min(len(table.thread_local), 4)):
            address = self._target.symbols.find_tls(self.readable(table.thread_local.name(at)), thread)
            if address is not None:
                return address - int(table.thread_local.address[at])
        return None

    def _is_program(self, module: Module) -> bool:
        identity = self._target.identity
        return module.path == identity.exe and module.build_id == identity.build_id

    def _table(self, module: Module) -> Optional[SymbolTable]:
        if module.base not in self._tables:
            found = [table for table in map(find_symbol_table, self._contents(module)) if table is not None]
            self._tables[module.base] = next((table for table in found if table.whole), found[0] if found else None)
        return self._tables[module.base]

    def _contents(self, module: Module) -> Iterator[memoryview]:
        """Iterate over the bytes of the files that are this module: the one that was mapped, then its debug info."""
        own = [one for one in gdb.objfiles() if _is_of(one, module)]
        names = [module.path, *(str(name_of(one)) for one in own)]
        for name in dict.fromkeys(names):
            if module.build_id is not None:
                file = self._files.find(name, module.build_id)
                if file is not None:
                    yield memoryview(file[0 : file.size])
            elif name != module.path:  # nothing tells more than that gdb takes it for this module
                yield from _mapped(name)

    def readable(self, name: str) -> str:
        """Return a linker's name as the program's source has it."""
        whose = _MANGLED.get(name[:2])
        if whose is None:
            return name
        if name not in self._readable:
            try:
                shown = ask(f"demangle -l {whose} -- {name}").strip()
            except gdb.error:
                shown = name
            self._readable[name] = _ABI_TAGS.sub("", shown)
        return self._readable[name]

    def find_variable_type(self, name: str, address: int) -> Optional[Type]:
        """Return the type of the variable of that name and address, or None; thread-local ones by name alone."""
        with language.like_c():
            for symbol in _symbols_named(name):
                kind = _type_at(symbol, address)
                if kind is not None:
                    return kind
        return None

    def find_type(self, name: str) -> Optional[Type]:
        """Return the complete type of that name, or None."""
        return self._types.find_type(name)

    # -- frames

    def find_frame(self, thread: int, address: int) -> Optional[FramePlace]:
        """Return which frame of a thread a stack address belongs to, or None."""
        frames = self._frames_of(thread)
        frame = next((one for one in frames if one.low <= address < one.high), None)
        if frame is None:
            return None
        # Functions that were inlined into it have the same stack pointer.
        for one in frames[: frame.level + 1]:
            variable = self._variable_at(thread, one, address) if one.pointer == frame.pointer else None
            if variable is not None:
                return FramePlace(one.level, one.function, variable)
        # Where unwinding ends, mostly at main, nobody knows how far the last frame reaches.
        return None if frame is frames[-1] else FramePlace(frame.level, frame.function, None)

    def find_in_register(self, thread: int, register: str, value: int) -> Optional[FramePlace]:
        """Return the variable of the newest frame that is in a register, or None."""
        for frame in self._frames_of(thread)[:1]:
            name = _first_name(self._held(thread, frame), value, None)
            return FramePlace(frame.level, frame.function, name)
        return None

    def _frames_of(self, thread: int) -> "Sequence[_Frame]":
        if thread not in self._frames:
            self._frames[thread] = list(self._unwind(thread))
        return self._frames[thread]

    def _unwind(self, number: int) -> "Iterator[_Frame]":
        known = _find_thread(number)
        if known is None:
            return
        rows: "List[Tuple[int, Optional[str]]]" = []
        with selection.kept():
            try:
                known.switch()
                for frame in islice(_newest_first(), _FRAMES):
                    pointer = find_stack_pointer(frame)
                    if pointer is None:
                        break
                    rows.append((pointer, frame.name()))
            except gdb.error:  # a stack that is damaged, or not all in the core: what there is must do
                pass
        for level, (pointer, name) in enumerate(rows):
            low = pointer - _RED_ZONE if level == 0 else pointer
            high = rows[level + 1][0] if level + 1 < len(rows) else 1 << 64
            yield _Frame(level, name, pointer, low, high)

    def _variable_at(self, thread: int, frame: "_Frame", address: int) -> Optional[str]:
        """Return the variable of a frame that holds an address, with its member."""
        return _first_name(self._held(thread, frame), None, address)

    def _held(self, thread: int, frame: "_Frame") -> "Sequence[_Held]":
        """Return the variables of a frame as far as they can be had."""
        if frame.held is None:
            frame.held = _read_held(thread, frame.level)
        return frame.held


@dataclass(frozen=True)
class _Held:
    """A variable of a frame: in memory, or a pointer in a register."""

    name: str
    type: Type
    address: Optional[int]
    value: Optional[int]


@dataclass
class _Frame:
    level: int
    function: Optional[str]
    pointer: int
    low: int
    high: int
    held: "Optional[Sequence[_Held]]" = None


def _first_name(held: "Sequence[_Held]", value: Optional[int], address: Optional[int]) -> Optional[str]:
    """Return the first variable that lies around an address, or that is in a register and has a value."""
    for one in held:
        if address is not None and one.address is not None and 0 <= address - one.address < one.type.size:
            path, _ = member_path(one.type, address - one.address)
            return one.name + path
        if value is not None and one.address is None and one.value == value:
            return one.name
    return None


def _read_held(number: int, level: int) -> "Sequence[_Held]":
    found: "List[_Held]" = []
    known = _find_thread(number)
    if known is None:
        return found
    with selection.kept(), language.like_c():
        try:
            known.switch()
            frame = next(islice(_newest_first(), level, None), None)
            if frame is not None:
                found.extend(_variables_in(frame))
        except gdb.error:
            return found
    return found


def _variables_in(frame: gdb.Frame) -> "Iterator[_Held]":
    for block in _blocks(frame):
        for symbol in block:
            if symbol.is_variable or symbol.is_argument:
                yield from _read_variable(frame, block, symbol)


def _read_variable(frame: gdb.Frame, block: gdb.Block, symbol: gdb.Symbol) -> "Iterator[_Held]":
    if lookup.is_in_memory(symbol):  # static: it is in no frame
        return
    try:
        value = frame.read_var(symbol, block)
        if values.is_missing(value):
            return
        address, kind = values.find_address(value), value.type.strip_typedefs()
        number = None
        if address is None and kind.code == gdb.TYPE_CODE_PTR:
            number = int(value) & ((1 << 64) - 1)
        if address is not None or number is not None:
            yield _Held(symbol.name, type_of(value.type), address, number)
    except (gdb.error, ValueError):  # its place cannot be read
        return


def _blocks(frame: gdb.Frame) -> "Iterator[gdb.Block]":
    """Iterate over the blocks around a frame's place in its function, the innermost first."""
    block: Optional[gdb.Block]
    try:
        block = frame.block()
    except RuntimeError:  # no debug info there
        return
    while block is not None and not block.is_static and not block.is_global:
        yield block
        block = None if block.function is not None else block.superblock


def _newest_first() -> "Iterator[gdb.Frame]":
    frame: Optional[gdb.Frame] = gdb.newest_frame()
    while frame is not None:
        yield frame
        frame = frame.older()


def _find_thread(number: int) -> Optional[gdb.InferiorThread]:
    threads = (one for one in gdb.selected_inferior().threads() if one.num == number)
    return next((one for one in threads if one.is_valid()), None)


def _symbols_named(name: str) -> "Iterator[gdb.Symbol]":
    yield from lookup.find_own_variables(name)
    yield from lookup.find_foreign_variables(name)
    found = [gdb.lookup_global_symbol(name), *gdb.lookup_static_symbols(name)]  # thread-local ones are here too
    yield from (symbol for symbol in found if symbol is not None and symbol.addr_class == gdb.SYMBOL_LOC_COMPUTED)


def _type_at(symbol: gdb.Symbol, address: int) -> Optional[Type]:
    if symbol.type is None:
        return None
    if symbol.addr_class == gdb.SYMBOL_LOC_COMPUTED:
        return type_of(symbol.type)
    try:
        value = symbol.value()
    except gdb.error:
        return None
    return type_of(value.type) if values.find_address(value) == address else None


def _first_block(machine: str, pointer: int, size: int, align: int) -> Optional[int]:
    """Return where the program's own thread-local block begins, which the ABI of each machine says.

    U. Drepper, "ELF Handling For Thread-Local Storage", 3.4: below the thread pointer on x86, behind a control block
    of two words on 64-bit ARM.
    """
    if machine in ("x86-64", "i386"):
        return pointer - -(-size // align) * align
    if machine == "aarch64":
        return pointer + max(16, align)
    return None


def _is_of(objfile: gdb.Objfile, module: Module) -> bool:
    root = lookup.root_of(objfile)
    if module.build_id is not None and root.build_id is not None:
        return bool(root.build_id == module.build_id)
    names = (module.path, decoded(lambda: gdb.solib_name(module.base)))
    return any(name in (name_of(root), name_of(root, "username")) for name in names if name)


def _mapped(name: str) -> "Iterator[memoryview]":
    try:
        with open(name, "rb") as file:
            if os.fstat(file.fileno()).st_size:
                yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return

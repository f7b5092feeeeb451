"""Which modules hold a CPython, and of which version."""

from __future__ import annotations

import os
import re
from typing import Iterator, Optional, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.cpython.find.bythreads import find_by_threads
from gdbext.heap.cpython.find.structural import module_words
from gdbext.heap.cpython.layouts import COOKIE, COOKIE_FREE_THREADED, COOKIE_VERSION, Version
from gdbext.heap.cpython.model import Runtime
from gdbext.heap.symbolcheck import find_disbelief
from gdbext.memory import view
from gdbext.memory.elf.elfdynamic import find_exported
from gdbext.memory.elf.elffile import find_image
from gdbext.process import Module
from gdbext.target import Target

_NAMED = re.compile(r"^(?:lib)?python(\d)\.(\d+)(t?)")
RUNTIME, VERSION = "_PyRuntime", "Py_Version"
BY_STRUCTURE = "structure"


def for_each_runtime(target: Target) -> Iterator[Runtime]:
    """Iterate over the modules that define ``_PyRuntime``, and those whose exported names are not at hand."""
    for module in target.modules:
        address, found_by = _find(target, module, RUNTIME)
        if found_by:
            yield _runtime(target, module, address, found_by)


def find_symbol(target: Target, module: Module, name: str) -> Optional[int]:
    """Return the address of a module's own variable, believed by build-id, or None."""
    for symbol in target.symbols.find_symbols(name):
        if module.base <= symbol.address < module.end and find_disbelief(target, symbol) is None:
            return symbol.address
    return None


def _find(target: Target, module: Module, name: str) -> Tuple[Optional[int], str]:
    """Return the address of a variable of a module or None, and what says so; "" where it has none."""
    image = find_image(lambda at, size: view(target.memory, at, size), module.base, target.abi.page_size)
    if image is None:
        return None, ""
    try:
        address = find_exported(target.memory, target.abi, image, name)
    except FaultError:
        address = find_symbol(target, module, name)
        return address, BY_STRUCTURE if address is None else f"symbol {name}"
    return address, "" if address is None else f"exported {name}"


def _runtime(target: Target, module: Module, address: Optional[int], found_by: str) -> Runtime:
    if address is None:
        address = _find_cookie(target, module)
    hexed, free_threaded = _of_cookie(target, address)
    if hexed is None:
        hexed = _of_variable(target, module)
    named = _NAMED.search(os.path.basename(module.path))
    if hexed is not None:
        version: Optional[Version] = (hexed >> 24, hexed >> 16 & 0xFF)
        exact = f"{hexed >> 24}.{hexed >> 16 & 0xFF}.{hexed >> 8 & 0xFF}"
    else:
        version, exact = ((int(named[1]), int(named[2])) if named else None), ""
    if address is None:
        address, version = find_by_threads(target, module, version) or (None, version)
    return Runtime(module, address, version, exact, free_threaded or bool(named and named[3]), found_by)


def _of_cookie(target: Target, address: Optional[int]) -> Tuple[Optional[int], bool]:
    """Return what ``_Py_DebugOffsets`` says: ``PY_VERSION_HEX``, and whether it is a build without the global lock."""
    if address is None:
        return None, False
    try:
        if bytes(target.memory.read(address, len(COOKIE))) != COOKIE:
            return None, False
        free_threaded = target.reader.uint(address + COOKIE_FREE_THREADED, 8)
        return target.reader.uint(address + COOKIE_VERSION, 8), free_threaded == 1
    except FaultError:
        return None, False


def _find_cookie(target: Target, module: Module) -> Optional[int]:
    """Return where a module's variables begin with the debug offsets' cookie and a version behind it, or None."""
    wanted = np.frombuffer(COOKIE, target.abi.word_dtype)[0]
    for start, words in module_words(target, module):
        for at in np.flatnonzero(words[:-1] == wanted).tolist():
            if int(words[at + 1]) >> 24 == 3:
                return int(start + 8 * at)
    return None


def _of_variable(target: Target, module: Module) -> Optional[int]:
    address, _ = _find(target, module, VERSION)
    if address is None:
        return None
    try:
        value = target.reader.uint(address, 4)
    except FaultError:
        return None
    return value if 2 <= value >> 24 <= 4 else None

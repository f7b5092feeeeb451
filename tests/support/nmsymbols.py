"""The symbols of a core's files as ``nm`` lists them: for tests that look at a core without gdb."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Optional, Sequence

from gdbext.coretarget import read_core_target
from gdbext.debuginfo import DebugStruct, Symbol
from gdbext.memory import view
from gdbext.memory.elf.elffile import find_image
from gdbext.process import Module, Thread
from gdbext.target import Target

_DATA = "bBdDrRvVuU"


class NmSymbols:
    """Addresses of variables; no types, nothing thread-local."""

    def __init__(self, target: Target, part: str) -> None:
        self._known: dict[str, list[Symbol]] = {}
        for module in target.modules:
            if part in module.path:
                self._add(target, module)

    def _add(self, target: Target, module: Module) -> None:
        image = find_image(lambda at, size: view(target.memory, at, size), module.base)
        listed = subprocess.run(["nm", "-f", "posix", module.path], capture_output=True, text=True).stdout
        for line in listed.splitlines():
            name, kind, *address = line.split()
            if image is not None and kind in _DATA and address:
                symbol = Symbol(name, image.bias + int(address[0], 16), module.build_id)
                self._known.setdefault(name, []).append(symbol)

    def find_symbols(self, name: str) -> Sequence[Symbol]:
        return self._known.get(name, ())

    def find_structs(self, name: str) -> Sequence[DebugStruct]:
        return ()

    def find_tls(self, name: str, thread: Thread) -> Optional[int]:
        return None

    def find_name(self, address: int) -> Optional[str]:
        return None


def target_of(core: object, part: Optional[str] = "jemalloc") -> Target:
    """Return a core's target, with the symbols of the files whose path contains ``part``; none of any for None."""
    target = read_core_target(str(core))
    return target if part is None else replace(target, symbols=NmSymbols(target, part))

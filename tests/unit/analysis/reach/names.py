"""Names of roots, said by hand."""

from __future__ import annotations

from typing import Iterable, Mapping, Optional

import numpy as np

from gdbext.debuginfo import FramePlace, NoDebugInfo
from gdbext.layout.types import Type
from gdbext.memory.elf.elfsymbols import Variables
from gdbext.process import Module


def variables(rows: Iterable[tuple[str, int, int]], static: Iterable[str] = ()) -> Variables:
    """Return variables of names, addresses and sizes."""
    rows = sorted(rows, key=lambda row: row[1])
    strings, offsets = b"\0", []
    for name, _, _ in rows:
        offsets.append(len(strings))
        strings += name.encode() + b"\0"
    columns = [np.array([row[at] for row in rows], np.uint64) for at in (1, 2)]
    local = np.array([name in set(static) for name, _, _ in rows], np.bool_)
    return Variables(*columns, local, np.array(offsets, np.uint32), strings)


class SaidNames(NoDebugInfo):
    """The port, over tables given."""

    def __init__(
        self,
        data: Optional[Variables] = None,
        own: Optional[Mapping[int, Variables]] = None,
        types: Optional[Mapping[str, Type]] = None,
        frames: Optional[Mapping[tuple[int, int], FramePlace]] = None,
        registers: Optional[Mapping[tuple[int, str], FramePlace]] = None,
    ) -> None:
        self.data, self.own, self._types = data, own or {}, types or {}
        self._frames, self.registers = frames or {}, registers or {}
        self.asked: list[str] = []

    def variables_of(self, module: Module) -> Optional[Variables]:
        return self.data

    def thread_locals_of(self, module: Module, thread: int) -> Optional[Variables]:
        return self.own.get(thread)

    def readable(self, name: str) -> str:
        self.asked.append(name)
        return name

    def find_variable_type(self, name: str, address: int) -> Optional[Type]:
        return self._types.get(name)

    def find_type(self, name: str) -> Optional[Type]:
        return self._types.get(name)

    def find_frame(self, thread: int, address: int) -> Optional[FramePlace]:
        return self._frames.get((thread, address))

    def find_in_register(self, thread: int, register: str, value: int) -> Optional[FramePlace]:
        return self.registers.get((thread, register))

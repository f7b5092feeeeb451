"""What single blocks hold, read one by one: for a few of them, where a search of all would be too much."""

from __future__ import annotations

from itertools import product
from typing import Dict, Optional

from gdbext.heap.cpython.objects.layouts import FENCE, GC_HEAD, MANAGED, OB_TYPE
from gdbext.heap.cpython.objects.objects import PythonObjects, TypeInfo, fitting_layouts, is_its_own_type
from gdbext.memory import Reader

_BEFORE = (0, GC_HEAD, GC_HEAD + MANAGED, MANAGED)
_STEPS = 3  # from a type to ``type``: metaclasses


class BlockNames:
    """Names the types of objects in blocks, be there a fence of the debug mode before them or not."""

    def __init__(self, reader: Reader) -> None:
        self._objects = PythonObjects(reader)
        self._types: Dict[int, Optional[TypeInfo]] = {}

    def find_name(self, address: int) -> Optional[str]:
        """Return the type of the object in the block at an address, "module.Class", or None where it holds none."""
        for before, fence in product(_BEFORE, (0, FENCE)):
            at = before + fence
            count = self._objects.find_word(address, at)
            pointer = self._objects.find_word(address, at + OB_TYPE) if count else None
            info = self._find_type(pointer) if pointer else None
            if info is not None and info.before == before:
                return info.name
        return None

    def _find_type(self, address: int) -> Optional[TypeInfo]:
        if address not in self._types:
            self._types[address] = self._objects.find_type(address) if self._is_type(address) else None
        return self._types[address]

    def _is_type(self, address: int) -> bool:
        """Whether the types above an object end with ``type``, which is its own."""
        reader, above = self._objects.reader, self._objects.find_word(address, OB_TYPE)
        for _ in range(_STEPS):
            if above is None:
                return False
            if is_its_own_type(reader, above):
                self._objects.layouts = self._objects.layouts or fitting_layouts(reader, above)
                return True
            above = self._objects.find_word(above, OB_TYPE)
        return False

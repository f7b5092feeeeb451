"""The target's machine, looked up when asked.

``arch.ptrsize`` (bytes), ``arch.endian`` ("little" or "big"), ``arch.ptrmask``, ``arch.name`` and
``arch.current`` ("x86-64", "i386", "aarch64", …).
"""

from __future__ import annotations

from typing import Any

from gdbext.abi import Abi
from gdbext.bridge.stops import session

_ATTRIBUTES = {
    "ptrsize": lambda abi: abi.pointer_size,
    "endian": lambda abi: abi.byteorder,
    "ptrmask": lambda abi: abi.word_mask,
    "name": lambda abi: abi.machine,
    "current": lambda abi: abi.machine,
}


def __getattr__(name: str) -> Any:
    if name not in _ATTRIBUTES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    abi: Abi = session.current().target.abi
    return _ATTRIBUTES[name](abi)

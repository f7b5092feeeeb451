"""What the first bytes of a block look like, in one short line.

A hint and no more: text that is printable, zeros, a word that points into a module, a heap or a
stack (a vtable, a list link), else hexadecimal.
"""

from __future__ import annotations

import codecs
from typing import Callable, Optional, Sequence

from gdbext.analysis.addresses import Address, Addresses, base_name
from gdbext.errors import FaultError
from gdbext.heap.model import Heap
from gdbext.memory import Reader
from gdbext.target import Target

Namer = Callable[[int], Optional[str]]

LOOKED_AT = 64
_SHOWN_WORDS = 2
_LEAST_TEXT = 4
_UTF8 = codecs.getincrementaldecoder("utf-8")


def contents_hint(reader: Reader, address: int, size: int, name: Optional[Namer] = None) -> str:
    """Return what the first bytes of a block hold: text, pointers, zeros or hexadecimal.

    :param size: usable bytes of the block.
    :param name: says what an address is, or None for no address; see :func:`pointer_namer`.
    """
    length = min(size, LOOKED_AT)
    if length <= 0:
        return "nothing"
    try:
        data = bytes(reader.bytes(address, length, "block contents"))
    except FaultError:
        return "not readable"
    return _text(data) or _pointers(reader, data, name) or _bytes(data, size)


def _text(data: bytes) -> Optional[str]:
    text = data.split(b"\0", 1)[0]
    if len(text) < min(_LEAST_TEXT, len(data)):
        return None
    try:  # the last character may be cut off where the bytes end
        shown = _UTF8().decode(text, final=len(text) < len(data))
    except UnicodeDecodeError:
        return None
    shown = shown.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return f'"{shown}"' if shown.isprintable() and shown else None


def _pointers(reader: Reader, data: bytes, name: Optional[Namer]) -> Optional[str]:
    if name is None:
        return None
    width = reader.abi.pointer_size
    words = [
        int.from_bytes(data[at : at + width], reader.abi.byteorder)
        for at in range(0, len(data) - width + 1, width)
    ]
    named = [(at * width, name(word)) for at, word in enumerate(words) if word]
    parts = [f"+{at:#x} -> {what}" if at else f"-> {what}" for at, what in named if what]
    return ", ".join(parts[:_SHOWN_WORDS]) or None


def _bytes(data: bytes, size: int) -> str:
    if not any(data):
        return "zeros" if len(data) == size else f"zeros in the first {len(data)} bytes"
    shown = data[:16].hex(" ", -8)
    return f"{shown} …" if size > 16 else shown


def pointer_namer(target: Target, heaps: Sequence[Heap]) -> Namer:
    """Return a function that says what an address is: symbol, module, heap block, stack, or None.

    It holds the target's regions; make one for many blocks.
    """
    addresses = Addresses(target, heaps)
    return lambda address: find_pointed(addresses.at(address))


def find_pointed(at: Address) -> Optional[str]:
    """Return in a few words what a word points at when it means an address, or None: it can be no pointer."""
    if at.region is None or "r" not in at.region.permissions:
        return None
    if at.block is not None:
        return f"{at.block.heap.allocator} block {at.block.start:#x}"
    if at.stack is not None:
        return f"stack of thread {at.stack.thread.number}"
    if at.module is not None:
        file = base_name(at.module.path)
        return f"{at.symbol} in {file}" if at.symbol else f"{file}+{at.address - at.module.base:#x}"
    return f"anonymous memory {at.address:#x}" if at.region.anonymous else None

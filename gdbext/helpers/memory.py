"""Reads from the target's memory. Nothing here writes."""

from __future__ import annotations

from typing import Optional

from gdbext.bridge.stops import session
from gdbext.errors import FaultError
from gdbext.memory import Reader


def read(addr: int, count: int, partial: bool = False) -> bytearray:
    """Return ``count`` bytes.

    :param partial: return what can be read from the start on, instead of raising.
    :raises FaultError: when any byte cannot be read (with ``partial``: the first one).
    """
    target = session.current().target
    try:
        return bytearray(target.memory.read(int(addr), count))
    except FaultError:
        if not partial:
            raise
    readable = _readable_bytes(int(addr), count)
    return bytearray(target.memory.read(int(addr), max(readable, 1)))


def peek(address: int) -> Optional[bytearray]:
    """Return the byte at an address, or None when it cannot be read."""
    return read(address, 1) if is_readable(address) else None


def is_readable(address: int) -> bool:
    """Return whether the byte at an address can be read."""
    return _readable_bytes(int(address), 1) == 1


is_readable_address = is_readable


def string(addr: int, max: int = 4096) -> bytearray:
    """Return the bytes before the first NUL; empty when there is none within ``max`` bytes.

    :raises FaultError: when the first byte cannot be read.
    """
    data = read(addr, max, partial=True)
    end = data.find(b"\0")
    return data[:end] if end >= 0 else bytearray()


def u8(addr: int) -> int:
    """Return the unsigned 8-bit integer at an address; errors as :func:`read`."""
    return _reader().uint(int(addr), 1)


def u16(addr: int) -> int:
    """Return the unsigned 16-bit integer at an address; errors as :func:`read`."""
    return _reader().uint(int(addr), 2)


def u32(addr: int) -> int:
    """Return the unsigned 32-bit integer at an address; errors as :func:`read`."""
    return _reader().uint(int(addr), 4)


def u64(addr: int) -> int:
    """Return the unsigned 64-bit integer at an address; errors as :func:`read`."""
    return _reader().uint(int(addr), 8)


def s8(addr: int) -> int:
    """Return the signed 8-bit integer at an address; errors as :func:`read`."""
    return _reader().sint(int(addr), 1)


def s16(addr: int) -> int:
    """Return the signed 16-bit integer at an address; errors as :func:`read`."""
    return _reader().sint(int(addr), 2)


def s32(addr: int) -> int:
    """Return the signed 32-bit integer at an address; errors as :func:`read`."""
    return _reader().sint(int(addr), 4)


def s64(addr: int) -> int:
    """Return the signed 64-bit integer at an address; errors as :func:`read`."""
    return _reader().sint(int(addr), 8)


def pvoid(addr: int) -> int:
    """Return the pointer at an address; errors as :func:`read`."""
    return _reader().word(int(addr))


def _reader() -> Reader:
    return session.current().target.reader


def _readable_bytes(address: int, count: int) -> int:
    """Return how many of ``count`` bytes can be read from ``address`` on, by halving."""
    memory = session.current().target.memory
    known, step = 0, count
    while step:
        try:
            memory.read(address + known, step)
            known += step
            step = min(step, count - known)
        except FaultError:
            step //= 2
    return known

"""Symbols, as gdb knows them: not held against the target's build-ids."""

from __future__ import annotations

from typing import Optional

from gdbext.bridge.stops import session


def lookup(name: str) -> Optional[int]:
    """Return the address of a static or global object, or None."""
    found = session.current().target.symbols.find_symbols(name)
    return found[0].address if found else None


address = lookup


def get(address: int) -> str:
    """Return "symbol+offset" for an address, or ""."""
    return session.current().target.symbols.find_name(int(address)) or ""

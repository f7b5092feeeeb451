"""Finds mallocng: its secret is eight bytes that the kernel gave the process; all that it has begins with them."""

from __future__ import annotations

from typing import List, Optional, Sequence

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.musl.layouts import AREA, area, contexts
from gdbext.heap.musl.model import Location
from gdbext.layout import StructLayout
from gdbext.memory.bulk import words_at
from gdbext.process import Module
from gdbext.report import Evidence
from gdbext.target import Target

_AT_RANDOM = 25
_MOST_REGION = 64 << 20  # bytes of one region that are searched


def find_locations(target: Target, modules: Sequence[Module]) -> List[Location]:
    """Return where mallocng is, in which of some modules; none is an answer."""
    secret = _find_secret(target)
    if not secret:
        return []
    found = (_find_location(target, module, secret) for module in modules)
    return [one for one in found if one is not None]


def _find_secret(target: Target) -> Optional[int]:
    """Return the second word at AT_RANDOM, of which ``malloc`` makes its secret, or None."""
    at = target.auxv.get(_AT_RANDOM)
    try:
        return None if at is None else target.reader.word(at + 8, "AT_RANDOM")
    except FaultError:
        return None


def _find_location(target: Target, module: Module, secret: int) -> Optional[Location]:
    for region in target.index.within(module.base, module.end):
        if not region.readable or not region.writable:
            continue
        try:
            words = words_at(target.memory, target.abi, region.start, min(region.size, _MOST_REGION) // 8)
        except FaultError:
            continue
        for at in np.flatnonzero(words == np.uint64(secret)).tolist():
            address = region.start + 8 * at
            layout = next((one for one in contexts(target.abi) if _fits(target, address, one, secret)), None)
            if layout is not None:
                message = f"mallocng by its secret (AT_RANDOM), context at {address:#x}"
                return Location(address, layout, secret, module, (Evidence("musl", message),))
    return None


def _fits(target: Target, address: int, layout: StructLayout, secret: int) -> bool:
    try:
        if layout.read(target.reader, address, "init_done") != 1:
            return False
        areas = [layout.read(target.reader, address, name) for name in ("meta_area_head", "meta_area_tail")]
        check = area(target.abi)
        return all(one and not one % AREA and check.read(target.reader, one, "check") == secret for one in areas)
    except FaultError:
        return False

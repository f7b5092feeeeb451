"""jemalloc's words in a module's read-only data: the version (``JEMALLOC_VERSION``), the name in its messages."""

from __future__ import annotations

import re
from typing import Iterator

from gdbext.errors import FaultError
from gdbext.memory import Buffer, view
from gdbext.target import Module, Target

_VERSION = re.compile(rb"(\d+\.\d+\.\d+-\d+-g[0-9a-f]{40}|0\.0\.0-0-g0{40})\0")
_NAME = re.compile(rb"<jemalloc>")
_MOST = 64 << 20  # bytes of one module that are searched


def find_versions(target: Target, module: Module) -> list[str]:
    """Return the version strings in a module, each once."""
    found: dict[str, None] = {}
    for data in _contents(target, module):
        found.update((match[1].decode("ascii"), None) for match in _VERSION.finditer(data))
    return list(found)


def may_hold_jemalloc(target: Target, module: Module) -> bool:
    """Whether jemalloc's name is among a module's words, or these are not in the target."""
    if any(_NAME.search(data) for data in _contents(target, module)):
        return True
    return lacks_constants(target, module)


def lacks_constants(target: Target, module: Module) -> bool:
    """Whether read-only parts of a module are not in the target."""
    regions = target.index.within(module.base, module.end)
    return any(region.source == "absent" and not region.writable for region in regions)


def _contents(target: Target, module: Module) -> Iterator[Buffer]:
    for region in target.index.within(module.base, module.end):
        if not region.readable or region.writable or region.size > _MOST:
            continue
        try:
            yield view(target.memory, region.start, region.size)
        except FaultError:
            continue

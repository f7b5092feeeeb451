"""jemalloc's words in a module's read-only data: the version (``JEMALLOC_VERSION``), the name in its messages."""

from __future__ import annotations

import re
from typing import Iterator

from gdbext.errors import FaultError
from gdbext.memory import Buffer, view
from gdbext.process import Module
from gdbext.target import Target

_COMMIT = re.compile(rb"-g[0-9a-f]{40}\0")  # what is rare is looked for first: modules are large
_VERSION = re.compile(rb"\d+\.\d+\.\d+-\d+-g[0-9a-f]{40}\Z")
_LONGEST = 64  # bytes of a version
_NAME = re.compile(rb"<jemalloc>")
_MOST = 64 << 20  # bytes of one module that are searched


def find_versions(target: Target, module: Module) -> list[str]:
    """Return the version strings in a module, each once."""
    found: dict[str, None] = {}
    for data in _contents(target, module):
        for match in _COMMIT.finditer(data):
            end = match.end() - 1
            version = _VERSION.search(bytes(data[max(0, end - _LONGEST) : end]))
            if version is not None:
                found[version[0].decode("ascii")] = None
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

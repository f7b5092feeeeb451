"""``python types|blocks|garbage``: CPython's objects and allocator."""

from __future__ import annotations

from typing import Any

from gdbext.analysis.python.garbage import garbage_report
from gdbext.analysis.python.report import types_report
from gdbext.analysis.reach.model import PLAIN
from gdbext.heap.cpython.report.blocks import blocks as report_blocks
from gdbext.report import Report


def types(session: Any, arguments: Any) -> Report:
    """Return the objects by type."""
    return types_report(session.reach(PLAIN), session.progress)


def blocks(session: Any, arguments: Any) -> Report:
    """Return how pools and arenas are used."""
    return report_blocks(session.heaps_of("pymalloc"))


def garbage(session: Any, arguments: Any) -> Report:
    """Return the objects that only the collector still knows."""
    return garbage_report(session.reach(PLAIN), session.settings.get("max-memory", 0), session.progress)

"""``blocks summary``: all blocks by state, arena and size. It loads nothing of reachability."""

from __future__ import annotations

from typing import Any

from gdbext.analysis.blocks import summary
from gdbext.report import Report


def summarise(session: Any, arguments: Any) -> Report:
    """Return all blocks by state, arena and size."""
    return summary.summary(session.heaps(), arguments.flag("exact"))

"""``rss``: every byte of the target's memory attributed to one owner."""

from __future__ import annotations

from typing import Any

from gdbext.analysis.footprint import ledger
from gdbext.analysis.footprint.residency import residency_of
from gdbext.report import Report


def account(context: Any, arguments: Any) -> Report:
    """Return the memory ledger."""
    known = residency_of(context.target)
    return ledger.rss(context.target, context.heaps(), known)

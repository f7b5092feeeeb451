"""``rss``: every byte of the target's memory attributed to one owner."""

from __future__ import annotations

from typing import Any

from gdbext.analysis.footprint import ledger
from gdbext.analysis.footprint.residency import residency_of
from gdbext.report import Report


def account(session: Any, arguments: Any) -> Report:
    """Return the memory ledger."""
    known = residency_of(session.target)
    return ledger.rss(session.target, session.heaps(), known)

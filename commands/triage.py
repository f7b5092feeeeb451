"""``triage``: the findings and the ledger on one page."""

from __future__ import annotations

from typing import Any

from gdbext.analysis import triage
from gdbext.analysis.residency import residency_of
from gdbext.report import Report


def examine(context: Any, arguments: Any) -> Report:
    """Return what is wrong with the target's memory, and where it is."""
    known = residency_of(context.target, context.progress)  # before the heaps: reading brings pages in
    return triage.triage(context.target, context.heaps(), context.settings, known)

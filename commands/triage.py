"""``triage``: the findings and the ledger on one page."""

from __future__ import annotations

from typing import Any

from gdbext.analysis.triage import triage
from gdbext.report import Report


def examine(session: Any, arguments: Any) -> Report:
    """Return what is wrong with the target's memory, and where it is."""
    return triage(session, arguments.flag("leaks"))

"""``slabskew``: how evenly the entries of a hash table lie in its bins."""

from __future__ import annotations

from typing import Any

from gdbext.commands.walklist import open_expression, walk_opened

from gdbext.analysis.tables import skew
from gdbext.report import Report


def examine(session: Any, arguments: Any) -> Report:
    """Return the distribution of a table or group of tables, with what is wrong with it."""
    opened = open_expression(session, arguments, arguments.expression)
    skew.check_bins_of(opened)
    walked = walk_opened(session, opened, arguments)
    return skew.skew_report(opened, skew.examine(session.target, opened.structure, walked, session.settings))

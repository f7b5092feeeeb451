"""The variables that may be hash tables, for commands that look for tables by themselves."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, Sequence

from gdbext.analysis import tablesearch
from gdbext.analysis.tablesearch import Looked
from gdbext.analysis.triage import NOTHING, Beyond
from gdbext.report import Evidence
from gdbext.structures.anchored import anchors
from gdbext.structures.types import Located


class TableVariables:
    """The variables of the program that may be tables, found within ``set gx table-search-seconds``.

    :ivar found: none where the program knows no type of a table, or the setting is 0.
    :ivar complete: whether all variables were looked at.
    :raises KeyboardInterrupt: the user stopped it.
    """

    def __init__(self, context: Any) -> None:
        self._seconds = context.settings.get(tablesearch.SETTING, 0)
        self.found: Sequence[Located] = ()
        self.complete = True
        shapes = tablesearch.table_shapes(context.shapes) if self._seconds else None
        if shapes is not None and tablesearch.may_have_tables(context.types, shapes):
            discovery = context.find_variables(tablesearch.matcher(shapes), tablesearch.MOST, self._seconds)
            self.found = list(discovery)
            self.complete = discovery.complete
        if self._seconds:
            named = map(context.types.find_global, anchors(context.shapes))
            self.found = [*(found for found in named if found is not None), *self.found]

    @property
    def evidence(self) -> Iterator[Evidence]:
        """What was not looked at."""
        if not self.complete:
            text = f"not every variable was looked at in {self._seconds} s; "
            yield Evidence("tables", f"{text}set gx {tablesearch.SETTING} N gives it more")


def judge_tables(context: Any, each: Callable[[Looked], None] = lambda looked: None) -> Beyond:
    """Return what is wrong with the hash tables that the program's variables lead to.

    :param each: is told of each table.
    """
    variables = _find_variables(context)
    if variables is None:
        return Beyond(complete=False)
    if not variables.found:
        return NOTHING
    found = tablesearch.search(
        context.target,
        context.types,
        context.shapes,
        variables.found,
        context.settings,
        context.progress,
        each,
    )
    return Beyond(found.findings, [*found.evidence, *variables.evidence], found.complete)


def find_tables(context: Any, each: Callable[[Looked], None]) -> Beyond:
    """Look at the same tables without a judgement; what there is to say of the search itself.

    :param each: is told of each table.
    """
    variables = _find_variables(context)
    if variables is None:
        return Beyond(complete=False)
    seconds = context.settings.get(tablesearch.SETTING, 0)
    tables = tablesearch.for_each_table(
        context.target, context.types, context.shapes, variables.found, context.progress, seconds
    )
    complete = True
    try:
        for looked in tables:
            each(looked)
    except KeyboardInterrupt:
        complete = False
    return Beyond((), [*tables.evidence, *variables.evidence], complete)


def _find_variables(context: Any) -> Optional[TableVariables]:
    try:
        return TableVariables(context)
    except KeyboardInterrupt:
        return None

"""The variables that may be hash tables, for commands that look for tables by themselves."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from gdbext.analysis.missing import Unexamined
from gdbext.analysis.tables import search
from gdbext.analysis.tables.search import Looked
from gdbext.analysis.triage import Beyond
from gdbext.layout.types import Located
from gdbext.structures.shapes.anchored import anchors
from gdbext.wording import grouped


class TableVariables:
    """The variables of the program that may be tables, of as many as ``set gx table-search-variables`` says.

    :ivar found: none where the program knows no type of a table, or the setting is 0.
    :ivar unexamined: why there may be more.
    :raises KeyboardInterrupt: the user stopped it.
    """

    def __init__(self, context: Any) -> None:
        most = search.allowed(context.settings.get(search.VARIABLES, 0), context.target)
        self.found: Sequence[Located] = ()
        self.unexamined: Sequence[Unexamined] = ()
        shapes = search.table_shapes(context.shapes)
        if search.may_have_tables(context.types, shapes):
            discovery = context.find_variables(search.matcher(shapes), search.MOST, most)
            self.found = list(discovery)
            if not discovery.complete:
                self.unexamined = [_cut_short(most)]
        if most:
            named = map(context.types.find_global, anchors(context.shapes))
            self.found = [*(found for found in named if found is not None), *self.found]


def _cut_short(most: int) -> Unexamined:
    why = f"stopped after {grouped(most)} variables"
    return Unexamined(search.WHAT, why, f"set gx {search.VARIABLES} N")


def judge_tables(context: Any, each: Callable[[Looked], None] = lambda looked: None) -> Beyond:
    """Return what is wrong with the hash tables that the program's variables lead to.

    :param each: is told of each table.
    """
    variables = _find_variables(context)
    if variables is None:
        return Beyond(unexamined=[search.INTERRUPTED])
    if not variables.found:
        return Beyond(unexamined=variables.unexamined)
    found = search.search(
        context.target,
        context.types,
        context.shapes,
        variables.found,
        context.settings,
        context.progress,
        each,
    )
    return Beyond(found.findings, found.evidence, [*found.unexamined, *variables.unexamined])


def find_tables(context: Any, each: Callable[[Looked], None] = lambda looked: None) -> Beyond:
    """Look at the same tables without a judgement; what there is to say of the search itself.

    :param each: is told of each table.
    """
    variables = _find_variables(context)
    if variables is None:
        return Beyond(unexamined=[search.INTERRUPTED])
    tables = search.for_each_table(
        context.target, context.types, context.shapes, variables.found, context.progress, context.settings
    )
    interrupted: Sequence[Unexamined] = ()
    try:
        for looked in tables:
            each(looked)
    except KeyboardInterrupt:
        interrupted = [search.INTERRUPTED]
    return Beyond((), tables.evidence, [*tables.unexamined, *variables.unexamined, *interrupted])


def _find_variables(context: Any) -> Optional[TableVariables]:
    try:
        return TableVariables(context)
    except KeyboardInterrupt:
        return None

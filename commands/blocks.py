"""``blocks list`` and ``blocks at``: the heap's blocks, whatever the allocator."""

from __future__ import annotations

import re
from typing import Any, Optional, Tuple

from gdbext.commands.reachability import read_known, read_reach

from gdbext.analysis.blocks import listing, place, summary
from gdbext.analysis.blocks.dump import USUAL
from gdbext.analysis.blocks.livefacts import Live, count_references
from gdbext.analysis.blocks.querycolumns import Needs
from gdbext.errors import UsageError
from gdbext.report import Report

_RANGE = re.compile(r"\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*-\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*")


def list_blocks(session: Any, arguments: Any) -> Report:
    """Return the blocks that pass the filters."""
    filters = read_filters(session, arguments)
    manner = read_manner(arguments)
    needs = listing.needs_of(filters, manner)
    if not needs.reach:
        return listing.listing(session.heaps(), filters, manner)
    live = read_live(session, arguments, needs)
    return listing.listing(live.reach.heaps, filters, manner, live)


def read_live(session: Any, arguments: Any, needs: Needs) -> Live:
    """Return what can be reached, and what else is needed of it."""
    reach = read_reach(session, arguments)
    types = session.block_types(reach) if needs.types else None
    return Live(reach, types, count_references(reach) if needs.refs else None)


def read_manner(arguments: Any) -> listing.Manner:
    """Return how the blocks are to be listed.

    :raises UsageError: for a field or column that is none.
    """
    sort, columns = arguments.value("sort"), arguments.value("columns")
    return listing.Manner(
        listing.read_sort(sort) if sort is not None else (),
        listing.read_columns(columns) if columns is not None else None,
        bool(arguments.value("count")),
    )


def describe(session: Any, arguments: Any) -> Report:
    """Return what is at an address."""
    address = session.evaluate(arguments.expression)
    heaps = session.heaps()
    words = arguments.value("words")
    known, notes = read_known(session, arguments, heaps)
    if known.live is not None:
        heaps = known.live.reach.heaps
    return place.describe(heaps, session.target, address, USUAL if words is None else words, known, notes)


def read_filters(session: Any, arguments: Any) -> listing.Filters:
    """Return what the options and the range ask for.

    :raises UsageError: for an unknown state, a query that cannot be understood, or what is no range.
    """
    states, arena, where = (arguments.value(name) for name in ("state", "arena", "where"))
    start, end = read_range(arguments.expression)
    return listing.Filters(
        summary.states_named(states) if states is not None else None,
        arguments.value("min-size"),
        arguments.value("max-size"),
        session.evaluate(arena) if arena is not None else None,
        start,
        end,
        listing.read_query(where) if where is not None else None,
    )


def read_range(text: str) -> Tuple[Optional[int], Optional[int]]:
    """Return the bounds that "START-END" names; no bounds for no text.

    :raises UsageError: when it is not two numbers, the first below the second.
    """
    if not text:
        return None, None
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a range", "write START-END, such as 0x5555000-0x5556000")
    start, end = (int(number, 16 if number[:2].lower() == "0x" else 10) for number in match.groups())
    if start >= end or end > 1 << 64:
        raise UsageError(f"{text!r} is empty or beyond any address", "write the lower address first")
    return start, end

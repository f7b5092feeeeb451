"""``blocks summary``, ``blocks list`` and ``blocks at``: the heap's blocks, whatever the allocator."""

from __future__ import annotations

import re
from typing import Any, Optional, Sequence, Tuple

from gdbext.analysis import blocks, listing, place
from gdbext.analysis.blocktypes.model import BlockTypes
from gdbext.analysis.dump import USUAL
from gdbext.analysis.livefacts import Live, count_references
from gdbext.analysis.querycolumns import Needs
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.naming import Places
from gdbext.errors import TooLargeError, UsageError
from gdbext.heap.model import Heap
from gdbext.report import Report

_FEW_BLOCKS = 1 << 20
_NO_TAGS = 0xFFF000  # bits 12 to 23: no machine has tags there, and blocks differ in them
_SLOW = "take a while in so large a heap: --reach works them out"
_RANGE = re.compile(r"\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*-\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*")


def summarise(context: Any, arguments: Any) -> Report:
    """Return all blocks by state, arena and size."""
    return blocks.summary(context.heaps())


def list_blocks(context: Any, arguments: Any) -> Report:
    """Return the blocks that pass the filters."""
    filters = read_filters(context, arguments)
    manner = read_manner(arguments)
    needs = listing.needs_of(filters, manner)
    if not needs.reach:
        return listing.listing(context.heaps(), filters, manner)
    live = read_live(context, arguments, needs)
    return listing.listing(live.reach.heaps, filters, manner, live)


def read_live(context: Any, arguments: Any, needs: Needs) -> Live:
    """Return what can be reached, and what else is needed of it."""
    reach = context.reach(read_clear(context, arguments))
    types = context.block_types(reach) if needs.types else None
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


def describe(context: Any, arguments: Any) -> Report:
    """Return what is at an address."""
    if not arguments.expression:
        raise UsageError("an address is missing", "blocks at ADDRESS")
    address = context.evaluate(arguments.expression)
    heaps = context.heaps()
    words = arguments.value("words")
    known, notes = read_known(context, arguments, heaps)
    if known is not None:
        heaps = known.live.reach.heaps
    return place.describe(heaps, context.target, address, USUAL if words is None else words, known, notes)


def read_known(context: Any, arguments: Any, heaps: Sequence[Heap]) -> Tuple[Optional[place.Known], Sequence[str]]:
    """Return reachability where it is asked for, or at hand, or soon worked out; else None and a note.

    A core need not be copied, so reachability is soon worked out there; types are where blocks are few.
    """
    clear, blocks_in_all = read_clear(context, arguments), sum(len(heap.blocks) for heap in heaps)
    asked, few = bool(arguments.value("reach")), blocks_in_all <= _FEW_BLOCKS
    if not asked and context.known_reach(clear) is None:
        if not blocks_in_all:
            return None, ()
        if context.target.live and not few:
            return None, [f"reachability, type and pointers {_SLOW}"]
    try:
        reach = context.reach(clear)
    except TooLargeError as error:
        if asked:
            raise
        return None, [f"no reachability, type and pointers: {error}"]
    types, notes = find_types(context, reach) if asked or few else (None, [f"types {_SLOW}"])
    names = Places(reach, context.root_names, lambda: types)
    return place.Known(Live(reach, types), names, context.types), notes


def find_types(context: Any, reach: Reach) -> Tuple[Optional[BlockTypes], Sequence[str]]:
    """Return the types of all blocks; None, and a note, where that was stopped."""
    try:
        return context.block_types(reach), ()
    except KeyboardInterrupt:
        return None, ["stopped while types were looked for: they are left out"]


def read_clear(context: Any, arguments: Any) -> int:
    """Return the bits that are tags.

    :raises UsageError: when that is no number, or takes bits without which no pointer would be left.
    """
    asked = arguments.value("clear")
    if not asked:
        return 0
    try:
        clear = int(context.evaluate(asked))
    except UsageError as error:
        raise UsageError(f"--clear: {error.message}", error.hint) from error
    if clear & _NO_TAGS:
        raise UsageError(
            f"--clear: {clear:#x} would take the bits that tell blocks apart",
            "name the tags alone: 0x7 in low bits, 0xff00000000000000 in the top byte",
        )
    return clear


def read_filters(context: Any, arguments: Any) -> listing.Filters:
    """Return what the options and the range ask for.

    :raises UsageError: for an unknown state, a query that cannot be understood, or what is no range.
    """
    states, arena, where = (arguments.value(name) for name in ("state", "arena", "where"))
    start, end = read_range(arguments.expression)
    return listing.Filters(
        blocks.states_named(states) if states is not None else None,
        arguments.value("min-size"),
        arguments.value("max-size"),
        context.evaluate(arena) if arena is not None else None,
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

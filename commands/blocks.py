"""``blocks summary``, ``blocks list`` and ``blocks at``: the heap's blocks, whatever the allocator."""

from __future__ import annotations

import re
from typing import Any, Optional, Tuple

from gdbext.analysis import blocks, listing, place
from gdbext.errors import UsageError
from gdbext.report import Report

_RANGE = re.compile(r"\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*-\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*")


def summarise(context: Any, arguments: Any) -> Report:
    """Return all blocks by state, arena and size."""
    return blocks.summary(context.heaps())


def list_blocks(context: Any, arguments: Any) -> Report:
    """Return the blocks that pass the filters."""
    filters = read_filters(context, arguments)
    return listing.listing(context.heaps(), filters)


def describe(context: Any, arguments: Any) -> Report:
    """Return what is at an address."""
    if not arguments.expression:
        raise UsageError("an address is missing", "blocks at ADDRESS")
    address = context.evaluate(arguments.expression)
    return place.describe(context.heaps(), context.target, address)


def read_filters(context: Any, arguments: Any) -> listing.Filters:
    """Return what the options and the range ask for.

    :raises UsageError: for an unknown state, or what is no range.
    """
    states, arena = arguments.value("state"), arguments.value("arena")
    start, end = read_range(arguments.expression)
    return listing.Filters(
        blocks.states_named(states) if states is not None else None,
        arguments.value("min-size"),
        arguments.value("max-size"),
        context.evaluate(arena) if arena is not None else None,
        start,
        end,
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

"""``glibc arenas|heaps|chunks|bins|tcache|mmapped|check|trim``: the ptmalloc heap, part by part."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Optional, Tuple

from gdbext.commands.blocks import read_range

from gdbext.analysis.blocks.contents import contents_hint, pointer_namer
from gdbext.analysis.blocks.summary import states_named
from gdbext.analysis.footprint.runlist import largest_runs
from gdbext.errors import UsageError
from gdbext.heap.glibc.report import reports
from gdbext.heap.glibc.report import trim as trimming
from gdbext.report import Report

_RANGE = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+)\s*-\s*(0[xX][0-9a-fA-F]+|[0-9]+)")


def arenas(session: Any, arguments: Any) -> Report:
    """Return every arena with exact sums."""
    return reports.arenas(session.heap("glibc").detail)


def heaps(session: Any, arguments: Any) -> Report:
    """Return every stretch that an arena took from the system."""
    return reports.heaps(session.heap("glibc").detail)


def chunks(session: Any, arguments: Any) -> Report:
    """Return the chunks that pass the filters."""
    states = arguments.value("state")
    chosen = None if states is None else tuple(states_named(states))
    sizes = (arguments.value("min-size"), arguments.value("max-size"))
    arena, span = _place(session, arguments.expression)
    return reports.chunks(session.heap("glibc").detail, reports.ChunkFilter(chosen, sizes, arena, span))


def _place(session: Any, text: str) -> Tuple[Optional[int], Optional[Tuple[int, int]]]:
    """Return the arena, or the range, that the expression names."""
    if not text:
        return None, None
    if _RANGE.fullmatch(text) is None:
        return session.evaluate(text), None
    start, end = read_range(text)
    return None, (start or 0, end or 0)


def bins(session: Any, arguments: Any) -> Report:
    """Return every free list that holds something."""
    arena = session.evaluate(arguments.expression) if arguments.expression else None
    return reports.bins(session.heap("glibc").detail, arena)


def tcache(session: Any, arguments: Any) -> Report:
    """Return every thread's cache, or one."""
    number = arguments.value("thread")
    if number is not None and session.target.find_thread(number) is None:
        raise UsageError(f"no thread {number}", "`info threads` lists them")
    return reports.tcache(session.heap("glibc").detail, number)


def mmapped(session: Any, arguments: Any) -> Report:
    """Return the chunks that have a mapping of their own."""
    return reports.mmapped(session.heap("glibc").detail)


def check(session: Any, arguments: Any) -> Report:
    """Return every violated invariant."""
    return reports.check(session.heap("glibc").detail)


def trim(session: Any, arguments: Any) -> Report:
    """Return what could be given back, and what keeps the rest."""
    heap, target = session.heap("glibc"), session.target
    namer = pointer_namer(target, session.heaps())
    pins = tuple(_with_contents(target, pin, namer) for pin in trimming.find_pins(heap.detail))
    rows = tuple(trimming.trim_rows(heap.detail))
    total = sum(row.trimmable_bytes for row in rows)
    runs = largest_runs(heap, target.abi.page_size)
    return reports.report_of(heap.detail, trimming.TrimReport(total, rows, pins, runs))


def _with_contents(target: Any, pin: trimming.Pin, namer: Any) -> trimming.Pin:
    if pin.address is None or pin.size is None:
        return pin
    return replace(pin, contents=contents_hint(target.reader, pin.address, pin.size, namer))

"""Samples as lines of text: a table that fits a terminal, or one line for each sample."""

from __future__ import annotations

import time
from typing import Iterator, List, NamedTuple, Optional, Sequence

from gdbext.analysis.growth import sample as kinds
from gdbext.recording.history import Course, History
from gdbext.render.style import Style
from gdbext.render.values import shorten
from gdbext.wording import count_text, grouped, per_cent, printable, size_text

_FIGURE, _GAP = 12, 2  # characters of a column of figures, and before a curve
_FIGURES = ("now", "change", "since first")
_LEAST_NAME, _MOST_NAME = 18, 44
_LEAST_CURVE, _MOST_CURVE = 8, 60
_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
_FLAT = 0.02  # of a value: what changes by less is shown with little slope
_MOST_OWNERS, _LEAST_OWNER = 6, 0.01  # owners that are shown, and of what share of memory at least
_SEARCHED = (kinds.TYPE, kinds.SIZE, kinds.TABLE, kinds.ROOT, kinds.LEAK, kinds.ARENA)  # for what grew
_TOTALS = {kinds.MEMORY: "", kinds.MAPPED: "address space", kinds.THREADS: "threads", kinds.ARENAS: "arenas"}
_FORMS = {
    kinds.TYPE: "type {}",
    kinds.SIZE: "blocks of {} bytes",
    kinds.TABLE: "entries of {}",
    kinds.ROOT: "kept by {}",
    kinds.LEAK: "leaked: {}",
    kinds.ARENA: "arena {}",
}


def sparkline(values: Sequence[Optional[int]], width: int, plain: bool = False) -> str:
    """Return the last values as bars of different heights, the lowest of them lowest; a space where one is missing.

    :param width: characters at most.
    :param plain: only ASCII.
    """
    shown = list(values)[-width:]
    known = [value for value in shown if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    span, bars = max(high - low, _FLAT * high, 1), _ASCII_BARS if plain else _BARS
    return "".join(" " if value is None else bars[int((value - low) / span * 7 + 0.5)] for value in shown)


def screen(
    history: History, notes: Sequence[str], width: int, height: int, color: bool = False, plain: Optional[bool] = None
) -> List[str]:
    """Return the lines that a terminal shows.

    :param notes: what happened, the newest last.
    :param width: characters of a line at most.
    :param height: lines at most, 1 at least.
    :param color: whether escapes may be written.
    :param plain: only ASCII of our own; None asks the locale.
    """
    style = Style(color, plain)
    if history.last is None:
        return [shorten(printable(note), width) for note in [*notes, "waiting for the first sample"][-height:]]
    lines = [style.paint(shorten(_title(history), width), "title"), *_table(history, width, style)]
    shown = [style.paint(shorten(printable(note), width), "dim") for note in notes]
    room = max(height - len(shown) - 1, 1) if shown else height
    return [style.finish(line) for line in [*lines[:room], *([""] if shown else []), *shown][:height]]


def _title(history: History) -> str:
    last = history.last
    assert last is not None
    name, seconds = printable(last.process.program or "?"), (last.time or 0.0) - history.began
    parts = [name, f"pid {last.process.pid}", clock_text(last.time)]
    parts.append(f"{count_text(history.count, 'sample')} in {_duration_text(seconds)}")
    if history.count > 1 and seconds > 0:
        parts.append(f"stands still {per_cent(history.held / seconds)} of the time")
    return " · ".join([*parts, *([] if last.complete else ["not complete"])])


class _Layout(NamedTuple):
    """Characters of a name, columns of figures, characters of a curve."""

    name: int
    figures: int
    curve: int


def _lay_out(names: Sequence[str], width: int) -> _Layout:
    """Return what there is room for: figures first, then names, then curves."""
    longest = min(max(map(len, names), default=0), _MOST_NAME)
    figures = min(max((width - _LEAST_NAME) // _FIGURE, 1), len(_FIGURES))
    room = max(width - figures * _FIGURE, 0)
    curve = min(max(room - longest - _GAP, _LEAST_CURVE), _MOST_CURVE)
    curve = curve if room - curve - _GAP >= _LEAST_NAME else 0
    left = room - curve - (_GAP if curve else 0)
    return _Layout(min(max(longest, _LEAST_NAME), left), figures, curve)


def _table(history: History, width: int, style: Style) -> Iterator[str]:
    rows = [("memory", _main(history)), ("grown most", _grown(history))]
    layout = _lay_out([_name(course, history) for _, courses in rows for course in courses], width)
    for title, courses in rows:
        if courses:
            yield ""
            heads = "".join(head.rjust(_FIGURE) for head in _FIGURES[: layout.figures])
            yield style.paint(shorten(title, layout.name).ljust(layout.name) + heads, "header")
            for course in courses:
                yield _row(course, _name(course, history), layout, style)


def _main(history: History) -> List[Course]:
    totals, heap = _totals(history), [course for course in history.courses(kinds.HEAP) if course.now]
    shown = {course.key for course in heap}
    least = _LEAST_OWNER * max((course.now or 0 for course in totals if course.key == kinds.MEMORY), default=0)
    owners = [one for one in history.courses(kinds.OWNER) if one.key not in shown and (one.now or 0) > least]
    return [*totals, *heap, *owners[:_MOST_OWNERS]]


def _totals(history: History) -> List[Course]:
    found = {course.key: course for course in history.courses(kinds.TOTAL)}
    return [found[key] for key in _TOTALS if key in found]


def _grown(history: History) -> List[Course]:
    """Return what has grown since the first sample, the most bytes first."""
    found = [course for kind in _SEARCHED for course in history.courses(kind)]
    grown = [course for course in found if course.key != kinds.OTHER and (course.growth or 0) > 0]
    return sorted(grown, key=lambda course: (not course.is_bytes, -(course.growth or 0)))


def _name(course: Course, history: History) -> str:
    assert history.last is not None
    if course.key == kinds.OTHER:
        return "others"
    if course.kind == kinds.TOTAL:
        return _TOTALS[course.key] or history.last.measure
    return _FORMS.get(course.kind, "{}").format(printable(course.key))


def _row(course: Course, name: str, layout: _Layout, style: Style) -> str:
    figures = [_amount(course.now, course), _signed(course.change, course), _signed(course.growth, course)]
    texts = [text.rjust(_FIGURE) for text in figures[: layout.figures]]
    line = shorten(name, layout.name).ljust(layout.name) + "".join([style.paint(texts[0], "number"), *texts[1:]])
    drawn = sparkline(list(course.values), layout.curve, style.plain) if layout.curve else ""
    return f"{line}{' ' * _GAP}{drawn}".rstrip()


def _amount(value: Optional[int], course: Course) -> str:
    return "?" if value is None else size_text(value) if course.is_bytes else grouped(value)


def _signed(value: Optional[int], course: Course) -> str:
    if not value:
        return "" if value is None else "0"
    return ("+" if value > 0 else "−") + _amount(abs(value), course)


def sample_line(history: History) -> str:
    """Return the last sample as one line."""
    last = history.last
    assert last is not None
    used = [course for course in history.courses(kinds.HEAP) if course.key.endswith(kinds.IN_USE)]
    parts = [_figure_text(course, history) for course in [*_totals(history), *used]]
    held = "" if last.held_seconds is None else f", stood still {last.held_seconds * 1000:.0f} ms"
    return f"{clock_text(last.time)}  pid {last.process.pid}  {', '.join(parts)}{held}"


def _figure_text(course: Course, history: History) -> str:
    change = f" ({_signed(course.change, course)})" if course.change else ""
    return f"{_name(course, history)} {_amount(course.now, course)}{change}"


def clock_text(moment: Optional[float]) -> str:
    """Return the time of day of a moment, seconds since the epoch, as it is here."""
    return "?" if moment is None else time.strftime("%H:%M:%S", time.localtime(moment))


def _duration_text(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"

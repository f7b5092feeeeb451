"""Figures over time as lines: where the points go, what stands at the axes and beside the ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

from gdbext.render.page.texts import count, fixed, size, text
from gdbext.wording import span_text

WIDTH, HEIGHT = 1000, 320
LEFT, RIGHT, TOP, BOTTOM = 74, 236, 14, 34  # room for what is written around the lines
_ACROSS, _DOWN = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
_APART = 15  # from label to label
_TICKS = 5
_LABEL = 31  # characters
_DOTTED = 60  # samples, up to which each is a dot
_SPANS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000,
)  # fmt: skip

Values = Sequence[Optional[int]]


@dataclass(frozen=True)
class Line:
    """One figure of a chart.

    :param name: what it is of.
    :param values: of each sample; None where it is not known: there is a gap.
    """

    name: str
    values: Values


@dataclass(frozen=True)
class Axis:
    """Which values are written at an axis, and what lies at its end."""

    marks: Sequence[Tuple[str, str]]  # place and text
    end: float


def chart(lines: Sequence[Line], samples: Sequence[Mapping[str, Any]], sized: bool) -> Mapping[str, Any]:
    """Return the picture of some figures.

    :param samples: of the document, in the order of time.
    :param sized: whether values are bytes, else counts.
    """
    places, across = _across(samples)
    written = size if sized else count
    most = max((value for line in lines for value in line.values if value is not None), default=0)
    down = upright(most, TOP, _DOWN, sized=sized)
    drawn = [_line(line, places, down.end, len(samples) <= _DOTTED) for line in lines]
    return {
        "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "bottom": HEIGHT - BOTTOM, "top": TOP,
        "across": across.marks, "down": down.marks, "timed": is_timed(samples),
        "lines": [{**line, "label": label} for line, label in zip(drawn, _labels(lines, down.end, written))],
        "moments": list(_moments(lines, samples, places, written)),
        "gaps": any(None in line.values for line in lines), "partial": not all(one["complete"] for one in samples),
    }  # fmt: skip


def _moment_text(sample: Mapping[str, Any]) -> str:
    """Return which sample it is, and when."""
    seconds = sample["seconds"]
    return f"sample {sample['number']}" + ("" if seconds is None else f", +{span_text(seconds)}")


def is_timed(samples: Sequence[Mapping[str, Any]]) -> bool:
    """Whether it is known when each sample was."""
    return all(one["seconds"] is not None for one in samples)


# -- axes


def _across(samples: Sequence[Mapping[str, Any]]) -> Tuple[Sequence[float], Axis]:
    """Return where each sample is, and the axis: by time, or where that is not known by their numbers."""
    timed = is_timed(samples)
    at = [one["seconds"] if timed else one["number"] - 1 for one in samples]
    whole = at[-1] or 1
    step = next((one for one in _SPANS if whole / one <= 7), whole) if timed else max(len(samples) // 8, 1)
    marks = [
        (fixed(_x(value / whole)), _when(value) if timed else text(round(value) + 1))
        for value in _multiples(step, whole)
    ]
    return [_x(value / whole) for value in at], Axis(marks, whole)


def _when(seconds: float) -> str:
    return f"+{span_text(seconds)}" if seconds else "0"


def _multiples(step: float, last: float) -> Iterator[float]:
    return (step * number for number in range(int(last / step) + 1))


def upright(most: int, top: float, height: float, *, sized: bool) -> Axis:
    """Return the axis of values from 0 to the greatest, or somewhat beyond.

    :param top: where its end is; 0 is so much below.
    :param sized: whether values are bytes, else counts.
    """
    step = _round_size(most) if sized else _round_count(most)
    end = step * max(-(-most // step), 1)
    written = size if sized else count
    marks = [(fixed(top + height * (1 - value / end)), written(round(value))) for value in _multiples(step, end)]
    return Axis(marks, end)


def _round_size(most: int) -> int:
    """Return a power of two of which at most five make the greatest value."""
    step = 1
    while most > _TICKS * step:
        step *= 2
    return step


def _round_count(most: int) -> int:
    steps = (digit * 10**power for power in range(19) for digit in (1, 2, 5))
    return next((step for step in steps if most <= _TICKS * step), most)


def _x(share: float) -> float:
    return LEFT + _ACROSS * share


def _y(share: float) -> float:
    return TOP + _DOWN * (1 - share)


# -- lines


def _line(line: Line, places: Sequence[float], end: float, dotted: bool) -> Mapping[str, Any]:
    runs = [[(fixed(places[at]), fixed(_y(value / end))) for at, value in run] for run in _runs(line.values)]
    path = "".join("M" + "L".join(f"{x} {y}" for x, y in run) for run in runs)
    dots = [point for run in runs if dotted or len(run) == 1 for point in run]
    return {"name": text(line.name), "path": path, "dots": dots}


def _runs(values: Values) -> Iterator[Sequence[Tuple[int, int]]]:
    """Iterate over stretches of values that are known, each with its position."""
    run: List[Tuple[int, int]] = []
    for at, value in enumerate(values):
        if value is not None:
            run.append((at, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _labels(lines: Sequence[Line], end: float, written: Any) -> Sequence[Mapping[str, Any]]:
    """Return what stands at the end of each line, none over another."""
    ends = [next((value for value in reversed(line.values) if value is not None), 0) for line in lines]
    wanted = [_y(value / end) for value in ends]
    order = sorted(range(len(lines)), key=lambda at: wanted[at])
    placed = _spread([wanted[at] for at in order])
    found: List[Mapping[str, Any]] = [{}] * len(lines)
    for at, y in zip(order, placed):
        line = lines[at]
        now = line.values[-1]
        value = "not known now" if now is None else written(now)
        name = text(line.name, max(_LABEL - len(value) - 1, 8))
        found[at] = {"y": fixed(y), "from": fixed(wanted[at]), "name": name, "value": value}
    return found


def _spread(wanted: Sequence[float]) -> Sequence[float]:
    """Return places that are far enough from each other, in the same order and as near to those wanted as fits."""
    placed: List[float] = []
    for y in wanted:
        placed.append(max(y, placed[-1] + _APART) if placed else max(y, TOP))
    lowest = float(HEIGHT - BOTTOM)
    for at in reversed(range(len(placed))):
        placed[at] = min(placed[at], lowest)
        lowest = placed[at] - _APART
    return placed


def _moments(
    lines: Sequence[Line], samples: Sequence[Mapping[str, Any]], places: Sequence[float], written: Any
) -> Iterator[Mapping[str, Any]]:
    """Iterate over the stretches of the picture that are nearest to each sample, with what is known of it."""
    bounds = [LEFT, *((one + other) / 2 for one, other in zip(places, places[1:])), WIDTH - RIGHT]
    for at, sample in enumerate(samples):
        values = "; ".join(f"{text(line.name, 60)} {_value(line.values[at], written)}" for line in lines)
        whole = "" if sample["complete"] else ", not examined to its end"
        yield {
            "x": fixed(bounds[at]), "w": fixed(bounds[at + 1] - bounds[at]), "at": fixed(places[at]),
            "complete": sample["complete"], "title": f"{_moment_text(sample)}{whole}: {values}",
        }  # fmt: skip


def _value(value: Optional[int], written: Any) -> str:
    return "not known" if value is None else str(written(value))

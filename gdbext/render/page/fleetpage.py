"""The page about many cores: one file, made of the document that it holds."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from gdbext.render.page.document import Redactor
from gdbext.render.page.page import rendered
from gdbext.render.page.texts import count, fixed, when

_WIDTH, _HEIGHT = 1000, 160
_KINDS = (("causes", "k-anonymous"), ("rest", "k-overhead"), ("failed", "k-missing"))


def fleet_page(document: Mapping[str, Any], redact: bool = False) -> str:
    """Return the page about a dataset.

    :param redact: whether it shows no text of a target's.
    :raises MissingDependencyError: Jinja2 is not installed.
    """
    shown = Redactor().redacted(document) if redact else document
    return rendered("fleet.html", shown, bars=rate_bars(shown["data"]["rate"]))


def rate_bars(rate: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the columns of cores over time: to scale in both directions, those with a cause at the bottom."""
    bars = rate["bars"]
    if not bars:
        return []
    first, seconds = bars[0]["time"], rate["seconds"]
    scale = _WIDTH / (bars[-1]["time"] - first + seconds)
    most = max(bar["cores"] for bar in bars)
    return [_column(bar, (bar["time"] - first) * scale, max(seconds * scale - 1, 1), most) for bar in bars]


def _column(bar: Mapping[str, Any], x: float, width: float, most: int) -> Mapping[str, Any]:
    numbers = {**bar, "rest": bar["cores"] - bar["causes"] - bar["failed"]}
    y, pieces = float(_HEIGHT), []
    for name, kind in _KINDS:
        height = _HEIGHT * numbers[name] / most
        y -= height
        if numbers[name]:
            pieces.append({"class": kind, "y": fixed(y), "h": fixed(height)})
    title = f"{when(bar['time'])}: {count(bar['cores'])} cores, {count(bar['causes'])} with a cause, " \
            f"{count(bar['failed'])} without an answer"  # fmt: skip
    return {"x": fixed(x), "w": fixed(width), "pieces": pieces, "title": title, "cores": bar["cores"],
            "time": when(bar["time"])}  # fmt: skip

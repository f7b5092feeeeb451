"""Breakpoints that ``gx breakpoints`` has set: made, listed and deleted by gdb, remembered here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional, Sequence

import gdb

from gdbext.bridge.expressions.harmless import one_line
from gdbext.bridge.functions import remembered
from gdbext.errors import UsageError


@dataclass(frozen=True)
class Plan:
    """A breakpoint to be set.

    :param kind: ``chain``, ``hash``, ``note`` (what a ``hash`` compares with) or ``every``.
    :param location: as gdb's ``break`` takes it.
    :param what: when it acts, in words.
    :param expressions: of the user, which must make sense at the location.
    :param condition: made from the breakpoint's number.
    :param commands: lines of its command list, made from its number.
    """

    kind: str
    location: str
    what: str
    expressions: Sequence[str]
    condition: "Callable[[int], str]"
    commands: "Callable[[int], Sequence[str]]"


@dataclass(frozen=True)
class Placed:
    """A breakpoint that was set.

    :param partner: number of the one that it works with, or None.
    """

    plan: Plan
    breakpoint: gdb.Breakpoint
    partner: Optional[int] = None

    @property
    def number(self) -> int:
        """As gdb counts."""
        return self.breakpoint.number

    @property
    def script(self) -> str:
        """The plain commands of gdb that make it, editable."""
        lines = [f"break {self.plan.location} if {self.breakpoint.condition}"]
        listed = (self.breakpoint.commands or "").splitlines()
        if listed:
            lines += ["commands", *(f"  {line.strip()}" for line in listed), "end"]
        return "\n".join(lines) + "\n"


_placed: "dict[int, Placed]" = {}


def key_of(number: int) -> str:
    """Return the name under which a breakpoint's condition remembers something."""
    return f"gx-{number}"


def place(plan: Plan, partner: Optional[Placed] = None) -> Placed:
    """Set a breakpoint.

    :param partner: the one that it works with.
    :raises UsageError: when there is no such location, or an expression means nothing there.
    """
    breakpoint = _make(plan.location)
    try:
        for expression in plan.expressions:
            _check(breakpoint, expression)
        breakpoint.condition = plan.condition(breakpoint.number)
        breakpoint.commands = "\n".join(plan.commands(breakpoint.number))
    except BaseException:
        breakpoint.delete()
        raise
    placed = Placed(plan, breakpoint, partner.number if partner else None)
    _placed[placed.number] = placed
    return placed


def listed() -> Sequence[Placed]:
    """Return those that still exist, by number."""
    for number in [number for number, one in _placed.items() if not one.breakpoint.is_valid()]:
        del _placed[number]
        remembered.drop(key_of(number))
    return [_placed[number] for number in sorted(_placed)]


def find_neighbours(placed: Placed) -> Sequence[int]:
    """Return the numbers of other breakpoints with commands of ours at the same place.

    gdb runs the commands of one, and forgets those of the other when the program goes on.
    """
    others = (one for one in listed() if one.number != placed.number and one.breakpoint.commands)
    here = _addresses(placed.breakpoint)
    return [one.number for one in others if here & _addresses(one.breakpoint)]


def _addresses(breakpoint: gdb.Breakpoint) -> "set[object]":
    # Breakpoint.locations came with gdb 13; before, equal words are all that can be seen.
    locations = getattr(breakpoint, "locations", None)
    return {breakpoint.location} if locations is None else {location.address for location in locations}


def delete(numbers: Sequence[int]) -> Sequence[Placed]:
    """Delete breakpoints, each with its partner, and what they remember; return those that are left.

    :raises UsageError: when one of them is none of ours; then none is deleted.
    """
    ours = listed()
    for number in numbers:
        if number not in [one.number for one in ours]:
            raise UsageError(f"breakpoint {number} was not set by gx breakpoints", _known(ours))
    partners = {one.partner for one in ours if one.number in numbers} - {None}
    doomed = {*numbers, *partners}
    for one in ours:
        if not doomed.isdisjoint({one.number, one.partner}):
            one.breakpoint.delete()
    return listed()


def _known(ours: Sequence[Placed]) -> str:
    return f"those are {', '.join(str(one.number) for one in ours)}" if ours else "there is none"


def _make(location: str) -> gdb.Breakpoint:
    before = {breakpoint.number for breakpoint in gdb.breakpoints()}
    # Asked whether to make it pending, gdb would wait for an answer to a question that nobody sees.
    lead = "with breakpoint pending off -- " if gdb.parameter("breakpoint pending") is None else ""
    try:
        gdb.execute(f"{lead}break {location}", to_string=True)
    except gdb.error as error:
        raise UsageError(one_line(error), "`set breakpoint pending on` allows libraries to come") from None
    (made,) = (breakpoint for breakpoint in gdb.breakpoints() if breakpoint.number not in before)
    if made.condition is not None:
        made.delete()
        raise UsageError(f"{location!r} has a condition of its own", "name the location alone")
    return made


def _check(breakpoint: gdb.Breakpoint, expression: str) -> None:
    """Let gdb parse an expression where the breakpoint is."""
    try:
        breakpoint.condition = expression
    except gdb.error as error:
        raise UsageError(
            f"{expression!r} at {breakpoint.location}: {one_line(error)}",
            f"`info scope {breakpoint.location}` lists what has a name there",
        ) from None

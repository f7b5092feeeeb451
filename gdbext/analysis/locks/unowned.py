"""Threads that wait in one known function for what no lock in memory names the owner of, grouped, with whom to ask.

A group is information and no finding: from one stop nobody can tell a queue that moves from one that does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from gdbext.analysis.locks.waitgraph import build_graph
from gdbext.debuginfo import Frame, Stacks
from gdbext.report import Kind, column
from gdbext.structures.locks.model import Census, State
from gdbext.structures.locks.waitplaces import WaitPlace, find_wait_place
from gdbext.wording import count_text

_DEEP = 24
_WAITING = (State.FUTEX, State.SYSCALL)


@dataclass(frozen=True)
class UnownedWaits:
    """Threads that wait in one function.

    :param line: of the first of them, "mdl.cc:1763", or None.
    :param idle: whether threads without work wait there too.
    """

    count: int = column("threads", Kind.COUNT)
    threads: Sequence[int] = column(None, Kind.OBJECT)
    function: str = column("wait in")
    line: Optional[str] = column("line")
    what: str = column("for")
    advice: str = column("next")
    idle: bool = column(None, Kind.FLAG)

    @property
    def sentence(self) -> str:
        """The group in words, with what to do next."""
        verb = "waits" if self.count == 1 else "wait"
        usual = ", as idle threads do" if self.idle else ""
        who = f"{count_text(self.count, 'thread')} {verb} in {self.function} for {self.what}{usual}"
        return f"{who}; the owner is not known from memory: {self.advice}"


def find_unowned(census: Census, stacks: Stacks, pid: Optional[int] = None) -> Sequence[UnownedWaits]:
    """Return the groups, those with most threads first; a thread whose wait has a known owner is in none.

    :param pid: of a living process, for the commands that are advised; None of a core.
    """
    graph = build_graph(census)
    owned = {*graph.edges, *graph.lost}
    owned.update(number for convoy in graph.convoys if convoy.holder is not None for number in convoy.waiters)
    numbers: "dict[str, list[int]]" = {}
    found: "dict[str, tuple[WaitPlace, Frame]]" = {}
    for wait in census.waits:
        waits = wait.state in _WAITING and wait.thread.number not in owned
        known = find_wait_place(stacks.frames(wait.thread, _DEEP)) if waits else None
        if known is not None:
            name = (known[1].function or "").partition("(")[0]
            found.setdefault(name, known)
            numbers.setdefault(name, []).append(wait.thread.number)
    rows = [_row(name, *found[name], listed, pid) for name, listed in numbers.items()]
    return tuple(sorted(rows, key=lambda row: (-row.count, row.threads)))


def _row(function: str, place: WaitPlace, frame: Frame, numbers: Sequence[int], pid: Optional[int]) -> UnownedWaits:
    advice = place.advice if pid is None else place.advice.replace("PID", str(pid))
    return UnownedWaits(len(numbers), tuple(numbers), function, frame.line, place.what, advice, place.idle)

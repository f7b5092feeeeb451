"""Equal stacks once, with their threads: the poor man's profile of one stop, and its folded form for flame graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Sequence

from gdbext.report import Kind, Report, column, line, table
from gdbext.structures.locks.frames import label_of
from gdbext.structures.locks.model import Census, Frame, Stacks, Wait
from gdbext.wording import count_text

DEEPEST = 64


@dataclass(frozen=True)
class StackRow:
    """One stack.

    :param stack: function names, innermost first.
    """

    count: int = column("threads", Kind.COUNT)
    numbers: Sequence[int] = column(None, Kind.OBJECT)
    listed: str = column("numbers", json=False)
    doing: str = column("doing")
    stack: Sequence[str] = column(None, Kind.OBJECT)
    shown: str = column("stack, innermost first", json=False)


@dataclass(frozen=True)
class StackGroups:
    """What ``lockwait --stacks`` answers."""

    summary: str = line("stacks", json=False)
    stacks: Sequence[StackRow] = table("Stacks")


def group_stacks(census: Census, stacks: Stacks) -> Report:
    """Group the threads of a census by stack, most threads first."""
    groups: "dict[tuple[str, tuple[str, ...]], list[int]]" = {}
    for wait in census.waits:
        names = tuple(label_of(frame) for frame in stacks.frames(wait.thread, DEEPEST))
        groups.setdefault((doing_of(wait), names), []).append(wait.thread.number)
    rows = [_row(doing, names, numbers) for (doing, names), numbers in groups.items()]
    rows.sort(key=lambda row: (-row.count, row.numbers))
    summary = f"{count_text(len(rows), 'different stack')} of {count_text(len(census.waits), 'thread')}"
    return Report(StackGroups(summary, tuple(rows)), notes=census.notes)


def fold(census: Census, stacks: Stacks) -> Iterator[str]:
    """Iterate over folded stacks: "thread name;outermost;…;innermost;[what it waits at] count"."""
    counts: "dict[str, int]" = {}
    for wait in census.waits:
        text = _folded(wait, stacks.frames(wait.thread, DEEPEST))
        counts[text] = counts.get(text, 0) + 1
    for text, count in sorted(counts.items()):
        yield f"{text} {count}\n"


def doing_of(wait: Wait) -> str:
    """Return what a thread does in a word: the primitive, the system call or the state."""
    return wait.primitive.value if wait.primitive else wait.syscall or wait.state.value


def _folded(wait: Wait, frames: Sequence[Frame]) -> str:
    names = [wait.thread.name or "thread", *(label_of(frame) for frame in reversed(frames)), f"[{doing_of(wait)}]"]
    return ";".join(name.replace(";", ":").replace(" ", "_") for name in names)


def _row(doing: str, names: "tuple[str, ...]", numbers: Sequence[int]) -> StackRow:
    listed = ", ".join(map(str, numbers[:6])) + (", …" if len(numbers) > 6 else "")
    return StackRow(len(numbers), tuple(numbers), listed, doing, names, " < ".join(names) or "not unwound")

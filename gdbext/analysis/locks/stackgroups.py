"""Equal stacks once, with their threads: the poor man's profile of one stop, and its folded form for flame graphs.

Stacks are equal when their addresses are: two lambdas of one function have one name, and so have two calls from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence, Tuple

from gdbext.debuginfo import Frame, Stacks
from gdbext.report import Kind, Report, column, line, table
from gdbext.structures.locks.frames import label_of, name_of
from gdbext.structures.locks.model import Census, Wait
from gdbext.wording import count_text

DEEPEST = 64


@dataclass(frozen=True)
class StackFrame:
    """One frame of a stack.

    :param address: where the function is, or goes on when the frame before returns.
    """

    function: Optional[str] = column(None)
    line: Optional[str] = column(None)
    module: Optional[str] = column(None)
    address: int = column(None, Kind.ADDRESS)


@dataclass(frozen=True)
class StackRow:
    """One stack.

    :param stack: function names, innermost first.
    :param frames: the same frames.
    """

    count: int = column("threads", Kind.COUNT)
    numbers: Sequence[int] = column(None, Kind.OBJECT)
    listed: str = column("numbers", json=False)
    doing: str = column("doing")
    stack: Sequence[str] = column(None, Kind.OBJECT)
    frames: Sequence[StackFrame] = column(None, Kind.OBJECT)
    shown: str = column("stack, innermost first", json=False)


@dataclass(frozen=True)
class StackGroups:
    """What ``lockwait --stacks`` answers."""

    summary: str = line("stacks", json=False)
    stacks: Sequence[StackRow] = table("Stacks")


_Key = Tuple[str, Tuple[int, ...]]


def group_stacks(census: Census, stacks: Stacks) -> Report:
    """Group the threads of a census by stack, most threads first."""
    numbers: "dict[_Key, list[int]]" = {}
    frames: "dict[_Key, Sequence[Frame]]" = {}
    for wait in census.waits:
        found = stacks.frames(wait.thread, DEEPEST)
        key = doing_of(wait), tuple(frame.pc for frame in found)
        frames.setdefault(key, found)
        numbers.setdefault(key, []).append(wait.thread.number)
    rows = [_row(key[0], frames[key], listed) for key, listed in numbers.items()]
    rows.sort(key=lambda row: (-row.count, row.numbers))
    summary = f"{count_text(len(rows), 'different stack')} of {count_text(len(census.waits), 'thread')}"
    return Report(StackGroups(summary, tuple(rows)), notes=census.notes)


def fold(census: Census, stacks: Stacks) -> Iterator[str]:
    """Iterate over folded stacks: "thread name;outermost;…;innermost;[what it waits at] count".

    Stacks of different addresses that are written alike are one line: whatever draws them adds such lines up.
    """
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


def _row(doing: str, frames: Sequence[Frame], numbers: Sequence[int]) -> StackRow:
    listed = ", ".join(map(str, numbers[:6])) + (", …" if len(numbers) > 6 else "")
    return StackRow(
        len(numbers),
        tuple(numbers),
        listed,
        doing,
        tuple(name_of(frame) for frame in frames),
        tuple(StackFrame(frame.function, frame.line, frame.module, frame.pc) for frame in frames),
        " < ".join(label_of(frame) for frame in frames) or "not unwound",
    )

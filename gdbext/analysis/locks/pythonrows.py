"""What there is to say of Python's threads, as data: the reader is loaded where there is an interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from gdbext.report import Kind, column

HOLDS, WAITS, LOCK = "holds the GIL", "waits for the GIL", "waits for a lock"


@dataclass(frozen=True)
class PythonRow:
    """One thread of an interpreter.

    :param number: the debugger's; None: it has no such thread.
    :param state: ``holds the GIL``, ``waits for the GIL``, ``waits for a lock`` (``threading.Lock`` and what is made of
        it, which do not say who holds them); None: none of these.
    :type state: word
    :param stack: its Python functions, innermost first, as ``FUNCTION (FILE:LINE)``; none where they cannot be read.
    """

    number: Optional[int] = column("thread", Kind.NUMBER)
    state: Optional[str] = column("state")
    place: str = column("in", json=False)
    stack: Sequence[str] = column(None, Kind.OBJECT)


@dataclass(frozen=True)
class PythonWaits:
    """What there is to say of Python's threads.

    :param sentences: who waits for whom.
    :param notes: what could not be read.
    """

    rows: Sequence[PythonRow] = ()
    sentences: Sequence[str] = ()
    notes: Sequence[str] = ()

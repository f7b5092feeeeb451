"""What all printers share: they never raise, and say what could not be read."""

from __future__ import annotations

from itertools import islice
from typing import Any, Callable, Iterator, Tuple

import gdb

from gdbext.bridge.expressions import language
from gdbext.errors import GdbextError

CHILDREN = 10_000  # at most; gdb itself stops at `print elements`

Child = Tuple[str, Any]


class GuardedPrinter:
    """A printer of one line and lazy children.

    :param value: of the type that the subclass knows.
    """

    def __init__(self, value: gdb.Value) -> None:
        self.value = value

    def line(self) -> str:
        """Return the line; it may raise for what cannot be read."""
        raise NotImplementedError

    def parts(self) -> Iterator[Child]:
        """Iterate over what is inside; it may raise for what cannot be read."""
        return iter(())

    def to_string(self) -> str:
        """Return the line, for gdb."""
        try:
            with language.like_c():
                return self.line()
        except (GdbextError, gdb.error) as error:
            return unreadable(error)

    def children(self) -> Iterator[Child]:
        """Iterate over names and values, for gdb."""
        try:
            yield from islice(_in_c(self.parts), CHILDREN)
        except (GdbextError, gdb.error) as error:
            yield "?", unreadable(error)


def _in_c(parts: Callable[[], Iterator[Child]]) -> Iterator[Child]:
    """Iterate over parts, each made in a language like C: between two of them gdb prints in the user's own."""
    with language.like_c():
        made = parts()
    while True:
        with language.like_c():
            part = next(made, None)
        if part is None:
            return
        yield part


def unreadable(error: Exception) -> str:
    """Return what stands for something that cannot be read."""
    told = error.message if isinstance(error, GdbextError) else str(error)  # hints are about commands
    reason = " ".join(told.split()).rstrip(".")
    return (
        f"<{reason[:1].lower()}{reason[1:]}>"
        if reason.lower().startswith("cannot ")
        else f"<cannot read: {reason}>"
    )

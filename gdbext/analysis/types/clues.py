"""What a debugger knows about types and typed places: the port, and none at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional, Protocol, Sequence

from gdbext.report import Problem
from gdbext.structures.types import Type


@dataclass(frozen=True)
class TypedPlace:
    """An object outside the heaps, or one that a register points at.

    :param address: of the object.
    :param pointed: whether a pointer of the program leads to it, so that a block there may be more than one object.
    """

    address: int
    type: Type
    pointed: bool = False


class Clues(Protocol):
    """What is known by debug info; a session keeps what it has learned."""

    @property
    def problems(self) -> Sequence[Problem]:
        """What could not be looked at, known once :meth:`places` has been iterated over."""

    def places(self) -> Iterable[TypedPlace]:
        """Iterate over variables that hold pointers, as many as may be examined."""

    def find_type(self, name: str) -> Optional[Type]:
        """Return the complete type of that name ("struct item", "std::_List_node<int>"), or None."""

    def demangle(self, name: str) -> Optional[str]:
        """Return what the name of type information ("_ZTI7Session") says: "Session"; None when nobody can tell."""


class NoClues:
    """For targets without debug info."""

    problems: Sequence[Problem] = ()

    def places(self) -> Iterable[TypedPlace]:
        """Return none."""
        return ()

    def find_type(self, name: str) -> Optional[Type]:
        """Return None."""
        return None

    def demangle(self, name: str) -> Optional[str]:
        """Return None."""
        return None

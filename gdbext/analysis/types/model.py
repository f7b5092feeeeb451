"""What is known of each live block's type, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Protocol, Sequence, Tuple

from gdbext.heap.model import U8, U32
from gdbext.report import Problem

if TYPE_CHECKING:
    from gdbext.analysis.reach.graph import Reach

NO_CONFIDENCE, LOW, MEDIUM, HIGH = range(4)
CONFIDENCE_NAMES = ("", "low", "medium", "high")

# How a type was recognised, as reports print it.
VTABLE, DEBUG_INFO, CONTAINER, SHAPE, PYTHON = ("vtable", "debug info", "container", "shape", "python")
SIMILARITY, TEXT, ZEROS, POINTERS, UNKNOWN = ("similarity", "text", "zeros", "pointers", "unknown")


@dataclass(frozen=True)
class TypeName:
    """One type.

    :param name: as the program's language writes it ("Session", "struct item", "std::vector<int> buffer"), or what the
        contents look like ("like struct item", "C string", "UTF-16 text", "zeros", "pointers", "unknown").
    :param kind: how it was recognised; one of the words above.
    """

    name: str
    kind: str


class Runtime(Protocol):
    """A language whose objects say themselves what they are."""

    def name(self, row: int, offset: int) -> str:
        """Return what the word at an offset of a row is called; "" where that is not known."""

    def name_outside(self, address: int) -> str:
        """Return what a word in no block is called: a local variable of a function that runs; "" where it is none."""

    def frames(self) -> Sequence[Tuple[int, int]]:
        """Return start and end of the memory, in no block, that frames of functions that run are in."""

    def strong(self, reach: Reach) -> Reach:
        """Return what is reachable without links that the language keeps for itself, and weak references.

        :raises TooLargeError: there is not enough memory for it.
        """


@dataclass(frozen=True)
class BlockTypes:
    """The type of each row of a :class:`gdbext.analysis.reach.graph.Reach`.

    :param types: 0 is always ``TypeName("unknown", "unknown")``.
    :param code: position in ``types``.
    :param confidence: NO_CONFIDENCE to HIGH.
    :param problems: what could not be examined, so that types are missing.
    :param runtime: of the language whose objects are among the rows; None where none was found.
    """

    types: Sequence[TypeName]
    code: U32
    confidence: U8
    problems: Sequence[Problem] = ()
    runtime: Optional[Runtime] = None

    def name(self, row: int) -> str:
        """Return the name of a row's type; "unknown" where it is."""
        return self.types[int(self.code[row])].name

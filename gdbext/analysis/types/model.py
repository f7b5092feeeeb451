"""What is known of each live block's type, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional, Sequence

from gdbext.heap.model import U8, U32
from gdbext.report import Problem

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


@dataclass(frozen=True)
class BlockTypes:
    """The type of each row of a :class:`gdbext.analysis.reach.graph.Reach`.

    :param types: 0 is always ``TypeName("unknown", "unknown")``.
    :param code: position in ``types``.
    :param confidence: NO_CONFIDENCE to HIGH.
    :param problems: what could not be examined, so that types are missing.
    :param name_word: what a word of a row is called, given its offset, in a language whose objects say so themselves;
        "" where it is not known. None: no such objects were found.
    """

    types: Sequence[TypeName]
    code: U32
    confidence: U8
    problems: Sequence[Problem] = ()
    name_word: Optional[Callable[[int, int], str]] = None

    def name(self, row: int) -> str:
        """Return the name of a row's type; "unknown" where it is."""
        return self.types[int(self.code[row])].name

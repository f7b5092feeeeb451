"""What is known so far: a code and a confidence for each row, and who may overrule whom."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Optional, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.analysis.types.model import (
    CONTAINER,
    DEBUG_INFO,
    HIGH,
    LOW,
    MEDIUM,
    NO_CONFIDENCE,
    PYTHON,
    UNKNOWN,
    VTABLE,
    BlockTypes,
    Runtime,
    TypeName,
)
from gdbext.heap.model import Mask
from gdbext.report import Problem

I64 = npt.NDArray[np.int64]

_FIRM = (VTABLE, CONTAINER, PYTHON)  # what pointers' types do not overrule


class Sheet:
    """The types of all rows while they are being found.

    :param wanted: the rows that matter; None is all. Others become known where that costs nothing.
    :ivar code: of each row, a position in :attr:`types`.
    :ivar confidence: of each row.
    :ivar runtime: as :class:`BlockTypes` has it.
    """

    def __init__(self, rows: int, wanted: Optional[Mask] = None) -> None:
        self.types: List[TypeName] = [TypeName(UNKNOWN, UNKNOWN)]
        self.code = np.zeros(rows, np.uint32)
        self.confidence = np.zeros(rows, np.uint8)
        self._wanted = wanted
        self._codes: Dict[TypeName, int] = {self.types[0]: 0}
        self._starts: Dict[int, FrozenSet[str]] = {}
        self._larger: "set[int]" = set()
        self._sizes: Dict[int, int] = {}
        self.runtime: Optional[Runtime] = None

    def code_of(self, name: str, kind: str, starts: FrozenSet[str] = frozenset()) -> int:
        """Return a type's code, a new one when it is met for the first time.

        :param starts: names of the types that one of this type begins with: its first base, its first member.
        """
        one = TypeName(name, kind)
        if one not in self._codes:
            self._codes[one] = len(self.types)
            self.types.append(one)
        if starts:
            self._starts[self._codes[one]] = starts
        return self._codes[one]

    def rows(self) -> Mask:
        """Return which rows matter."""
        return np.ones(len(self.code), np.bool_) if self._wanted is None else self._wanted

    def unknown(self) -> Mask:
        """Return which rows matter and nothing is known of."""
        unknown: Mask = self.confidence == NO_CONFIDENCE
        return unknown if self._wanted is None else unknown & self._wanted

    def put(self, rows: I64, code: int, confidence: int) -> None:
        """Set rows, whatever they were."""
        self.code[rows] = code
        self.confidence[rows] = confidence

    def claim(self, rows: I64, code: int, confidence: int, yields: bool = False) -> Mask:
        """Say that rows are of a type.

        A row of which nothing is known takes it. One that is something else becomes what is surer, or what begins
        with what it was; where two are equally sure the first stays and is doubted.

        :param yields: whether any other answer is right instead: the pointer may also lead to the list's head.
        :return: which of the rows have become of this type by it.
        """
        old = self.confidence[rows]
        taken: Mask = old == NO_CONFIDENCE
        if not yields:
            others = ~taken & (self.code[rows] != code)
            for other in np.unique(self.code[rows[others]]).tolist():
                those = others & (self.code[rows] == other)
                taken |= those & self._overrules(rows, other, code, confidence)
        self.code[rows[taken]] = code
        self.confidence[rows[taken]] = confidence
        return taken

    def _overrules(self, rows: I64, old: int, new: int, confidence: int) -> Mask:
        """Return which rows that were ``old`` become ``new``; doubt those that could be either."""
        nothing = np.zeros(len(rows), np.bool_)
        firm = self.types[old].kind in _FIRM
        if self.begins_with(old, self.types[new].name) or (firm and self.types[new].kind == DEBUG_INFO):
            return nothing
        if self.begins_with(new, self.types[old].name) and not firm:
            return ~nothing
        known = self.confidence[rows]
        doubted = (self.code[rows] == old) & (known == confidence)
        self.confidence[rows[doubted]] = LOW
        surer: Mask = known < confidence
        return surer

    def begins_with(self, code: int, name: str) -> bool:
        """Return whether a type begins with one of that name, is it, or is an array of it."""
        own = self.types[code].name
        return name in self._starts.get(code, ()) or own == name or own == f"{name}[]" or name == f"{own}[]"

    def doubt(self, rows: I64) -> None:
        """Lower the confidence of rows that do not look like what pointers say; what is firm stays."""
        firm = np.array([one.kind in _FIRM for one in self.types], np.bool_)
        rows = rows[~firm[self.code[rows]]]
        self.confidence[rows] = np.minimum(self.confidence[rows], LOW)

    def note_larger(self, code: int) -> None:
        """Remember that blocks of a type have room for more than one needs: others may begin with one."""
        self._larger.add(code)

    def note_size(self, code: int, size: int) -> None:
        """Remember how many bytes an object of a type has, of what debug info tells."""
        if self.types[code].kind == DEBUG_INFO:
            self._sizes[code] = size

    def sizes(self) -> I64:
        """Return what :meth:`note_size` was told of each type, 0 where nothing."""
        return np.array([self._sizes.get(code, 0) for code in range(len(self.types))], np.int64)

    def lower(self, codes: Mask) -> None:
        """Lower what is high of types."""
        self.confidence[codes[self.code] & (self.confidence == HIGH)] = MEDIUM

    def settle(self) -> None:
        """Lower what is high of types that other types begin with: as in C, the pointer may be to such a one."""
        begun = frozenset().union(*self._starts.values()) if self._starts else frozenset()
        for code, one in enumerate(self.types):
            if one.kind == DEBUG_INFO and (code in self._larger or one.name in begun):
                high = (self.code == code) & (self.confidence == HIGH)
                self.confidence[high] = MEDIUM

    def result(self, problems: Sequence[Problem]) -> BlockTypes:
        """Return what has been found."""
        return BlockTypes(self.types, self.code, self.confidence, problems, self.runtime)

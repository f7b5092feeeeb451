"""``blocks types``: the blocks summed up by type, and those of one type one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Iterator, List, Optional, Sequence

import numpy as np
import numpy.typing as npt

from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import STATE_NAMES
from gdbext.analysis.reach.reporting import report_on_reach
from gdbext.analysis.types.model import CONFIDENCE_NAMES, NO_CONFIDENCE, UNKNOWN, BlockTypes
from gdbext.columns import ROWS_AT_ONCE, Batch, Column
from gdbext.errors import UsageError
from gdbext.memory.intervals import slices
from gdbext.report import Kind, Report, Rows, column, line, table
from gdbext.wording import size_text

I64 = npt.NDArray[np.int64]

_REACH = [STATE_NAMES[state] for state in sorted(STATE_NAMES)]
_CONFIDENCE = [name or None for name in CONFIDENCE_NAMES]


@dataclass(frozen=True)
class TypeRow:
    """Blocks of one type that are known with one confidence; ``sample`` is the address of the first.

    :param name: as the program's language writes it, ``X[]`` for several one after the other, ``… node``, ``… buffer``,
        ``… buckets`` for parts of containers; ``like X`` of leaked blocks that only look like those of type X
        (``similarity``); ``C string``, ``UTF-16 text``, ``zeros``, ``pointers``, ``unknown``. With ``--by-size`` a name
        for each size class of unknown blocks.
    :param blocks: in use, of this type and confidence.
    :param bytes: usable bytes.
    :param share: of ``total_bytes``.
    :param recognised_by: ``vtable``, ``python``, ``container``, ``debug info``, ``similarity``, ``text``, ``zeros``,
        ``pointers``, ``unknown``.
    :type recognised_by: word
    :param confidence: ``high``, ``medium``, ``low``; None: nothing is known.
    :type confidence: word
    :param sample: user pointer of the first.
    """

    name: str = column("type")
    blocks: int = column("blocks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    share: float = column("share", Kind.SHARE)
    recognised_by: str = column("recognised by")
    confidence: Optional[str] = column("confidence")
    sample: int = column("sample", Kind.ADDRESS)


@dataclass(frozen=True)
class TypeSummary:
    """What ``blocks types`` answers; the types with most bytes first.

    :param total_blocks: blocks in use, as ``blocks leaks`` counts them.
    :param total_bytes: usable bytes of them.
    :param known_bytes: of blocks known by a virtual table, Python's type objects, containers or debug info, of any
        confidence.
    :param contents_bytes: of blocks known by their own words alone: similarity, text, zeros, pointers.
    :param unknown_bytes: of all others.
    """

    total_blocks: int = line("blocks in use", Kind.COUNT)
    total_bytes: int = line("bytes", Kind.BYTES)
    known_bytes: int = line("of a known type", Kind.BYTES)
    contents_bytes: int = line("known by contents only", Kind.BYTES)
    unknown_bytes: int = line("unknown", Kind.BYTES)
    types: Sequence[TypeRow] = table("Types")


@dataclass(frozen=True)
class TypedBlock:
    """One block of a type.

    :param address: user pointer.
    :param size: usable bytes.
    :type size: bytes
    :param reach: ``reached``, ``possibly leaked``, ``leaked``.
    :type reach: word
    :param confidence: ``high``, ``medium``, ``low``; None: nothing is known.
    :type confidence: word
    :param recognised_by: ``vtable``, ``python``, ``container``, ``debug info``, ``text``, ``zeros``, ``pointers``,
        ``unknown``.
    :type recognised_by: word
    :param name: as ``types[].name``.
    """

    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    reach: str = column("reach")
    confidence: Optional[str] = column("confidence")
    recognised_by: str = column("recognised by")
    name: str = column("type")


@dataclass(frozen=True)
class TypeListing:
    """What ``blocks types --list`` answers, in address order.

    :param matching_blocks: blocks of the types so named, whatever ``--limit`` says.
    :param matching_bytes: usable bytes of them.
    """

    matching_blocks: int = line("blocks", Kind.COUNT)
    matching_bytes: int = line("bytes", Kind.BYTES)
    blocks: Rows[TypedBlock] = table("Blocks")


_LEVELS = len(CONFIDENCE_NAMES)
_CLASSES = 65  # of sizes
_BY_CONTENTS = ("similarity", "text", "zeros", "pointers")


def summarise(reach: Reach, found: BlockTypes, by_size: bool = False) -> Report:
    """Sum the blocks up by type.

    :param by_size: whether unknown blocks are told apart by size, in powers of two.
    """
    size = reach.size
    total = int(size.sum())
    rows = list(_rows(reach, found, total, by_size))
    rows.sort(key=lambda row: (-row.bytes, row.name))
    contents = sum(row.bytes for row in rows if row.recognised_by in _BY_CONTENTS)
    unknown = sum(row.bytes for row in rows if row.recognised_by == UNKNOWN)
    data = TypeSummary(len(reach), total, total - contents - unknown, contents, unknown, rows)
    return report_on_reach(reach, data, found.problems)


def list_type(reach: Reach, found: BlockTypes, name: str) -> Report:
    """List the blocks of the type of that name; where there is none, of all types whose names hold it.

    :param name: ``*`` stands for any letters.

    :raises UsageError: when no block is of such a type.
    """
    codes = _codes_named(found, name)
    chosen = np.flatnonzero(np.isin(found.code, codes))
    rows = Rows.of_columns(lambda _: _typed_blocks(reach, found, chosen), TypedBlock, len(chosen), reads=0)
    listed = TypeListing(len(chosen), int(reach.size[chosen].sum()), rows)
    return report_on_reach(reach, listed, found.problems)


def _rows(reach: Reach, found: BlockTypes, total: int, by_size: bool) -> Iterator[TypeRow]:
    known = len(found.types) * _LEVELS  # groups; behind them those of unknown blocks by size
    sums = _Sums(known + _CLASSES)
    for part in slices(len(reach)):
        groups = found.code[part].astype(np.int64) * _LEVELS + found.confidence[part]
        if by_size:
            groups = np.where(found.code[part] == 0, known + _size_classes(reach.size[part]), groups)
        sums.add(groups, reach.size[part], part.start)
    for group in np.flatnonzero(sums.count).tolist():
        code, confidence = divmod(group, _LEVELS)
        exponent = group - known
        one = found.types[code if exponent < 0 else 0]
        name = one.name if exponent < 0 else _size_name(one.name, exponent)
        shown = CONFIDENCE_NAMES[confidence if exponent < 0 else NO_CONFIDENCE] or None
        size = int(sums.bytes[group])
        share = size / total if total else 0.0
        sample = int(reach.address[sums.first[group]])
        yield TypeRow(name, int(sums.count[group]), size, share, one.kind, shown, sample)


class _Sums:
    """Blocks, their bytes and the first row of each group."""

    def __init__(self, groups: int) -> None:
        self.count, self.first = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        self.bytes = np.zeros(groups, np.uint64)

    def add(self, groups: I64, size: "npt.NDArray[np.uint64]", start: int) -> None:
        """Add some rows from ``start`` on, no more than 2 ** 21: their sums are exact in floats, half by half."""
        fresh = np.flatnonzero(self.count[groups] == 0)
        new, at = np.unique(groups[fresh], return_index=True)
        self.first[new] = start + fresh[at]
        self.count += np.bincount(groups, minlength=len(self.count))
        for shift in (0, 32):
            half = (size >> np.uint64(shift)) & np.uint64(0xFFFF_FFFF)
            sums = np.bincount(groups, half, len(self.bytes)).astype(np.uint64)
            self.bytes += sums << np.uint64(shift)


def _size_classes(size: "npt.NDArray[np.uint64]") -> I64:
    """Return for each size the least power of two that is not below it, as exponent."""
    exponents: I64 = np.ceil(np.log2(np.maximum(size, np.uint64(1)).astype(np.float64))).astype(np.int64)
    return exponents


def _size_name(name: str, exponent: int) -> str:
    low, high = (1 << exponent) // 2 + 1, 1 << exponent
    return f"{name}, {size_text(low) if low < 1024 else size_text(low - 1)} to {size_text(high)}"


def _codes_named(found: BlockTypes, name: str) -> List[int]:
    used = set(np.unique(found.code).tolist())
    names = [(code, one.name) for code, one in enumerate(found.types) if code in used]
    pattern = re.compile(".*".join(re.escape(part) for part in name.split("*")))
    codes = [code for code, each in names if each == name] or [code for code, each in names if pattern.search(each)]
    if not codes:
        close = get_close_matches(name, [each for _, each in names], 3, 0.5)
        hint = f"did you mean {', '.join(close)}?" if close else "blocks types lists the types that there are"
        raise UsageError(f"no block is known to be of a type {name!r}", hint)
    return codes


def _typed_blocks(reach: Reach, found: BlockTypes, chosen: I64) -> Iterator[Batch]:
    names, kinds = [one.name for one in found.types], [one.kind for one in found.types]
    for part in slices(len(chosen), ROWS_AT_ONCE):
        rows = chosen[part]
        yield {
            "address": Column(reach.address[rows]),
            "size": Column(reach.size[rows]),
            "reach": Column(reach.states[rows], words=_REACH),
            "confidence": Column(found.confidence[rows], words=_CONFIDENCE),
            "recognised_by": Column(found.code[rows], words=kinds),
            "name": Column(found.code[rows], words=names),
        }

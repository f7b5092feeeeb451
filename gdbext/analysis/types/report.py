"""``blocks types``: the blocks summed up by type, and those of one type one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import STATE_NAMES
from gdbext.analysis.reach.reporting import report_on_reach
from gdbext.analysis.types.model import CONFIDENCE_NAMES, NO_CONFIDENCE, UNKNOWN, BlockTypes
from gdbext.errors import UsageError
from gdbext.memory.intervals import slices
from gdbext.report import Kind, Report, Rows, column, line, table
from gdbext.wording import size_text

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TypeRow:
    """Blocks of one type that are known with one confidence; ``sample`` is the address of the first."""

    name: str = column("type")
    blocks: int = column("blocks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    share: float = column("share", Kind.SHARE)
    recognised_by: str = column("recognised by")
    confidence: Optional[str] = column("confidence")
    sample: int = column("sample", Kind.ADDRESS)


@dataclass(frozen=True)
class TypeSummary:
    """What ``blocks types`` answers; the types with most bytes first."""

    total_blocks: int = line("blocks in use", Kind.COUNT)
    total_bytes: int = line("bytes", Kind.BYTES)
    known_bytes: int = line("of a known type", Kind.BYTES)
    contents_bytes: int = line("known by contents only", Kind.BYTES)
    unknown_bytes: int = line("unknown", Kind.BYTES)
    types: Sequence[TypeRow] = table("Types")


@dataclass(frozen=True)
class TypedBlock:
    """One block of a type."""

    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.COUNT)
    reach: str = column("reach")
    confidence: Optional[str] = column("confidence")
    recognised_by: str = column("recognised by")
    name: str = column("type")


@dataclass(frozen=True)
class TypeListing:
    """What ``blocks types --list`` answers, in address order."""

    matching_blocks: int = line("blocks", Kind.COUNT)
    matching_bytes: int = line("bytes", Kind.BYTES)
    blocks: Rows = table("Blocks")


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
    rows = Rows(lambda: _typed_blocks(reach, found, chosen), TypedBlock, len(chosen), reads=0)
    listed = TypeListing(len(chosen), int(reach.size[chosen].sum()), rows)
    return report_on_reach(reach, listed, found.problems)


def _rows(reach: Reach, found: BlockTypes, total: int, by_size: bool) -> Iterator[TypeRow]:
    groups = found.code.astype(np.int64) * 4 + found.confidence
    if by_size:
        groups = np.where(found.code == 0, -1 - _size_classes(reach.size), groups)
    for group, (count, size, first) in _sums(groups, reach).items():
        code, confidence = (group // 4, group % 4) if group >= 0 else (0, NO_CONFIDENCE)
        one = found.types[code]
        name = one.name if group >= 0 else _size_name(one.name, -1 - group)
        shown = CONFIDENCE_NAMES[confidence] or None
        share = size / total if total else 0.0
        yield TypeRow(name, count, size, share, one.kind, shown, int(reach.address[first]))


def _sums(groups: I64, reach: Reach) -> "dict[int, tuple[int, int, int]]":
    """Return for each group its blocks, their bytes and the first row."""
    if not len(groups):
        return {}
    distinct, first, inverse, counts = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    sizes = np.zeros(len(distinct), np.uint64)
    np.add.at(sizes, inverse.ravel(), reach.size)
    figures = zip(counts.tolist(), sizes.tolist(), first.tolist())
    return dict(zip(distinct.tolist(), figures))


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


def _typed_blocks(reach: Reach, found: BlockTypes, chosen: I64) -> Iterator[TypedBlock]:
    for part in slices(len(chosen), 1 << 16):
        yield from _part(reach, found, chosen[part])


def _part(reach: Reach, found: BlockTypes, rows: I64) -> Iterator[TypedBlock]:
    columns: Tuple[Sequence[int], ...] = tuple(
        each[rows].tolist() for each in (reach.address, reach.size, reach.states, found.confidence, found.code)
    )
    for address, size, state, confidence, code in zip(*columns):
        one = found.types[code]
        shown = CONFIDENCE_NAMES[confidence] or None
        yield TypedBlock(address, size, STATE_NAMES[state], shown, one.kind, one.name)

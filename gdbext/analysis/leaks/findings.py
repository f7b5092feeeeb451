"""The finding ``leak``: what leaked, where it is worth a page and certain enough to be on one."""

from __future__ import annotations

from itertools import islice
from typing import Any, Dict, Iterator, List, Optional, Sequence

from gdbext.analysis.leaks.doubts import Doubt, doubts_text, find_doubts
from gdbext.analysis.leaks.groups import group_leaks
from gdbext.analysis.leaks.report import Totals, count_totals
from gdbext.analysis.leaks.tables import LeakRootRow, Tables, TypeRow
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import STATE_NAMES
from gdbext.analysis.types.model import UNKNOWN, BlockTypes
from gdbext.report import Confidence, Finding, Severity
from gdbext.wording import address_text, count_text, grouped, size_text

LEAK = "leak"

_MOST = 3  # types, sizes
_LISTED = 100  # types, and leak roots that are looked at for examples of them
_AROUND = 2  # neighbours on each side
_LOOKED_AT = 64  # of them, since most may be what the leak root keeps
_NEAR = 1 << 16  # bytes; what lies farther is no neighbour
_REMEDY = (
    "`blocks leaks` has the leak roots by what they keep, and all types; `blocks at {:#x}` shows the largest. Look "
    "where such blocks are allocated, and who should have freed them; neighbours in memory were often allocated at "
    "about the same time, by the same work."
)


def make_finding(reach: Reach, types: Optional[BlockTypes], sure: bool = True) -> Finding:
    """Return the finding about a target that has leaked blocks.

    :param types: None where they are not known.
    :param sure: False where something besides :func:`gdbext.analysis.leaks.doubts.find_doubts` leaves a doubt.
    """
    groups, doubts = group_leaks(reach), find_doubts(reach)
    totals, tables = count_totals(reach, groups), Tables(reach, groups, types)
    rows = list(tables.by_type() or ())
    unknown = max((row.bytes for row in rows if row.recognised_by == UNKNOWN), default=0)
    known = [row for row in rows if row.recognised_by != UNKNOWN and row.bytes > unknown]
    return Finding(
        LEAK,
        Severity.WARNING,
        Confidence.HIGH if sure and not doubts else Confidence.MEDIUM,
        _summary(totals, known),
        bytes=totals.leaked_bytes,
        evidence=tuple(_evidence(reach, totals, tables, known, doubts)),
        remedy=_REMEDY.format(next(iter(tables.leak_roots())).address),
        details=_details(totals, tables),
    )


def _details(totals: Totals, tables: Tables) -> Dict[str, Any]:
    roots = list(islice(tables.leak_roots(), _LISTED))
    examples = {row.type: row.address for row in reversed(roots)}
    groups = [
        {
            "type": row.type,
            "recognised_by": row.recognised_by,
            "blocks": row.blocks,
            "bytes": row.bytes,
            "leak_roots": row.leak_roots,
            "kept_bytes": row.kept_bytes,
            "example": address_text(examples.get(row.type)),
        }
        for row in islice(tables.by_type() or (), _LISTED)
    ]
    return {
        "blocks": totals.leaked_blocks,
        "leak_roots": totals.leak_root_blocks,
        "groups": groups,
        "largest": [
            {
                "address": address_text(row.address),
                "size": row.size,
                "type": row.type,
                "kept_blocks": row.kept_blocks,
                "kept_bytes": row.kept_bytes,
            }
            for row in roots[:_MOST]
        ],
    }


def _summary(totals: Totals, known: Sequence[TypeRow]) -> str:
    leaked = f"{size_text(totals.leaked_bytes)} leaked in {count_text(totals.leaked_blocks, 'block')}"
    roots = f"{leaked}, kept by {count_text(totals.leak_root_blocks, 'leak root')}"
    if not known or 2 * known[0].kept_bytes <= totals.leaked_bytes:
        return roots
    return f"{roots}, most of it by {count_text(known[0].leak_roots, 'block')} of type {known[0].type}"


def _evidence(
    reach: Reach, totals: Totals, tables: Tables, known: Sequence[TypeRow], doubts: Sequence[Doubt]
) -> Iterator[str]:
    if doubts:
        yield f"inconclusive: {doubts_text(doubts)} could not be examined, and what only that points at looks leaked"
    reached = f"{grouped(totals.reached_blocks)} reached from roots"
    possibly = f"{grouped(totals.possibly_leaked_blocks)} possibly leaked"
    found = f"{grouped(totals.leaked_blocks)} leaked; {reached}, {possibly}"
    yield f"of {count_text(totals.blocks, 'block')} in use {found}"
    for row in known[:_MOST]:
        blocks = f"{count_text(row.blocks, 'block')}, {size_text(row.bytes)}"
        yield f"type {row.type} ({row.recognised_by}): {blocks}{_kept(row)}"
    sizes: List[str] = [
        f"{count_text(row.blocks, 'block')} of {row.size} bytes" for row, _ in zip(tables.by_size(), range(_MOST))
    ]
    yield f"most by size: {', '.join(sizes)}"
    largest = next(iter(tables.leak_roots()))
    yield _root_text(largest)
    yield from _around(reach, tables, largest.address)


def _kept(row: TypeRow) -> str:
    if not row.leak_roots:
        return ""
    keep = "keeps" if row.leak_roots == 1 else "keep"
    return f"; {count_text(row.leak_roots, 'leak root')} {keep} {size_text(row.kept_bytes)}"


def _root_text(row: LeakRootRow) -> str:
    kept = f"keeps {count_text(row.kept_blocks, 'block')}, {size_text(row.kept_bytes)}"
    cycle = f", represents a cycle of {row.cycle}" if row.cycle else ""
    return f"largest leak root {_block_text(row.address, row.size, row.type, row.contents)} {kept}{cycle}"


def _block_text(address: int, size: int, kind: Optional[str], contents: Optional[str]) -> str:
    described = [f"{size} bytes", *([kind] if kind and kind != UNKNOWN else ()), *([contents] if contents else ())]
    return f"{address:#x} ({', '.join(described)})"


def _around(reach: Reach, tables: Tables, address: int) -> Iterator[str]:
    """Iterate over the blocks in use beside a leak root: they were often allocated at about the same time."""
    row = reach.find_row(address)
    if row is None:
        raise ValueError(f"{address:#x} is no row")
    for side, step in (("before", -1), ("after", 1)):
        for other in islice(_neighbours(reach, tables, row, step), _AROUND):
            place, size = int(reach.address[other]), int(reach.size[other])
            shown = _block_text(place, size, tables.type_of(other), tables.contents_of(other))
            yield f"{side} it in memory: {shown}, {STATE_NAMES[int(reach.states[other])]}"


def _neighbours(reach: Reach, tables: Tables, row: int, step: int) -> Iterator[int]:
    """Iterate over rows in one direction, as far as they are near, without what the block itself keeps."""
    for other in range(row + step, row + step * _LOOKED_AT, step):
        near = 0 <= other < len(reach) and abs(int(reach.address[other]) - int(reach.address[row])) <= _NEAR
        if near and tables.leader_of(other) != row:
            yield other

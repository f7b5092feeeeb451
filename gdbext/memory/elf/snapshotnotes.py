"""Notes of our own in a core that is a snapshot: what a core lacks, so that answers are those of the process.

They have the owner ``GDBEXT``. ``FACTS`` is JSON, deflated: the mappings as ``smaps`` had them, thread names, the
pause. ``PAGES`` are the runs of pages that the kernel listed, ``MISSING`` those that were there and are not in the
file: pairs of words of 8 bytes, little end first: start and end of a run, its kind in the low bits of the start.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field, replace
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from gdbext.abi import Abi
from gdbext.memory import Buffer
from gdbext.memory.elf.corenotes import NT_GDBEXT_FACTS, NT_GDBEXT_MISSING, NT_GDBEXT_PAGES
from gdbext.memory.intervals import Coverage, joined, subtract
from gdbext.memory.live import mappings as live
from gdbext.memory.live.presence import Presence, Runs, check_swapped
from gdbext.report import Problem
from gdbext.wording import size_text

VERSION = 1
OUT_OF_TIME, REFUSED, DONTDUMP = 1, 2, 4  # why a page that was there is missing; the bits of ``MISSING``

_LOW = np.uint64(0xFFF)
_MOST_FACTS = 1 << 26  # bytes of JSON, unpacked
_WHY = {
    OUT_OF_TIME: ("not-copied", "was not copied in the time of --max-pause"),
    REFUSED: ("unreadable-memory", "could not be read, though in memory"),
    DONTDUMP: ("not-dumped", "is kept out of copies on disk by the process (MADV_DONTDUMP)"),
}
_COLUMNS = live.Mapping._fields
_TYPES = {"name": str, "permissions": str, "device": str, "shared": bool, "flags": list}


@dataclass(frozen=True, eq=False)
class SnapshotFacts:
    """What a snapshot says beside the notes that every core has.

    :param mappings: of the process, by address, with the kernel's figures.
    :param pages: as the kernel listed them at the stop.
    :param missing: pages that were there and are not in the file, by why: ``OUT_OF_TIME``, ``REFUSED``, ``DONTDUMP``.
    :param names: of threads, by their ids.
    :param time: of the stop, seconds since the epoch.
    :param clock: ``CLOCK_MONOTONIC`` at the stop as the process reads it, ns; None where it is not known.
    :param held_seconds: for which the process stood still.
    :param swapped: whether pages that were swapped out were read.
    :param known: whether the kernel told which pages there were.
    """

    mappings: Sequence[live.Mapping]
    pages: Runs
    missing: Runs
    names: Mapping[int, str] = field(default_factory=dict)
    time: float = 0.0
    clock: Optional[int] = None
    held_seconds: float = 0.0
    swapped: bool = False
    known: bool = True

    def held(self, seconds: float) -> SnapshotFacts:
        """Return the same with how long the process stood still."""
        return replace(self, held_seconds=seconds)

    def without(self, found: Coverage) -> SnapshotFacts:
        """Return the same where some of what was missing is in the file after all."""
        starts, ends, which = subtract(Coverage(self.missing.starts, self.missing.ends), found)
        return replace(self, missing=Runs(starts, ends, self.missing.kinds[which]))

    def presence(self) -> Presence:
        """Return which pages there were, as it is known of a living process."""
        return Presence(self.mappings, self.pages, self.swapped, self.known)

    def lost(self) -> Coverage:
        """Return the pages that were there and are not in the file."""
        return Coverage(*joined((self.missing.starts, self.missing.ends)))

    def check(self, presence: Presence) -> Sequence[Problem]:
        """Return a problem for each reason for which memory is missing."""
        found = [_problem(self.missing, why) for why in _WHY if self.missing.having(why).any()]
        return [*check_swapped(presence), *found]


def _problem(missing: Runs, why: int) -> Problem:
    rows = missing.having(why)
    size = int((missing.ends[rows] - missing.starts[rows]).sum())
    kind, text = _WHY[why]
    return Problem(kind, int(missing.starts[rows][0]), f"{size_text(size)} of the process {text}")


# -- writing --------------------------------------------------------------------------------------------


def pack_facts(facts: SnapshotFacts) -> Mapping[int, bytes]:
    """Return the contents of the notes, by type."""
    document = {
        "version": VERSION,
        "columns": _COLUMNS,
        "mappings": [_row(one) for one in facts.mappings],
        "names": {str(tid): name for tid, name in facts.names.items()},
        "time": facts.time,
        "clock": facts.clock,
        "held_seconds": facts.held_seconds,
        "swapped": facts.swapped,
        "known": facts.known,
    }
    return {
        NT_GDBEXT_FACTS: zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1),
        NT_GDBEXT_PAGES: _pack_runs(facts.pages),
        NT_GDBEXT_MISSING: _pack_runs(facts.missing),
    }


def _row(mapping: live.Mapping) -> List[object]:
    return [sorted(value) if isinstance(value, frozenset) else value for value in mapping]


def _pack_runs(runs: Runs) -> bytes:
    words = np.stack((runs.starts | runs.kinds.astype(np.uint64), runs.ends), axis=1)
    return words.astype("<u8").tobytes()


# -- reading --------------------------------------------------------------------------------------------


def find_facts(notes: Mapping[int, Buffer], abi: Abi) -> Optional[SnapshotFacts]:
    """Return what the notes of a snapshot say; None where there are none.

    :param notes: those of our own, by type.
    :raises ValueError: they do not hold what they should.
    """
    if NT_GDBEXT_FACTS not in notes:
        return None
    document = _load(notes[NT_GDBEXT_FACTS])
    if document.get("version") != VERSION:
        raise ValueError("its notes are of another version of gdbext")
    mappings = _parse_mappings(document)
    return SnapshotFacts(
        mappings,
        _parse_runs(notes.get(NT_GDBEXT_PAGES, b"")),
        _parse_runs(notes.get(NT_GDBEXT_MISSING, b"")),
        _parse_names(document.get("names")),
        float(document["time"]),
        _parse_clock(document.get("clock")),
        float(document["held_seconds"]),
        document.get("swapped") is True,
        document.get("known") is True,
    )


def _load(data: Buffer) -> Dict[str, Any]:
    try:
        unpacker = zlib.decompressobj()
        document = json.loads(unpacker.decompress(bytes(data), _MOST_FACTS))
        document["time"], document["held_seconds"]  # noqa: B018  a KeyError where they are missing
    except (zlib.error, ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("its notes cannot be read") from None
    if not isinstance(document, dict) or not all(_is_number(document[key]) for key in ("time", "held_seconds")):
        raise ValueError("its notes cannot be read")
    return document


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _parse_mappings(document: Mapping[str, Any]) -> Sequence[live.Mapping]:
    rows = document.get("mappings")
    if document.get("columns") != list(_COLUMNS) or not isinstance(rows, list):
        raise ValueError("its mappings cannot be read")
    found = [_parse_mapping(row) for row in rows]
    if any(one.start >= one.end for one in found) or any(a.end > b.start for a, b in zip(found, found[1:])):
        raise ValueError("its mappings overlap")
    return found


def _parse_mapping(row: object) -> live.Mapping:
    if not isinstance(row, list) or len(row) != len(_COLUMNS):
        raise ValueError("its mappings cannot be read")
    values = dict(zip(_COLUMNS, row))
    for name, value in values.items():
        kind = _TYPES.get(name, int)
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 1 << 64):
            raise ValueError("its mappings cannot be read")
    if not all(isinstance(flag, str) for flag in values["flags"]):
        raise ValueError("its mappings cannot be read")
    flags: FrozenSet[str] = frozenset(values.pop("flags"))
    return live.Mapping(**values, flags=flags)


def _parse_names(names: object) -> Mapping[int, str]:
    if not isinstance(names, dict) or not all(tid.isdecimal() and isinstance(name, str) for tid, name in names.items()):
        raise ValueError("its names of threads cannot be read")
    return {int(tid): name for tid, name in names.items()}


def _parse_clock(value: object) -> Optional[int]:
    if value is not None and (type(value) is not int or not 0 <= value < 1 << 63):
        raise ValueError("its clock cannot be read")
    return value


def _parse_runs(data: Buffer) -> Runs:
    words = np.frombuffer(data, "<u8", len(data) // 16 * 2).reshape(-1, 2).astype(np.uint64)
    starts, ends, kinds = words[:, 0] & ~_LOW, words[:, 1].copy(), (words[:, 0] & np.uint64(0xFF)).astype(np.uint8)
    _check_order(starts, ends)
    return Runs(starts, ends, kinds)


def _check_order(starts: "np.ndarray[Any, Any]", ends: "np.ndarray[Any, Any]") -> None:
    if not (starts < ends).all() or not (ends[:-1] <= starts[1:]).all():
        raise ValueError("its pages overlap")


def no_runs() -> Runs:
    """Return runs of no page."""
    return runs_of([])


def runs_of(rows: Sequence[Tuple[int, int, int]]) -> Runs:
    """Return runs from rows of start, end and kind, in any order."""
    table = np.array(sorted(rows), np.uint64).reshape(-1, 3)
    return Runs(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].astype(np.uint8))

"""The notes of our own in a snapshot: what was written is read, and what is damaged is said."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.memory.elf.corenotes import NT_GDBEXT_FACTS, NT_GDBEXT_MISSING, NT_GDBEXT_PAGES
from gdbext.memory.elf.snapshotnotes import (
    DONTDUMP,
    OUT_OF_TIME,
    REFUSED,
    SnapshotFacts,
    find_facts,
    pack_facts,
    runs_of,
)
from gdbext.memory.intervals import Coverage, columns
from gdbext.memory.live.mappings import Mapping
from gdbext.memory.live.presence import PRESENT, SWAPPED

HEAP = Mapping(0x1000, 0x9000, "[heap]", rss=0x2000, swap=0x1000, flags=frozenset(("rd", "wr")))
FILE = Mapping(0xA000, 0xB000, "/usr/lib/ä b\n.so", permissions="r-x", inode=7, device="fe:00", offset=0x3000)
FACTS = SnapshotFacts(
    (HEAP, FILE),
    runs_of([(0x1000, 0x3000, PRESENT), (0x4000, 0x5000, SWAPPED)]),
    runs_of([(0x1000, 0x2000, OUT_OF_TIME), (0x2000, 0x3000, REFUSED)]),
    {12: "one", 13: "two \x1b[31m"},
    time=17.5,
    clock=123,
    held_seconds=0.25,
)


def test_what_was_written_is_read():
    found = find_facts(pack_facts(FACTS), X86_64)
    assert found is not None
    assert (found.mappings, found.names) == ([HEAP, FILE], FACTS.names)
    assert (found.time, found.clock, found.held_seconds, found.swapped, found.known) == (17.5, 123, 0.25, False, True)
    for ours, theirs in ((found.pages, FACTS.pages), (found.missing, FACTS.missing)):
        assert ours.starts.tolist() == theirs.starts.tolist() and ours.ends.tolist() == theirs.ends.tolist()
        assert ours.kinds.tolist() == theirs.kinds.tolist()


def test_other_cores_have_none():
    assert find_facts({}, X86_64) is None


def test_each_reason_for_which_memory_is_missing_is_a_problem():
    problems = FACTS.check(FACTS.presence())
    assert [one.kind for one in problems] == ["swapped-memory", "not-copied", "unreadable-memory"]
    private = SnapshotFacts((HEAP,), FACTS.pages, runs_of([(0x1000, 0x2000, DONTDUMP)]), swapped=True)
    assert [one.kind for one in private.check(private.presence())] == ["not-dumped"]


def test_what_is_found_after_all_is_not_missing():
    found = FACTS.without(Coverage(*columns([(0x1000, 0x2000)])))
    assert found.missing.starts.tolist() == [0x2000] and found.missing.kinds.tolist() == [REFUSED]
    assert np.array_equal(found.pages.starts, FACTS.pages.starts)


def changed(**changes):
    document = json.loads(zlib.decompress(pack_facts(FACTS)[NT_GDBEXT_FACTS]))
    return zlib.compress(json.dumps({**document, **changes}).encode())


def mapping_with(at, value):
    rows = json.loads(zlib.decompress(pack_facts(FACTS)[NT_GDBEXT_FACTS]))["mappings"]
    rows[0][at] = value
    return changed(mappings=rows)


@pytest.mark.parametrize("data", (
    b"", b"x" * 100, zlib.compress(b"[1]"), zlib.compress(b"{}"), zlib.compress(b"[" * 100_000),
    zlib.compress(b" " * (1 << 27)), changed(version=2), changed(columns=[]), changed(mappings={}),
    changed(mappings=[1]), changed(names=[]), changed(names={"x": "y"}), changed(names={"1": 2}), changed(clock=-1),
    changed(clock="now"), changed(time="now"), changed(time=float("nan")), changed(held_seconds=-1),
    mapping_with(0, 0x9000), mapping_with(0, -1), mapping_with(1, 1 << 64), mapping_with(1, 0xA001),
    mapping_with(1, True), mapping_with(2, 3), mapping_with(-1, [3]),
))  # fmt: skip
def test_damaged_facts_are_an_error(data):
    with pytest.raises(ValueError, match="its |another version"):
        find_facts({**pack_facts(FACTS), NT_GDBEXT_FACTS: data}, X86_64)


@pytest.mark.parametrize("kind", (NT_GDBEXT_PAGES, NT_GDBEXT_MISSING))
@pytest.mark.parametrize("rows", ([(0x2000, 0x1000)], [(0x1000, 0x1000)], [(0x3000, 0x5000), (0x4000, 0x6000)]))
def test_pages_that_overlap_are_an_error(kind, rows):
    with pytest.raises(ValueError, match="pages overlap"):
        find_facts({**pack_facts(FACTS), kind: np.array(rows, "<u8").tobytes()}, X86_64)


def test_half_a_row_of_pages_is_no_row():
    found = find_facts({**pack_facts(FACTS), NT_GDBEXT_PAGES: bytes(15)}, X86_64)
    assert found is not None and not len(found.pages.starts)

"""The file of a snapshot, by what readelf says of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import numpy as np
import pytest

from gdbext.abi import I386, X86_64
from gdbext.errors import TooLargeError
from gdbext.memory.elf.snapshotnotes import runs_of
from gdbext.memory.intervals import Coverage, columns
from gdbext.memory.live.copying import FIRST, Places
from gdbext.memory.live.mappings import Mapping
from gdbext.memory.live.presence import GUARD, PRESENT, SWAPPED, Presence
from gdbext.snapshot.corelayout import HOLE, lay_out, write_headers

PAGE = 4096
BASE = 0x7F0000000000
NONE = Coverage(*columns([]))
LINE = re.compile(r"LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+) 0x(\w+) (\S* ?\S*) +0x1000")

pytestmark = pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf")


def cover(*pairs):
    return Coverage(*columns(pairs))


def laid_out(mappings, pages, copied, lost=NONE, place=None):
    """Return the rows of the loads: start, end, place in the file or None."""
    start, end = place or (mappings[0].start, mappings[0].end)
    places = Places(cover((start, end)), np.array([FIRST], np.uint64), FIRST + end - start)
    presence = Presence(mappings, runs_of(pages))
    return lay_out(mappings, presence, copied, lost, places)


def rows_of(loads):
    rows = zip(loads.starts.tolist(), loads.ends.tolist(), loads.offsets.tolist(), loads.held.tolist())
    return [(start - BASE, end - BASE, at if held else None) for start, end, at, held in rows]


def anonymous(pages, **more):
    return Mapping(BASE, BASE + pages * PAGE, "", rss=pages * PAGE, **more)


def test_untouched_pages_beside_others_are_zeros_in_their_place():
    loads = laid_out([anonymous(4)], [(BASE, BASE + PAGE, PRESENT)], cover((BASE, BASE + PAGE)))
    assert rows_of(loads) == [(0, 4 * PAGE, FIRST)]


def test_untouched_memory_far_from_others_shares_one_hole():
    """No longer than the hole may be; the rest of it is the hole again."""
    mapping = Mapping(BASE, BASE + 3 * HOLE + PAGE, "", rss=PAGE)
    loads = laid_out([mapping], [(BASE, BASE + PAGE, PRESENT)], cover((BASE, BASE + PAGE)), place=(BASE, BASE + PAGE))
    hole = FIRST + PAGE
    assert rows_of(loads) == [(0, PAGE, FIRST), *((PAGE + at * HOLE, PAGE + (at + 1) * HOLE, hole) for at in range(3))]
    assert loads.end == hole + HOLE


def test_what_is_swapped_out_or_guarded_or_lost_has_no_bytes():
    pages = [(BASE + PAGE, BASE + 2 * PAGE, SWAPPED), (BASE + 3 * PAGE, BASE + 4 * PAGE, GUARD)]
    lost = cover((BASE + 5 * PAGE, BASE + 6 * PAGE))
    loads = laid_out([anonymous(7, swap=PAGE)], pages, NONE, lost)
    assert [at for _, _, at in rows_of(loads)] == [
        FIRST,
        None,
        FIRST + 2 * PAGE,
        None,
        FIRST + 4 * PAGE,
        None,
        FIRST + 6 * PAGE,
    ]


@pytest.mark.parametrize("how", ({"inode": 5, "name": "/file"}, {"shared": True}, {"permissions": "---"}))
def test_of_other_memory_there_is_what_was_copied(how):
    mapping = Mapping(**{"start": BASE, "end": BASE + 3 * PAGE, "name": "", **how})
    loads = laid_out([mapping], [(BASE + PAGE, BASE + 2 * PAGE, PRESENT)], cover((BASE + PAGE, BASE + 2 * PAGE)))
    assert rows_of(loads) == [(0, PAGE, None), (PAGE, 2 * PAGE, FIRST + PAGE), (2 * PAGE, 3 * PAGE, None)]


def test_mappings_that_touch_are_apart():
    second = Mapping(BASE + PAGE, BASE + 2 * PAGE, "", permissions="r--")
    loads = laid_out([anonymous(1), second], [], NONE, place=(BASE, BASE + 2 * PAGE))
    assert rows_of(loads) == [(0, PAGE, FIRST), (PAGE, 2 * PAGE, FIRST + PAGE)] and loads.mapping.tolist() == [0, 1]


def written(tmp_path, loads, flags, abi=X86_64, notes=b""):
    path = tmp_path / "core"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    assert write_headers(descriptor, loads, flags, notes, abi) == os.fstat(descriptor).st_size
    os.close(descriptor)
    said = subprocess.run(["readelf", "-hlW", str(path)], capture_output=True, text=True, check=True)
    assert "arning" not in said.stderr + said.stdout and "rror" not in said.stderr
    return said.stdout


@pytest.mark.parametrize("abi,machine", ((X86_64, "ELF64"), (I386, "ELF32")))
def test_headers(tmp_path, abi, machine):
    base = 0x10000000
    mapping = Mapping(base, base + 2 * PAGE, "", permissions="r-x")
    loads = laid_out([mapping, Mapping(base + 2 * PAGE, base + 3 * PAGE, "", shared=True)], [], NONE)
    said = written(tmp_path, loads, [5, 6], abi)
    assert machine in said and "CORE (Core file)" in said and "NOTE" in said
    found = [(*(int(number, 16) for number in one[:4]), one[4].strip()) for one in LINE.findall(said)]
    assert found[0] == (FIRST, base, 2 * PAGE, 2 * PAGE, "R E")
    assert found[1][1:] == (base + 2 * PAGE, 0, PAGE, "RW")


def test_more_mappings_than_a_header_counts(tmp_path):
    count = 70_000
    mappings = [Mapping(BASE + 2 * at * PAGE, BASE + (2 * at + 1) * PAGE, "") for at in range(count)]
    loads = laid_out(mappings, [], NONE, place=(BASE, BASE + 2 * count * PAGE))
    said = written(tmp_path, loads, [6] * count)
    assert re.search(r"Number of program headers: +65535 \(70001\)", said) and said.count("LOAD") == count


def test_a_32_bit_core_has_its_bounds(tmp_path):
    mapping = Mapping(0, 0xFFFF0000, "")
    with pytest.raises(TooLargeError, match="32-bit"):
        written(tmp_path, laid_out([mapping], [], NONE), [6], I386, bytes(1 << 17))

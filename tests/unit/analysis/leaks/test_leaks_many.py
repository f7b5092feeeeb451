"""Very many blocks: as many calls of Python as for a few, and the time linear."""

import sys
import time

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.analysis.leaks.report import leaks
from gdbext.analysis.reach.mark import read_reach
from gdbext.analysis.reach.model import PLAIN
from gdbext.heap.model import Arena, Blocks, Heap, Span
from gdbext.kernels import IN_USE
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Thread
from gdbext.progress import SILENT
from gdbext.target import Target

HEAP, STEP = 0x10000000, 64

pytestmark = pytest.mark.skipif(IN_USE != "native", reason="the reference kernels are loops")


def lists(count):
    """Return the reachability of ``count`` leaked blocks: lists of ten, and as many blocks alone."""
    address = np.arange(count, dtype=np.uint64) * np.uint64(STEP) + np.uint64(HEAP)
    words = np.zeros((count, STEP // 8), np.uint64)
    words[: count // 2, 0] = address[1 : count // 2 + 1]
    words[9 : count // 2 : 10, 0] = 0
    regions = [Region(0x1000, 0x2000, name="[stack]"), Region(HEAP, HEAP + count * STEP, name="[heap]")]
    memory = FakeMemory([(0x1000, bytes(0x1000)), (HEAP, words.tobytes())], regions)
    blocks = Blocks(address, np.full(count, 56, np.uint64), np.zeros(count, np.uint8), np.zeros(count, np.uint32))
    heap = Heap("test", blocks, [Arena(0, 0xA000, "main", count * STEP)], [Span(HEAP, HEAP + count * STEP, "brk", 0)])
    return read_reach(Target(memory, X86_64, threads=[Thread(1, 1, None, 0x1800)]), [heap], PLAIN, SILENT)


def calls_and_seconds(count):
    reach = lists(count)
    calls = 0

    def count_call(frame, event, argument):
        nonlocal calls
        calls += 1

    started = time.process_time()
    sys.setprofile(count_call)
    try:
        data = leaks(reach, None).data
        first = next(iter(data.leak_roots))
    finally:
        sys.setprofile(None)
    assert data.totals.leaked_blocks == count
    assert data.totals.leak_root_blocks == count // 20 + count // 2
    assert (first.address, first.kept_blocks, first.kept_bytes) == (HEAP, 10, 560)
    return calls, time.process_time() - started


def test_a_million_leaked_blocks():
    few, _ = calls_and_seconds(100_000)
    many, seconds = calls_and_seconds(1_000_000)
    assert many < few + 20_000  # rows are made some thousand at a time, and nothing else by Python
    assert seconds < 20


@pytest.mark.parametrize(
    ("listed", "limit", "roots"),
    [
        (False, None, 1000),
        (False, 10, 1000),
        (False, 1500, 1500),
        (False, 0, 2200),
        (True, None, 2200),
        (True, 10, 2200),
    ],
)
def test_leak_roots_are_all_there_or_said_to_be_cut(listed, limit, roots):
    report = leaks(lists(4000), None, listed=listed, limit=limit)
    assert report.data.leak_roots.total == len(list(report.data.leak_roots)) == roots
    cut = [note for note in report.notes if "leak roots these are" in note]
    these = f"of 2 200 leak roots these are the {roots // 1000} {roots % 1000:03} that keep most"
    assert cut == ([f"{these}: --limit 0 lists all"] if roots < 2200 else [])

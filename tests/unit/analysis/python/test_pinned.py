"""Arenas that few objects keep: a Python after a peak of which a cache kept some, and its healthy twins."""

import pytest

import gdbext
from tests.support.parked import Parked

SCRIPT = """
import gc, os, signal
class Entry:
    def __init__(self, n): self.n = n
peak = [Entry(1000 + n) for n in range(150_000)]
{keep}
gc.disable()
os.write(1, b"parked")
signal.pause()
"""
KEEP_FEW = "cache = peak[::500]; del peak"
HEALTHY = {
    "all": "",
    "none": "del peak",
    "a third": "cache = peak[::3]; del peak",
}


def parked(folder, keep):
    return Parked("3.11", folder, SCRIPT.format(keep=keep))


def test_a_cache_that_keeps_the_arenas_of_a_peak(tmp_path):
    with parked(tmp_path, KEEP_FEW) as process, gdbext.open_process(process.pid) as session:
        page = session.triage()
        (finding,) = page.findings
        assert finding.kind == "arena-pinned" and finding.confidence.value == "high"
        arenas = len(next(heap for heap in session.heaps() if heap.family == "pymalloc").arenas)
        # 150 000 instances with values and an int have 21 MB; of each 500th of them 300 are left
        assert finding.details["arenas"] > 0.8 * arenas > 12 and finding.bytes > 14 << 20
        types = {row["type"]: row["blocks"] for row in finding.details["types"]}
        assert types["__main__.Entry"] > 250
        assert page.report.next[0] == "gx python blocks"
        assert [one.kind for one in page.problems] == ["not-examined"]


@pytest.mark.parametrize("keep", HEALTHY)
def test_healthy_twins_are_silent(keep, tmp_path):
    with parked(tmp_path, HEALTHY[keep]) as process, gdbext.open_process(process.pid) as session:
        page = session.triage()
        assert list(page.findings) == []
        assert [one.kind for one in page.problems] == ["not-examined"]

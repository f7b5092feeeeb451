"""What marking takes: with the blocks that it is given, 24 bytes a block and a byte for 16 bytes of heap."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gdbext.kernels import native

KERNELS, WHY = native.find_library()
ROOT = Path(__file__).resolve().parents[3]
BLOCKS, EACH = 2_000_000, 64

# The library's memory is not Python's: the kernel's own high-water mark shows it, in a process that does nothing else.
PROGRAM = f"""
import re
import numpy as np
from gdbext.kernels import native
from gdbext.kernels.pointers import REACHED, BlockIndex, PointerRules

def status(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])

count, each, base = {BLOCKS}, {EACH}, 0x7F0000000000
memory = np.zeros(count * each // 8, np.uint64)
address = base + np.arange(count, dtype=np.uint64) * np.uint64(each)
rows = np.arange(count)
memory[rows // 4 * (each // 8) + rows % 4] = address  # each block points at four: most are waiting at some time
index = BlockIndex(address, np.full(count, each - 8, np.uint64))
live, roots = np.ones(count, np.bool_), np.zeros(count, np.uint8)
roots[0] = REACHED
given = sum(column.nbytes for column in (address, index.size, live, roots))
kernels, _ = native.find_library()
del rows
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
states = kernels.mark_blocks([(base, memoryview(memory).cast("B"))], index, PointerRules(8), live, roots)
print(int((states == REACHED).sum()), given + status("VmHWM") - before)
"""


@pytest.mark.skipif(KERNELS is None, reason=f"no native kernels: {WHY}")
def test_marking_takes_hardly_more_than_the_blocks():
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed is gone, and not used again unseen
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if "clear_refs" in done.stderr:
        pytest.skip("this kernel does not reset a process's high-water mark")
    assert done.returncode == 0, done.stderr
    reached, taken = map(int, re.findall(r"\d+", done.stdout))
    assert reached == BLOCKS
    assert taken <= 24 * BLOCKS + BLOCKS * EACH // 16

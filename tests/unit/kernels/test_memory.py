"""What marking takes: with the blocks that it is given, 24 bytes a block and a byte for 16 bytes of heap.

And what the kernels do where a limit leaves them less than they need.
"""

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
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
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


# Each kernel under limits that leave it ever less: the right answer, or MemoryError; and the answer again without one.
LIMITED = """
import resource
import numpy as np
from gdbext import progress
from gdbext.kernels import native, native_graph
from gdbext.kernels.chains import MOST_NODES, LinkRules
from gdbext.kernels.pointers import BlockIndex, PointerRules

base, count, rng = 0x7F0000000000, 200_000, np.random.default_rng(1)
words = base + 8 * rng.integers(0, 4 * count, 4 * count).astype(np.uint64)
spans, firsts = [(base, memoryview(words).cast("B"))], words[:count].copy()
links = base + 8 * np.arange(1, 4 * count + 1, dtype=np.uint64)
links[-1] = 0
chain, head = [(base, memoryview(links).cast("B"))], np.array([base], np.uint64)
index = BlockIndex(base + 32 * np.arange(count, dtype=np.uint64), np.full(count, 32, np.uint64))
live, roots, rules = np.ones(count, np.bool_), np.ones(count, np.uint8), PointerRules(8)
kernels, _ = native.find_library()
graphs = native_graph.NativeGraphs(kernels)
edges = graphs.block_edges(spans, index, rules, live)
entry, entries = np.arange(count, dtype=np.uint32), np.zeros(count, np.uint32)
tree = np.full(1_600_000, 0xFFFFFFFE, np.uint32)
anew = lambda: BlockIndex(index.address, index.size)
work = [
    lambda: kernels.walk_chains(chain, head, None, LinkRules(0, 8), MOST_NODES).nodes,
    lambda: kernels.tally_chains(chain, np.repeat(head, 8), None, LinkRules(0, 8)).sample,
    lambda: kernels.scan_pointers(spans, anew(), rules).place,
    lambda: kernels.mark_blocks(spans, anew(), rules, live, roots),
    lambda: kernels.count_values(firsts, roots, np.ones(256, np.uint8), 2)[1],
    lambda: graphs.block_edges(spans, index, rules, live).to,
    lambda: graphs.find_components(edges, live),
    lambda: graphs.breadth_first(edges, roots, live).depth,
    lambda: graphs.find_dominators(edges, entry, entries),
    lambda: graphs.sum_up_tree(tree, index.size)[0],  # of 13 bytes a node its own is one
]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
progress.limit_threads(16)
for number, kernel in enumerate(work):
    expected, said = kernel(), ""
    for left in (*range(8 << 20 if number < 9 else 24 << 20, 0, -3 << 18), 1 << 18):
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + left, -1))
        try:
            assert np.array_equal(kernel(), expected), number
        except MemoryError as error:
            said += str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    print(number, "native kernels" in said)
    assert np.array_equal(kernel(), expected), number
"""


@pytest.mark.skipif(KERNELS is None, reason=f"no native kernels: {WHY}")
def test_kernels_without_memory_say_so():
    # What was used before is gone: only what the limit leaves can be taken.
    malloc = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    environment = {**os.environ, **malloc}
    words = [sys.executable, "-c", LIMITED]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr, done.stdout)
    assert done.stdout.split("\n")[:-1] == [f"{number} True" for number in range(10)]

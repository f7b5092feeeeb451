"""Debian's servers on its stripped jemalloc: what gdbext reads is what jemalloc says of itself.

redis-server tells its allocator's figures by INFO and MEMORY MALLOC-STATS. BIND and Varnish tell nothing: jemalloc is
asked in their processes by what is preloaded. Servers never rest wholly: a figure is taken twice, before and after.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import Iterator

import pytest

from gdbext.coretarget import read_core_target
from gdbext.heap.jemalloc.model import Jemalloc
from tests.gdb.realjemalloc import (
    KEYS,
    SERVERS,
    Redis,
    make_teller,
    need_kernel_core,
    redis,
)
from tests.support.jecompare import PRINT_BUFFER, printed_figures
from tests.support.jelook import look, plain, read_only
from tests.support.jetruth import JeTruth

pytestmark = pytest.mark.slow

TRIES = 5  # for a moment at which nothing moves
Bins = dict[int, dict[str, int]]  # counters by region size
COUNTERS = ("nmalloc", "ndalloc", "curregs", "curslabs", "nonfull_slabs")


@pytest.fixture(autouse=True)
def _may_attach() -> None:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and int(scope.read_text()) > (2 if os.geteuid() == 0 else 0):
        pytest.skip("this machine forbids gdb to attach to what it did not start")


def of_core(core: Path) -> Jemalloc:
    heap = read_only(read_core_target(str(core)))
    assert heap.complete and heap.problems == []
    return heap


def sums(heap: Jemalloc) -> dict[str, int]:
    """The three figures of INFO."""
    names = ("allocated", "active", "resident")
    return {name: sum(getattr(arena, name) for arena in heap.arenas) for name in names}


# ---- redis ----


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Redis]:
    folder = tmp_path_factory.mktemp("redis")
    with redis(folder, KEYS) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


def quiet(server: Redis) -> tuple[Bins, dict[str, int]]:
    """Return what MALLOC-STATS tells when it is what the one before told: each makes a cache give back a little."""
    previous, now = None, None
    for _ in range(400):
        text = server.ask("MEMORY", "MALLOC-STATS")
        totals = re.findall(r"\b(allocated|active): (\d+)", text.lower())
        previous, now = now, (bin_rows(text), {name: int(number) for name, number in totals})
        if now == previous:
            return now
    raise AssertionError(f"the bins do not come to rest: {previous} {now}")


def bin_rows(text: str) -> Bins:
    """The table of small bins by region size: of all arenas, or of the only one."""
    lines = iter(text.splitlines())
    header = next(line.split()[1:] for line in lines if line.startswith("bins:"))
    rows = {}
    for line in lines:
        cells = line.split()
        if not re.match(r"^ +\d+ +\d+ ", line):
            if cells != ["---"]:
                break
            continue
        row = dict(zip(header, cells))
        rows[int(row["size"])] = {name: int(row[name]) for name in COUNTERS}
    return rows


def ours(heap: Jemalloc) -> Bins:
    rows: Bins = {}
    for arena in heap.arenas:
        for one in arena.bins:
            row = rows.setdefault(one.info.reg_size, dict.fromkeys(COUNTERS, 0))
            for name in COUNTERS:
                row[name] += getattr(one.stats, name)
            assert (one.used, one.total - one.free_bits) == (one.stats.curregs, one.stats.curregs)
            assert (one.slabs, one.nonfull) == (one.stats.curslabs, one.stats.nonfull_slabs)
    return {size: row for size, row in rows.items() if any(row.values())}


def test_redis_says_the_same_of_itself(server, tmp_path):
    for _ in range(TRIES):
        said = server.settled()
        live, core = look(server.daemon.pid, tmp_path)
        heap = of_core(core)
        assert plain(heap) == live
        if sums(heap) == said:
            break
    assert sums(heap) == said
    assert heap.location.found_by.startswith("build-id of libjemalloc2")


def test_redis_bins_are_those_of_its_statistics(server, tmp_path):
    for _ in range(TRIES):
        told = quiet(server)
        _, core = look(server.daemon.pid, tmp_path)
        heap = of_core(core)
        # when they are taken there is the buffer to print into, a large block of 64 KiB and a page
        buffer = {"allocated": PRINT_BUFFER, "active": PRINT_BUFFER + heap.location.geometry.page}
        read = ours(heap), {name: sums(heap)[name] + size for name, size in buffer.items()}
        if told == read:
            break
    assert told == read


def test_a_core_that_the_kernel_wrote_of_redis(tmp_path):
    need_kernel_core()
    for number in range(TRIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        with redis(folder, KEYS // 10) as server:
            told = server.settled()
            os.kill(server.daemon.pid, signal.SIGABRT)
            os.waitid(os.P_PID, server.daemon.pid, os.WEXITED | os.WNOWAIT)  # the kernel's core is written by then
            [core] = folder.glob("core*")
        read = sums(of_core(core))
        if read == told:
            break
    assert read == told


# ---- servers that tell nothing ----


def different(heap: Jemalloc, told: JeTruth) -> list[tuple[str, object, object]]:
    return [figure for figure in printed_figures(heap, told) if figure[1] != figure[2]]


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_on_jemalloc_reconciles(name, tmp_path):
    teller = make_teller(tmp_path)
    with SERVERS[name](tmp_path, teller.environment) as daemon:
        for _ in range(TRIES):
            before = teller.ask(daemon.pid)
            live, core = look(daemon.pid, tmp_path)
            after = teller.ask(daemon.pid)
            heap = of_core(core)
            if not different(heap, before) or not different(heap, after):
                break
    assert different(heap, before) == [] or different(heap, after) == []
    assert plain(heap) == live
    assert sum(1 for _ in printed_figures(heap, before)) > 5000
    assert len(heap.arenas) > 1 and sum(len(arena.threads or ()) for arena in heap.arenas) > 4

"""Arenas, threads and slabs made by hand, for what is judged from figures alone."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Optional, Sequence

import numpy as np

from gdbext.abi import X86_64
from gdbext.heap.jemalloc.layouts import for_version
from gdbext.heap.jemalloc.model import (
    ArenaState,
    BaseState,
    BinInfo,
    BinShard,
    BinState,
    BinStats,
    CacheState,
    DecayState,
    Extents,
    Geometry,
    Jemalloc,
    LargeClass,
    Location,
    StateSum,
    TsdKind,
    TsdState,
)
from gdbext.memory.fake import FakeMemory
from gdbext.memory.live import monotonic
from gdbext.report import ThreadRef
from gdbext.target import Target

# What jemalloc 5.1.0, 5.2.1 and 5.3.0 left in cores: address of the structure, epoch, deadline (5 ms apart and more).
# The first two never advanced, the next two once and twice: the program's threads ended, or slept.
NEVER = (0x7F7E8E003A98, 12235662448740, 12235668043628)
NEVER_MUZZY = (0x7F7E8E004188, 12235662448740, 12235668890789)
ONCE = (0x7F9AC5406CA0, 12265774449774, 12265782576682)
TWICE = (0x7F0FA3A06CA0, 12285222450469, 12285232178956)
OFTEN = (0x7FE13B011F88, 12260726449593, 12260736113902)  # 167 times by a count of another's
STEP = 5_000_000  # ns, where the decay time is 1000 ms
GEOMETRY = Geometry(48, 12, (18, 18), True)
ARENA = 0x7F0000001000
NONE = BinStats(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def set_uptime(monkeypatch: Any, uptime: int) -> None:
    """Have this machine's monotonic clock stand at ``uptime`` ns, so that no test leans on how long it has been up."""
    clock = SimpleNamespace(CLOCK_MONOTONIC=time.CLOCK_MONOTONIC, clock_gettime_ns={time.CLOCK_MONOTONIC: uptime}.get)
    monkeypatch.setattr(monotonic, "time", clock)


def decay(drawn: tuple[int, int, int] = NEVER, **changes: Any) -> DecayState:
    """Return a decay of 1000 ms."""
    address, epoch, deadline = drawn
    state = DecayState(address, 1000, STEP, epoch, deadline, False, None, 0, (0,) * 200, 0, 0, 0)
    return replace(state, **changes)


def arena(dirty: Optional[DecayState] = None, pages: int = 10_000, muzzy_pages: int = 0, **changes: Any) -> ArenaState:
    """Return an arena with unused pages, whose threads freed half a million large blocks."""
    cache = CacheState(0, 0, None, None)
    state = dirty or decay()
    made = ArenaState(
        index=0,
        address=ARENA,
        base=BaseState(0, 0, 1000, 4096, 4096),
        auto=True,
        nthreads=(3, 3),
        nactive=1000,
        ndirty=pages,
        dirty=replace(cache, npages=pages),
        muzzy=replace(cache, npages=muzzy_pages),
        retained=cache,
        decay_dirty=state,
        decay_muzzy=decay(NEVER_MUZZY),
        stats=True,
        internal=0,
        mapped=0,
        resident=0,
        abandoned_vm=None,
        large=(LargeClass(40, 20480, 500_000, 500_000),),
        bins=(),
        walked=[StateSum()] * 8,
        large_walked=(0, 0),
        tcaches=0,
        create_time=state.epoch,
        page=4096,
    )
    return replace(made, **changes)


def tsd(number: int, state: Optional[TsdKind] = TsdKind.NOMINAL, **changes: Any) -> TsdState:
    """Return the data of a thread of 5.2 that freed first."""
    bound = ARENA if state is not None and state.nominal else 0
    made = TsdState(
        address=0x7F1000000000 + 0x2000 * number,
        thread=ThreadRef(number, 1000 + number, f"worker-{number}"),
        raw_state=99 if state is None else int(state),
        state=state,
        arena=bound,
        iarena=bound,
        tcache_enabled=True,
        tcache=0,
        tcache_arena=bound,
        arenas_tdata=0,
        bypass=True,
    )
    return replace(made, **changes)


def well(number: int) -> TsdState:
    """Return the data of a thread that can purge."""
    return tsd(number, arenas_tdata=0x7F2000000000, bypass=False)


def heap(
    arenas: Sequence[ArenaState] = (),
    tsds: Optional[Sequence[TsdState]] = (),
    version: str = "5.2.1",
    target: Optional[Target] = None,
    symbols: Optional[dict[str, int]] = None,
    extents: Optional[Extents] = None,
    infos: tuple[BinInfo, ...] = (),
) -> Jemalloc:
    """Return a jemalloc of these parts; background threads are off unless ``symbols`` says something else."""
    layout = for_version(version)[0]
    memory = FakeMemory([(0x1000, b"\0" * 16), (0x2000, b"\1" * 16)], [])
    known = {"background_thread_enabled_state": 0x1000} if symbols is None else symbols
    location = Location(None, None, layout, 0, 1, 0, GEOMETRY, infos, (), symbols=known)
    place = target or Target(memory, X86_64)
    return Jemalloc(place, location, extents or Extents.empty(), arenas, tsds)


def slabs(info: BinInfo, free: Sequence[int], arena_index: int = 0) -> Extents:
    """Return slabs of one class with so many free regions each; the first is at ``edata`` 0x100."""
    count = len(free)
    zero = np.zeros(count, np.uint64)
    return replace(
        Extents.empty(),
        edata=np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x100),
        address=np.arange(count, dtype=np.uint64) * np.uint64(info.slab_size),
        pointer=zero,
        size=np.full(count, info.slab_size, np.uint64),
        usable=zero,
        bits=zero,
        arena=np.full(count, arena_index, np.uint16),
        state=np.zeros(count, np.uint8),
        slab=np.ones(count, np.bool_),
        szind=np.full(count, info.index, np.uint16),
        nfree=np.array(free, np.uint16),
        shard=np.zeros(count, np.uint8),
        guarded=np.zeros(count, np.bool_),
        hpa=np.zeros(count, np.bool_),
        popcount=np.array(free, np.uint16),
    )


def bin_with(info: BinInfo, slabcur: int) -> BinState:
    """Return a bin that allocates from that slab."""
    return BinState(info, (BinShard(0, 0, slabcur, 0, 0, NONE),), NONE, 0, 0, 0, 0, 0, 0, 0)

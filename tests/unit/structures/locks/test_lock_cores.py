"""The census over synthetic cores: another machine's, one without registers, one cut short."""

import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.analysis.locks.waitgraph import build_graph
from gdbext.coretarget import read_core_target
from gdbext.errors import BadCoreError
from gdbext.structures.locks.census import take_census
from gdbext.structures.locks.model import Primitive, State
from tests.support.elfwriter import CoreWriter

CODE, LOCKS, STACKS, BLOCKS = 0x10000, 0x20000, 0x100000, 0x800000
SVC = b"\x01\x00\x00\xd4"


def aarch64_pair():
    """Two threads that want each other's mutex; struct pthread lies below the thread pointer, 0x8d0 bytes in."""
    writer = CoreWriter("aarch64")
    block = bytearray(0x4000)
    for at in (0, 1):
        pointer = BLOCKS + 0x2000 * at + 0x1000
        registers = {"x8": 98, "x0": LOCKS + 0x40 * at, "x1": 0x80, "x2": 2, "pc": CODE + 8, "sp": STACKS + 0x1000 * at}
        writer.prstatus(500 + at, registers).add("LINUX", 0x401, struct.pack("<Q", pointer))
        struct.pack_into("<i", block, 0x2000 * at + 0x8D0, 500 + at)
    locks = bytearray(0x1000)
    for at in (0, 1):
        struct.pack_into("<5I", locks, 0x40 * at, 2, 0, 501 - at, 1, 0)
    writer.load(CODE, bytes(8) + SVC + bytes(0xFF4)).load(LOCKS, bytes(locks))
    return writer.load(STACKS, bytes(0x2000)).load(BLOCKS, bytes(block))


def census_of(tmp_path, data):
    path = tmp_path / "core"
    path.write_bytes(data)
    return take_census(read_core_target(str(path)))


def test_a_deadlock_on_aarch64_by_the_registers_names_that_its_core_has(tmp_path):
    census = census_of(tmp_path, aarch64_pair().build())
    assert [wait.primitive for wait in census.waits] == [Primitive.MUTEX, Primitive.MUTEX]
    assert [wait.state_of_lock.owner_tid for wait in census.waits] == [501, 500]
    assert [wait.tid for wait in census.waits] == [500, 501]
    assert [cycle.threads for cycle in build_graph(census).cycles] == [(1, 2)]


def test_a_machine_whose_registers_are_not_known(tmp_path):
    census = census_of(tmp_path, CoreWriter("s390", order="big").prstatus(7).load(0x1000, bytes(64)).build())
    assert [wait.state for wait in census.waits] == [State.UNKNOWN]
    assert "the registers of" in census.notes[0]


def test_threads_without_memory(tmp_path):
    """A core cut short, or filtered: registers are all there is."""
    registers = {"orig_rax": 202, "rax": -512 & (1 << 64) - 1, "rdi": 0x5000, "rsi": 0x80, "rdx": 2, "rsp": 0x7000}
    writer = CoreWriter()
    for lwp in (7, 8):
        writer.prstatus(lwp, {**registers, "fs_base": 0x9000 + lwp * 0x1000})
    census = census_of(tmp_path, writer.load(0x5000, b"", memsz=0x1000).build())
    assert [wait.primitive for wait in census.waits] == [Primitive.LOW_LEVEL] * 2
    assert not census.complete and build_graph(census).lost == {}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 0x7000))
def test_a_core_cut_anywhere_is_told_or_looked_at(tmp_path_factory, size):
    data = aarch64_pair().build()[:size]
    try:
        census = census_of(tmp_path_factory.mktemp("cut"), data)
    except BadCoreError:
        return
    for wait in census.waits:
        assert wait.state in State


@pytest.mark.parametrize("spread", [0, 64])
def test_two_thousand_threads_of_garbage_are_bounded(tmp_path, spread):
    writer = CoreWriter()
    for at in range(2000):
        registers = {"orig_rax": 202, "rax": -512 & (1 << 64) - 1, "rdi": LOCKS + 16 * at % 0x8000, "rsi": 0x189,
                     "rsp": STACKS + spread * at, "fs_base": BLOCKS + spread * at}  # fmt: skip
        writer.prstatus(5000 + at, registers)
    locks = struct.pack("<4I", 0, 3, 0, 0) * 0x800
    writer.load(LOCKS, locks).load(STACKS, bytes(0x40000)).load(BLOCKS, struct.pack("<I", 5001) * 0x10000)
    start = time.process_time()
    census = census_of(tmp_path, writer.build())
    build_graph(census)
    assert time.process_time() - start < 8
    assert len(census.waits) == 2000

"""Memory of no known allocator: when it makes an answer incomplete, when it is a note, when it is nothing."""

from dataclasses import replace

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.analysis.footprint.ledger import take_account
from gdbext.analysis.footprint.residency import PageResidency
from gdbext.analysis.footprint.unattributed import find_unattributed
from gdbext.analysis.missing import Unexamined, with_clock
from gdbext.analysis.thresholds import thresholds
from gdbext.debuginfo import Symbol
from gdbext.heap.model import State
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.memory.intervals import Coverage
from gdbext.process import Identity, Module
from gdbext.progress import SILENT, WorkLimit
from gdbext.report import Report
from gdbext.target import Target

MB = 1 << 20
HEAP, POOL = 0x10000000, 0x70000000


class Written(FakeMemory):
    """Zeros but for some addresses."""

    def __init__(self, regions, *written):
        super().__init__([], regions)
        self.written = written

    def read(self, address, size):
        filled = any(start <= address < end for start, end in self.written)
        return (b"x" if filled else b"\0") * size


def target_of(*written, pool=64 * MB, **more):
    regions = [Region(HEAP, HEAP + 100 * MB, name="[heap]"), Region(POOL, POOL + pool)]
    return Target(Written(regions, *written), X86_64, Identity(exe="/bin/test"), **more)


def heap_of(maker, size):
    maker.span(HEAP, [(size, State.IN_USE), (1000, State.TOP)])
    return maker.heap()


def look(target, *heaps, residency=None):
    return find_unattributed(target, heaps, take_account(target, heaps), thresholds({}, target), residency)


def resident(*pieces):
    starts, ends = (np.array(column, np.uint64) for column in zip(*pieces))
    return PageResidency(Coverage(starts, ends), [])


def test_an_unknown_allocator_is_not_examined():
    beyond = look(target_of((HEAP, HEAP + 100 * MB), (POOL, POOL + 64 * MB)))
    (one,) = beyond.unexamined
    assert str(one) == (
        "164 MiB of memory (whose allocator is not known; the largest piece is 0x10000000-0x16400000)"
    )
    assert one.problem.kind == "unknown-allocator" and not beyond.complete and not beyond.notes


def test_the_largest_piece_of_a_process_is_that_of_which_most_is_in_ram():
    (one,) = look(target_of(), residency=resident((HEAP, HEAP + MB), (POOL, POOL + 40 * MB))).unexamined
    assert str(one).endswith(f"the largest piece is {POOL:#x}-{POOL + 64 * MB:#x})")


@pytest.mark.parametrize(
    "path, name",
    [
        ("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4.5.9", "tcmalloc"),
        ("/lib/ld-musl-x86_64.so.1", "musl"),
        ("/usr/lib/x86_64-linux-musl/libc.so", "musl"),
        ("/usr/lib/jvm/java-17/lib/server/libjvm.so", "a JVM"),
        ("/usr/bin/python3.11", "CPython"),
        ("/usr/lib/libc.so.6", None),
    ],
)
def test_its_name_is_told_by_the_modules(path, name):
    (one,) = look(target_of((POOL, POOL + 64 * MB), modules=[Module(path, 0x1000, 0x2000, None)])).unexamined
    assert (f"by its name {name};" in one.why) if name else ("by its name" not in one.why)


def test_or_by_a_symbol():
    class Go:
        def find_symbols(self, name):
            return [Symbol(name, 0x1000, None)] if name == "runtime.mheap_" else []

    (one,) = look(target_of((POOL, POOL + 64 * MB), symbols=Go())).unexamined
    assert "by its name Go;" in one.why


def test_beside_a_known_heap_it_is_the_program_s_own(maker):
    heap = heap_of(maker, 90 * MB)
    beyond = look(target_of((POOL, POOL + 300 * MB), pool=300 * MB), heap)
    assert beyond.complete and len(beyond.notes) == 1 and "the program mapped it itself" in beyond.notes[0]
    assert not look(target_of((POOL, POOL + 600 * MB), pool=600 * MB), heap).complete


def test_what_was_never_written_costs_nothing(maker):
    heap = heap_of(maker, 1 * MB)
    assert look(target_of(pool=64 << 30), heap) == look(target_of(pool=4096), heap)
    few = target_of((POOL + (1 << 30), POOL + (1 << 30) + 8 * MB), pool=2 << 30)
    assert look(few, heap).complete
    many = target_of((POOL + (1 << 30), POOL + (1 << 30) + 200 * MB), pool=64 << 30)
    assert not look(many, heap).complete
    assert look(many, heap) == look(many, heap)


def test_of_a_process_what_is_in_ram_counts(maker):
    heap, target = heap_of(maker, 1 * MB), replace(target_of((POOL, POOL + 64 * MB)), live=True)
    assert look(target, heap, residency=resident((HEAP, HEAP + MB), (POOL, POOL + 3 * MB))).complete
    beyond = look(target, heap, residency=resident((HEAP, HEAP + MB), (POOL, POOL + 20 * MB)))
    assert beyond.unexamined[0].what == "20 MiB of memory"


def test_less_than_a_finding_needs_is_nothing(maker):
    beyond = look(target_of((POOL, POOL + 3 * MB), pool=3 * MB), heap_of(maker, MB))
    assert beyond.complete and not beyond.notes


# ---- what else cuts an answer short ----


def test_a_limit_of_work_counts_each_loop_by_itself():
    limit = WorkLimit(SILENT, 10)
    for done in (3, 6):
        limit.at("bins", done, None)
    limit.at("nodes", 2, None)
    assert limit.done == 8 and not limit.over
    with pytest.raises(KeyboardInterrupt):
        limit.at("nodes", 2 + 2, None)
    assert limit.over
    again = WorkLimit(SILENT, 10)
    again.at("bins", 5, None)
    again.at("bins", 4, None)  # the next table
    assert again.done == 9


def test_a_clock_that_ended_a_command_is_named():
    report = Report(None)
    assert with_clock(report, 0) is report
    cut = with_clock(report, 5)
    assert not cut.complete and [one.kind for one in cut.problems] == ["time-limit"]
    assert "after 5 s: another run may come to another answer" in cut.problems[0].message


def test_unexamined_in_words():
    one = Unexamined("leaks", "interrupted", "triage --leaks")
    assert (str(one), one.problem.message) == ("leaks (interrupted)", "leaks (interrupted); next: triage --leaks")
    assert Unexamined("locks", "interrupted").problem.message == "locks (interrupted)"

"""Threads that are grouped: by equal stacks, and by functions in which they wait for what has no known owner."""

from __future__ import annotations

import pytest

from gdbext import render
from gdbext.analysis.beyond import NOTHING, Beyond, joined
from gdbext.analysis.locks.findings import find_lock_findings, find_notable_waits
from gdbext.analysis.locks.report import Knowledge, lockwait_report
from gdbext.analysis.locks.stackgroups import fold, group_stacks
from gdbext.analysis.locks.unowned import find_unowned
from gdbext.analysis.locks.waitdot import dot_lines
from gdbext.analysis.page import make_page
from gdbext.debuginfo import HANDLER, Frame
from gdbext.structures.locks.frames import find_telling
from gdbext.structures.locks.model import Primitive
from gdbext.structures.locks.waitplaces import WAIT_PLACES, find_wait_place
from tests.unit.analysis.heaps import NOTHING as NO_TARGET
from tests.unit.analysis.locks.test_lockwait import census, document, running, waiting

LIBC = [Frame(0, 0x10, None, "__futex_abstimed_wait_common", "libc.so.6"), Frame(1, 0x20, None, "pthread_cond_wait")]


class Stacks:
    """Stacks by thread number."""

    def __init__(self, stacks):
        self._stacks = stacks

    def frames(self, thread, limit):
        return self._stacks.get(thread.number, ())[:limit]


def called(name, line=None, pc=0x100):
    return [*LIBC, Frame(2, pc, None, name, "server", line), Frame(3, 0x900, None, "main", "server")]


def conditions(count, first=1):
    return [waiting(number, 0xA000 + 64 * number, 0, Primitive.CONDITION) for number in range(first, first + count)]


def unowned(names, waits=None):
    stacks = Stacks({number: called(name, "x.cc:7") for number, name in enumerate(names, 1)})
    return find_unowned(census(*(waits or conditions(len(names)))), stacks)


def sentences(groups):
    report = lockwait_report(census(running(1)), Knowledge(unowned=groups))
    return report.data.sentences


def test_threads_in_one_function_are_one_group():
    (group,) = unowned(["MDL_wait::timed_wait(MDL_context_owner*, timespec*, bool)"] * 37)
    assert (group.count, group.function, group.line, group.idle) == (37, "MDL_wait::timed_wait", "x.cc:7", False)
    (sentence,) = sentences([group])
    assert sentence.startswith(
        "37 threads wait in MDL_wait::timed_wait for a metadata lock; the owner is not known from memory: "
        "SELECT * FROM performance_schema.metadata_locks"
    )


def test_advice_names_the_process_that_lives():
    stacks = Stacks({1: called("take_gil")})
    (live,), (core,) = (find_unowned(census(*conditions(1)), stacks, pid) for pid in (4711, None))
    assert "py-spy dump --pid 4711," in live.advice and "--pid PID," in core.advice


def test_idle_workers_are_no_news():
    assert unowned(["worker_loop"] * 40) == ()
    (parked,) = unowned(["Parker::park"] * 15)
    assert parked.idle and ", as idle threads do; the owner is not known from memory" in sentences([parked])[0]
    for name, count, settings, notable in (
        ("Parker::park", 99, {}, 0),
        ("take_gil", 15, {}, 0),
        ("take_gil", 16, {}, 1),
        ("take_gil", 15, {"convoy-many": 15}, 1),
    ):
        assert len(find_notable_waits(Knowledge(unowned=unowned([name] * count)), settings)) == notable


def test_a_wait_with_an_owner_is_in_no_group():
    names = ["ObjectMonitor::enter"] * 3
    held = [running(3), waiting(1, 0xA0, 3), waiting(2, 0xA0, 3)]
    assert unowned(names, held) == ()  # and one that runs does not wait
    lost = [waiting(number, 0xA0, 99) for number in (1, 2)]
    assert unowned(names[:2], lost) == ()


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("ObjectMonitor::enter", "a Java monitor"),
        ("ObjectMonitor::EnterI(JavaThread*)", "a Java monitor"),
        ("ObjectMonitor::wait(long, bool, JavaThread*)", "Object.wait() of Java"),
        ("take_gil", "Python's interpreter lock"),
        ("take_gil.constprop.0", "Python's interpreter lock"),
        ("PyThread_acquire_lock_timed", "a lock of Python"),
        ("runtime.futexsleep", "Go's scheduler"),
        ("runtime.lock2.abi0", "a lock of Go's runtime"),
        ("ProcSleep", "a lock of PostgreSQL"),
        ("std::sys::sync::mutex::futex::Mutex::lock_contended", "a lock of Rust"),
        ("std::sys::unix::locks::futex_mutex::Mutex::lock_contended::h0123456789abcdef", "a lock of Rust"),
        ("parking_lot::raw_mutex::RawMutex::lock_slow", "a lock of Rust"),
        ("absl::lts_20220623::Mutex::LockSlowLoop(absl::SynchWaitParams*, int)", "a mutex of Abseil"),
        ("my_take_gil", None),
        ("Parker", None),
        ("pthread_cond_wait", None),
        (None, None),
    ],
)
def test_functions_that_are_known(name, what):
    found = find_wait_place([Frame(0, 0x10, None, name)])
    assert (found[0].what if found else None) == what


def test_a_lock_of_a_runtime_comes_before_how_it_sleeps():
    frames = [Frame(at, at, None, name) for at, name in enumerate(("runtime.futexsleep", "runtime.lock2", "main"))]
    assert [find_wait_place(some)[0].idle for some in (frames, frames[:1])] == [False, True]


def test_the_table_is_whole():
    assert all(place.functions and place.what and place.advice for place in WAIT_PLACES)
    assert len({one for place in WAIT_PLACES for one in place.functions}) == sum(
        len(place.functions) for place in WAIT_PLACES
    )


def test_json_and_the_page():
    groups = unowned(["take_gil"] * 16)
    data = document(lockwait_report(census(running(1)), Knowledge(unowned=groups)))["data"]
    assert data["unowned"][0]["threads"] == list(range(1, 17)) and data["findings"] == []
    page = make_page(NO_TARGET, [], {}, beyond=joined(NOTHING, Beyond(waits=groups)))
    assert page.findings is False and tuple(page.data.waits) == groups
    assert "16 threads wait in take_gil" in "".join(render.text(page, exact=False, limit=None))


def test_places_are_in_the_graph_and_in_what_is_shown_of_findings():
    frames = {1: Frame(2, 0x1, None, "credit", None, "bank.c:9"), 2: Frame(2, 0x2, None, "debit", None, "bank.c:17")}
    taken, known = census(waiting(1, 0xA0, 2), waiting(2, 0xB0, 1)), Knowledge(frames=frames)
    (finding,) = find_lock_findings(taken, known, {})
    assert [line.partition(", in ")[2].partition(")")[0] for line in finding.evidence] == [
        "credit (bank.c:9",
        "debit (bank.c:17",
    ]
    assert 'label="thread 1 t1 in credit (bank.c:9)"' in "".join(dot_lines(taken, known))
    queue = [waiting(number, 0xA0, 1) for number in range(2, 20)]
    frames = {number: Frame(2, 0x1, None, "credit", None, f"bank.c:{9 + number % 2}") for number in range(2, 20)}
    (finding,) = find_lock_findings(census(running(1), *queue), Knowledge(frames=frames), {})
    assert [line.partition(":")[0] for line in finding.evidence] == [
        "thread 2 (and 4, 6, 8, 10, 12, 14, 16, 18)",
        "thread 3 (and 5, 7, 9, 11, 13, 15, 17, 19)",
    ]


def test_a_wrapper_of_a_server_is_not_where_a_thread_is():
    for name in ("psi_cond_wait", HANDLER, "raise"):
        assert find_telling(called(name)).function == "main"


# ---- stacks ----


def lambdas(*places):
    """Stacks that have the same names; only addresses tell them apart."""
    name = "start()::{lambda()#1}::operator()() const"
    return Stacks({number: called(name, line, pc) for number, (line, pc) in enumerate(places, 1)})


def test_stacks_are_equal_by_address():
    stacks = lambdas(("a.cc:4", 0x100), ("a.cc:9", 0x200), ("a.cc:4", 0x100))
    report = group_stacks(census(*conditions(3)), stacks)
    assert [row.numbers for row in report.data.stacks] == [(1, 3), (2,)]
    assert report.data.summary == "2 different stacks of 3 threads"
    rows = document(report)["data"]["stacks"]
    assert rows[0]["stack"] == rows[1]["stack"]
    assert [row["frames"][2]["address"] for row in rows] == ["0x100", "0x200"]
    assert [row["frames"][2]["line"] for row in rows] == ["a.cc:4", "a.cc:9"]
    assert "operator()() const (a.cc:9)" in " ".join(row.shown for row in report.data.stacks)


def test_folded_stacks_have_lines_and_what_is_written_alike_is_summed():
    folded = list(fold(census(*conditions(3)), lambdas(("a.cc:4", 0x100), ("a.cc:9", 0x200), ("a.cc:4", 0x100))))
    assert len(folded) == 3  # thread names differ
    waits = [waiting(1, 0xA0, 0, Primitive.CONDITION)] * 2
    assert [line.rpartition(" ")[2] for line in fold(census(*waits), lambdas(("a.cc:4", 0x100)))] == ["2\n"]
    assert "_(a.cc:4);" in folded[0] and " " not in folded[0].rpartition(" ")[0]


def test_what_gdb_could_not_unwind():
    (row,) = group_stacks(census(*conditions(2)), Stacks({})).data.stacks
    assert (row.count, row.shown, row.frames) == (2, "not unwound", ())

"""Graphs, findings and comparisons of lock censuses made by hand."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbext import render
from gdbext.analysis.locks.findings import check_locks, find_lock_findings
from gdbext.analysis.locks.report import Knowledge, Position, convoy_sentence, lockwait_report
from gdbext.analysis.locks.waitchanges import Earlier, check_program, compare
from gdbext.analysis.locks.waitdot import dot_lines
from gdbext.analysis.locks.waitgraph import build_graph
from gdbext.analysis.tables.places import TablePlaces, WalkedTable
from gdbext.debuginfo import Frame
from gdbext.errors import UsageError
from gdbext.process import Identity, Thread
from gdbext.report import Confidence
from gdbext.structures.locks.model import Census, LockState, Mention, Primitive, State, Wait


def thread(number):
    return Thread(number, 100 + number, f"t{number}")


def waiting(number, lock, owner, primitive=Primitive.MUTEX, **more):
    state = LockState(lock, primitive, 2, "held, waiters queued", 1000 + owner if owner else None)
    fields = {"state": State.FUTEX, "timed": False, "confidence": Confidence.HIGH, **more}
    return Wait(thread(number), tid=1000 + number, primitive=primitive, lock=lock, state_of_lock=state, **fields)


def running(number, syscall=None):
    return Wait(thread(number), State.SYSCALL if syscall else State.RUNNING, 1000 + number, syscall)


def census(*waits, mentions=None):
    tids = {wait.tid: wait.thread.number for wait in waits}
    return Census(waits, tids, mentions or {})


def kinds(taken, known=None, **limits):
    return [finding.kind for finding in find_lock_findings(taken, known or Knowledge(), limits)]


def test_two_threads_that_want_each_others_locks():
    taken = census(waiting(1, 0xA0, 2), waiting(2, 0xB0, 1), running(3))
    graph = build_graph(taken)
    assert [cycle.threads for cycle in graph.cycles] == [(1, 2)]
    assert graph.convoys == ()
    (finding,) = find_lock_findings(taken, Knowledge(lambda address: {0xA0: "accounts"}.get(address)), {})
    assert finding.summary == (
        "thread 1 waits for the mutex accounts, held by thread 2, which waits for the mutex 0xb0, held by thread 1"
    )
    assert (finding.kind, finding.severity.value, finding.waiters) == ("deadlock", "critical", 2)


def test_a_timed_wait_breaks_a_cycle_by_itself():
    taken = census(waiting(1, 0xA0, 2, timed=True), waiting(2, 0xB0, 1))
    (finding,) = find_lock_findings(taken, Knowledge(), {})
    assert finding.severity.value == "warning" and "will end by itself" in finding.summary


def test_threads_behind_a_cycle_are_in_no_convoy():
    taken = census(waiting(1, 0xA0, 2), waiting(2, 0xB0, 1), *(waiting(n, 0xA0, 2) for n in range(3, 20)))
    assert kinds(taken) == ["deadlock"]
    assert build_graph(taken).convoys == ()


def test_self_deadlock_and_lost_owner():
    assert kinds(census(waiting(1, 0xA0, 1))) == ["self-deadlock"]
    assert kinds(census(waiting(1, 0xA0, 77), waiting(2, 0xA0, 77), running(3))) == ["lost-owner"]
    shared = waiting(1, 0xA0, 77)
    shared = dataclasses.replace(shared, state_of_lock=dataclasses.replace(shared.state_of_lock, shared=True))
    assert kinds(census(shared, running(3))) == []


@pytest.mark.parametrize(
    ("holder", "waiters", "expected"),
    [
        (running(1), 15, []),  # a busy lock
        (running(1), 16, ["convoy"]),
        (running(1, "fsync"), 2, []),
        (running(1, "fsync"), 3, ["convoy"]),
        (running(1, "tgkill"), 3, []),  # it aborts: this is what the core was taken for
        (waiting(1, 0xC0, 0, Primitive.CONDITION), 3, ["convoy"]),
    ],
)
def test_a_convoy_needs_a_slow_holder_or_many_waiters(holder, waiters, expected):
    taken = census(holder, *(waiting(2 + at, 0xA0, 1) for at in range(waiters)))
    assert kinds(taken) == expected


def test_transitive_waiters_collapse_to_one_root():
    chain = [waiting(2, 0xA0, 1), waiting(3, 0xB0, 2), waiting(4, 0xB0, 2), waiting(5, 0xD0, 4)]
    (convoy,) = build_graph(census(running(1, "poll"), *chain)).convoys
    assert (convoy.holder, convoy.waiters, convoy.lock) == (1, (2, 3, 4, 5), 0xA0)


def test_a_convoy_does_not_say_that_all_wait_for_one_of_its_locks():
    taken = census(running(1), *(waiting(n, 0xA0, 1) for n in (2, 3)), *(waiting(n, 0xB0, 1) for n in (4, 5)))
    (convoy,) = build_graph(taken).convoys
    waits = {wait.thread.number: wait for wait in taken.waits}
    said = "4 threads wait, 2 of them for the mutex 0xa0, held by thread 1, which is running"
    assert convoy_sentence(convoy, waits, Knowledge()) == said


def spinning(number, lock, word=-3):
    state = LockState(lock, Primitive.SPINLOCK, word, "held, at least 3 spinning")
    return Wait(thread(number), State.SPINNING, 1000 + number, None, Primitive.SPINLOCK, lock, state, None,
                Confidence.HIGH)  # fmt: skip


def test_a_spin_convoy_names_its_holder_by_mention_and_position():
    position = Position(1, 0x5000, "slab 0 of cache", 11216, 20000, 44137, "rbx")
    spinners = [spinning(number, 0xA0) for number in (2, 3, 4)]
    mentions = {0xA0: (Mention(1, ("r13",), Confidence.MEDIUM),)}
    taken = census(running(1), *spinners, mentions=mentions)
    assert kinds(taken) == []  # three threads at a busy spinlock are no finding
    (finding,) = find_lock_findings(taken, Knowledge(positions={1: position}), {})
    assert finding.kind == "spin-convoy"
    assert finding.summary == (
        "3 threads wait for the spinlock 0xa0, probably held by thread 1, which is running, in the chain of bin 11216 "
        "of slab 0 of cache, at entry 20000 of 44137"
    )
    free = [spinning(2, 0xA0, 1)]
    free[0] = dataclasses.replace(free[0], state_of_lock=LockState(0xA0, Primitive.SPINLOCK, 1, "free"))
    assert build_graph(census(running(1), *free)).convoys == ()


def test_semaphores_and_conditions_never_make_a_convoy():
    queue = [waiting(number, 0xA0, 0, Primitive.SEMAPHORE) for number in range(2, 40)]
    assert kinds(census(running(1), *queue)) == []


def test_what_a_lock_says_against_itself_is_a_problem_once():
    one, two = waiting(1, 0xA0, 0), waiting(2, 0xA0, 0)
    state = dataclasses.replace(one.state_of_lock, faults=("it was destroyed (its kind is -1)",))
    one, two = (dataclasses.replace(wait, state_of_lock=state) for wait in (one, two))
    (problem,) = check_locks(census(one, two))
    assert (problem.kind, problem.address) == ("lock-state", 0xA0)
    assert problem.message == "mutex: it was destroyed (its kind is -1)"


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_cycles_and_convoys_partition_the_edges(owners):
    """Thread i + 1 waits for owners[i]; 0 is nobody. Against a walk from each thread by hand."""
    taken = census(*(waiting(at + 1, 0x100 + 16 * at, owner) if owner else running(at + 1)
                     for at, owner in enumerate(owners)))  # fmt: skip
    graph = build_graph(taken)
    ringed = {number for cycle in graph.cycles for number in cycle.threads}
    for start in range(1, len(owners) + 1):
        seen, at = [], start
        while at and at <= len(owners) and at not in seen:
            seen.append(at)
            at = owners[at - 1]
        assert (start in ringed) == (at == start)
    assert len(ringed) == sum(len(cycle.threads) for cycle in graph.cycles)
    assert len({min(cycle.threads) for cycle in graph.cycles}) == len(graph.cycles)


def document(report):
    return json.loads("".join(render.json_pieces(report, schema="gdbext/lockwait/1", target=None, limit=None)))


def test_two_samples_tell_stuck_from_slow():
    def look(place, *waits):
        known = Knowledge(positions={1: Position(1, 0x5000, None, 7, place, 900, "rbx")})
        return lockwait_report(census(running(1), *waits), known)

    before = Earlier(document(look(10, waiting(2, 0xA0, 1), waiting(3, 0xB0, 9)))["data"])
    verdicts = {
        "stuck": look(10, waiting(2, 0xA0, 1)),
        "slow": look(11, waiting(2, 0xA0, 1)),
        "moving": look(10, waiting(4, 0xA0, 1)),
    }
    for verdict, report in verdicts.items():
        rows = {row.lock: row.verdict for row in compare(before, report.data).changes}
        assert rows == {0xA0: verdict, 0xB0: "gone"}
    (row,) = [row for row in compare(before, look(10, waiting(2, 0xC0, 1)).data).changes if row.lock == 0xC0]
    assert (row.verdict, row.before, row.now) == ("new", 0, 1)


def test_a_holder_that_waits_elsewhere_in_the_same_function_has_moved():
    """What a holder is in is told apart by address: a function may wait in two places, and lambdas share a name."""

    def sample(pc):
        frames = {1: Frame(0, pc, None, "flush", None, f"main.c:{pc}")}
        taken = census(running(1, "fsync"), waiting(2, 0xA0, 1))
        return lockwait_report(taken, Knowledge(frames=frames))

    before = Earlier(document(sample(10))["data"])
    (stuck,), (slow,) = (compare(before, sample(pc).data).changes for pc in (10, 12))
    assert (stuck.verdict, slow.verdict) == ("stuck", "slow")
    (row,) = [row for row in document(sample(10))["data"]["threads"] if row["frame"]]
    assert (row["frame"], row["frame_line"], row["frame_address"]) == ("flush", "main.c:10", "0xa")
    text = "".join(render.text(sample(10), exact=False, limit=None))
    assert "held by thread 1, which is in fsync, called in flush (main.c:10)" in " ".join(text.split())


def test_the_graph_as_dot():
    taken = census(waiting(1, 0xA0, 2), waiting(2, 0xB0, 1), waiting(3, 0xC0, 77))
    text = "".join(dot_lines(taken, Knowledge(lambda address: 'say "hi"')))
    assert text.count("->") == 3 and "gone1077" in text and '\\"hi\\"' in text
    assert text.startswith("digraph") and text.endswith("}\n")


def test_places_in_tables():
    import numpy as np

    from gdbext.abi import X86_64
    from gdbext.memory.fake import FakeMemory
    from gdbext.structures.walk.model import BinArray, BinsWalk, Links, Node, Table
    from gdbext.target import Target

    table = Table(0x5000, Node(Links(8)), [BinArray(0x6000, 4, 16, 8)], lock=0x5000, bin_lock=0)
    lengths, owners = np.array([0, 3, 0, 1], np.uint64), np.array([1, 1, 1, 3], np.uint64)
    nodes = np.array([0x9000, 0x7000, 0x8000, 0x7800], np.uint64)
    walk = BinsWalk(lengths, np.zeros(4, np.uint8), nodes, owners)
    places = TablePlaces([WalkedTable("cache", table, walk)])
    assert places.find_lock_name(0x5000) == "lock of cache"
    assert places.find_lock_name(0x6010) == "lock of bin 1 of cache"
    assert places.find_lock_name(0x6011) is None and places.find_lock_name(0x6040) is None
    stack = (0x7800).to_bytes(8, "little") + (0x8000).to_bytes(8, "little")
    target = Target(FakeMemory([(0x1000, stack)]), X86_64)
    found = places.find_position(target, Thread(1, 1, None, 0x1000, None, {"rbx": 0x7800, "r12": 0x7000}))
    assert (found.bin, found.position, found.length, found.place) == (1, 2, 3, "r12")
    found = places.find_position(target, Thread(1, 1, None, 0x1000, None, {"rbx": 3}))
    assert (found.position, found.place) == (3, "stack+0x8")
    assert places.find_position(target, Thread(1, 1, None, 0x4000, None, {})) is None


def test_a_sample_of_another_program():
    now = Identity(exe="/bin/a", build_id="a1")
    for same in (Identity("/x/a", "a1"), Identity("/x/a"), Identity(), Identity("/other", "a1")):
        check_program(Earlier({}, exe=same.exe, build_id=same.build_id), now)
    for other in (Identity("/bin/a", "b2"), Identity("/bin/b")):
        with pytest.raises(UsageError, match="of another program"):
            check_program(Earlier({}, exe=other.exe, build_id=other.build_id), now)

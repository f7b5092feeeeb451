"""Wait-for graphs of sizes that only a damaged target has, and what is told of guesses."""

import dataclasses
import time

import pytest

from gdbext.analysis.locks.findings import find_lock_findings
from gdbext.analysis.locks.report import Knowledge, lockwait_report
from gdbext.analysis.locks.waitgraph import build_graph
from gdbext.process import Thread
from gdbext.report import Confidence
from gdbext.structures.locks.model import Census, LockState, Mention, Primitive, State, Wait


def waiting(number, lock, owner, primitive=Primitive.MUTEX, **more):
    state = LockState(lock, primitive, 2, "held, waiters queued", 10000 + owner if owner else None)
    fields = {"tid": 10000 + number, "primitive": primitive, "lock": lock, "state_of_lock": state}
    return Wait(Thread(number, number, None), State.FUTEX, **{**fields, "confidence": Confidence.HIGH, **more})


def running(number, syscall=None):
    return Wait(Thread(number, number, None), State.SYSCALL if syscall else State.RUNNING, 10000 + number, syscall)


def census(waits, mentions=None, **more):
    return Census(tuple(waits), {wait.tid: wait.thread.number for wait in waits}, mentions or {}, **more)


def quickly(taken):
    before = time.process_time()
    graph = build_graph(taken)
    assert time.process_time() - before < 1
    return graph


COUNT = 5000


def test_a_chain_of_five_thousand():
    graph = quickly(census([*(waiting(at, 0x1000 * at, at + 1) for at in range(1, COUNT)), running(COUNT)]))
    (convoy,) = graph.convoys
    assert (convoy.holder, len(convoy.waiters), convoy.direct) == (COUNT, COUNT - 1, (COUNT - 1,))


def test_a_ring_of_five_thousand_with_as_many_behind_it():
    ring = [waiting(at, 0x1000 * at, at % COUNT + 1) for at in range(1, COUNT + 1)]
    tail = [waiting(at, 0x1000 * at, at - 1) for at in range(COUNT + 1, 2 * COUNT)]
    taken = census([*ring, *tail])
    graph = quickly(taken)
    assert [len(cycle.threads) for cycle in graph.cycles] == [COUNT] and graph.convoys == ()
    (finding,) = find_lock_findings(taken, Knowledge(), {})
    assert len(finding.evidence) <= 12


def test_five_thousand_behind_one_that_spins():
    spinning = waiting(1, 0xA0, 0, Primitive.SPINLOCK)
    graph = quickly(census([spinning, *(waiting(at, 0x1000 * at, at - 1) for at in range(2, COUNT))]))
    guessed = next(convoy for convoy in graph.convoys if convoy.guessed)
    assert len(guessed.waiters) == COUNT - 1 and guessed.direct == (1,)


def test_an_owner_that_is_not_listed_is_gone_only_if_all_are_listed():
    waits = [waiting(1, 0xA0, 77), running(2)]
    assert build_graph(census(waits)).lost == {1: 10077}
    assert build_graph(census(waits, complete=False)).lost == {}


@pytest.mark.parametrize(("shared", "complete", "text"), [
    (False, True, "tid 10077, gone"), (True, True, "tid 10077, elsewhere"), (False, False, "tid 10077, elsewhere")
])  # fmt: skip
def test_where_an_owner_is_that_is_not_listed(shared, complete, text):
    wait = waiting(1, 0xA0, 77)
    wait = dataclasses.replace(wait, state_of_lock=dataclasses.replace(wait.state_of_lock, shared=shared))
    data = lockwait_report(census([wait], complete=complete)).data
    assert (data.threads[0].owner_text, data.locks[0].owner_text) == (text, text)


@pytest.mark.parametrize(("confidence", "told"), [(Confidence.MEDIUM, True), (Confidence.LOW, False)])
def test_a_lost_owner_needs_a_lock_that_is_surely_one(confidence, told):
    taken = census([waiting(1, 0xA0, 77, confidence=confidence), running(2)])
    assert bool(find_lock_findings(taken, Knowledge(), {})) is told


@pytest.mark.parametrize(("place", "confidence", "told"), [("r13", Confidence.MEDIUM, True),
                                                           ("stack+0x80", Confidence.LOW, False)])  # fmt: skip
def test_a_stale_word_on_a_sleepers_stack_makes_no_convoy(place, confidence, told):
    waits = [waiting(at, 0xA0, 0, Primitive.SPINLOCK) for at in (2, 3, 4)]
    taken = census([running(1, "epoll_wait"), *waits], {0xA0: (Mention(1, (place,), confidence),)})
    assert bool(find_lock_findings(taken, Knowledge(), {})) is told


def test_readers_that_hold_a_lock_are_found_by_mention():
    state = LockState(0xA0, Primitive.RWLOCK_WRITE, 10, "1 reader", readers=1)
    waits = [waiting(at, 0xA0, 0, Primitive.RWLOCK_WRITE) for at in (2, 3, 4)]
    waits = [dataclasses.replace(wait, state_of_lock=state) for wait in waits]
    mentions = {0xA0: (Mention(1, ("rbx",), Confidence.MEDIUM),)}
    (finding,) = find_lock_findings(census([running(1, "read"), *waits], mentions), Knowledge(), {})
    assert (finding.kind, finding.waiters) == ("convoy", 3)


@pytest.mark.parametrize(("doing", "told"), [(None, []), ("write", ["convoy"])])
def test_threads_that_print_are_a_convoy_only_behind_a_write_that_does_not_end(doing, told):
    waits = [waiting(at, 0xA0, 1, Primitive.LOW_LEVEL) for at in range(2, 40)]
    taken = census([running(1, doing), *waits])
    assert [finding.kind for finding in find_lock_findings(taken, Knowledge(), {})] == told


def test_a_signaller_that_waits_for_woken_waiters_to_leave_is_not_slow():
    """CPython hands its lock on so: three queue for the mutex, whose owner is in pthread_cond_signal."""
    queue = [waiting(at, 0xA0, 1) for at in (2, 3, 4)]
    signalling, awaiting = waiting(1, 0xB0, 0, Primitive.LOW_LEVEL), waiting(1, 0xB0, 0, Primitive.CONDITION)
    assert find_lock_findings(census([signalling, *queue]), Knowledge(), {}) == ()
    assert [one.kind for one in find_lock_findings(census([awaiting, *queue]), Knowledge(), {})] == ["convoy"]

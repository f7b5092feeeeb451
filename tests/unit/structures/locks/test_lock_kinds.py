"""The less common kinds of waits: registers and memory as gdb showed them of small programs, where not said otherwise.

Recorded with glibc 2.36 and 2.41 on x86-64, 2.36 on i386. By hand, after upstream: mutexes with a priority ceiling
(they need a privilege), libc's arenas.
"""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.abi import AARCH64, I386
from gdbext.debuginfo import Frame
from gdbext.process import Module, Thread
from gdbext.report import Confidence
from gdbext.structures.locks.model import Primitive, State
from tests.support.examples import examples
from tests.support.lockworld import (
    BITSET_RT,
    CODE,
    LOCK,
    PRIVATE,
    RESTART,
    STACK,
    TLS,
    World,
    futex,
    two_threads,
)

RUNNING = {"orig_rax": (1 << 64) - 1, "rax": 1, "rip": CODE + 0x800}
WORN_236 = (0x31F, 0, 0x30B, 0, 2, 4, 1, 0xFFFFFFFB, 0xC, 0x18, 0, 0)
WORN_241 = (0x31F, 0, 0x185, 0, 1, 0xFFFFFFFB, 0xC, 0x18, 0x185, 0x182, 0, 0)


class Stack:
    """Frames of one stack for all threads: (function, module)."""

    def __init__(self, *frames):
        self.told = frames

    def frames(self, thread, limit):
        return [Frame(at, CODE, None, *frame) for at, frame in enumerate(self.told)]


@pytest.mark.parametrize(
    ("words", "at", "value"),
    [(WORN_236, 40, 0), (WORN_236, 44, 0), (WORN_241, 32, 0x17F), (WORN_241, 36, 0x182)],
)
@pytest.mark.parametrize("before", [0, 0x7F31, 0x1C3A2A0])
def test_condition_variables_that_were_used_for_a_while(words, at, value, before):
    """Signals, broadcasts and waits that gave up: a group's size is negative, and one layout may pass for the other."""
    world = two_threads(World(), futex(LOCK + 64 + at, BITSET_RT, value))
    world.words(64 - 8, before, 0, *words)
    wait = world.wait()
    assert (wait.primitive, wait.lock, wait.state_of_lock.waiters) == (Primitive.CONDITION, LOCK + 64, 3)


def test_a_signaller_that_waits_for_woken_waiters_to_leave_is_no_waiter():
    world = two_threads(World(), futex(LOCK + 16 + 4, PRIVATE, 5))
    world.words(0, *WORN_236[:5], 5, *WORN_236[6:])
    wait = world.wait()
    assert (wait.primitive, wait.lock, wait.confidence) == (Primitive.LOW_LEVEL, LOCK, Confidence.MEDIUM)
    stack = Stack(("futex_wait", "libc.so.6"), ("___pthread_cond_signal", "libc.so.6"))
    assert world.wait(stacks=stack).confidence is Confidence.HIGH
    assert two_threads(World(), futex(LOCK + 16, PRIVATE, 5)).wait(stacks=stack).primitive is Primitive.LOW_LEVEL


@pytest.mark.parametrize(("words", "at"), [(WORN_236, 32), (WORN_241, 24)])
def test_the_lock_within_a_condition_variable(words, at):
    world = two_threads(World(), futex(LOCK + at, PRIVATE, 0xE))
    place = at // 4
    world.words(0, *words[:place], 0xE, *words[place + 1 :])
    assert (world.wait().primitive, world.wait().lock) == (Primitive.LOW_LEVEL, LOCK)


def test_the_same_on_i386_where_no_alignment_to_eight_is_kept():
    world = World(I386)
    world.thread({"orig_eax": 240, "eax": -512 & 0xFFFFFFFF, "ebx": LOCK + 4 + 40, "ecx": 0x189, "edx": 0, "esi": 0})
    world.words(4, *WORN_236)
    assert (world.wait().primitive, world.wait().lock) == (Primitive.CONDITION, LOCK + 4)


def test_a_semaphore_of_i386():
    world = World(I386)
    world.thread({"orig_eax": 240, "eax": -512 & 0xFFFFFFFF, "ebx": LOCK, "ecx": 0x189, "edx": 1, "esi": 0})
    world.words(0, 1, 0, 0, 2)  # value (bit 0: there are waiters), private, pad, nwaiters
    wait = world.wait()
    assert (wait.primitive, wait.state_of_lock.meaning) == (Primitive.SEMAPHORE, "value 0, 2 waiters")


def test_a_barrier_after_three_hundred_rounds():
    world = two_threads(World(), futex(LOCK + 4, PRIVATE, 0x384))
    world.words(0, 0x386, 0x384, 3, 0, 0x384)
    assert world.wait().state_of_lock.meaning == "2 of 3 have arrived"
    for words in ((0x387, 0x385, 3, 0, 0x384), (0x386, 0x384, 3, 0, 0x390), (0x386, 0x381, 3, 0, 0x381)):
        world.words(0, *words)  # no multiple of 3, more left than came, another round than the awaited one
        assert world.wait().primitive is Primitive.FUTEX


def test_a_reader_behind_a_waiting_writer_of_a_lock_that_prefers_writers():
    world = two_threads(World(), futex(LOCK, BITSET_RT, 0xE))
    world.words(0, 0xE, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2)
    wait = world.wait()
    assert (wait.primitive, wait.lock, wait.state_of_lock.readers) == (Primitive.RWLOCK_READ, LOCK, 1)
    assert wait.confidence is Confidence.HIGH
    world.words(48, 9)  # no such kind of read-write lock
    assert world.wait().primitive is Primitive.FUTEX


def test_a_mutex_with_a_priority_ceiling_keeps_it_in_the_word():
    word = 15 << 19 | 2
    world = two_threads(World(), futex(LOCK, PRIVATE, word))
    world.words(0, word, 1, 1002, 1, 64)
    wait = world.wait()
    assert (wait.primitive, wait.state_of_lock.owner_tid) == (Primitive.MUTEX, 1002)
    assert wait.state_of_lock.meaning == "held, waiters queued"


@pytest.mark.parametrize("operation", [6, 6 | PRIVATE, 13 | PRIVATE, 0x18D])
def test_pi_locks_are_told_by_the_kernels_protocol_alone(operation):
    world = two_threads(World(), futex(LOCK, operation, 0, timeout=0x7FFF0000))
    world.words(0, 0x80000000 | 1002, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0x1234)  # of somebody else than pthreads
    wait = world.wait()
    assert (wait.primitive, wait.state_of_lock.owner_tid, wait.timed) == (Primitive.PI, 1002, True)


def test_a_pi_mutex_that_its_own_thread_takes_again_is_a_wait_without_end():
    world = World()
    sp = STACK + 0x1000
    registers = {**futex(sp + 0x44, BITSET_RT, 0), "rbp": LOCK}
    world.thread(registers)
    world.words(0, 1001, 1, 1001, 1, 32)
    wait = world.wait()
    assert (wait.primitive, wait.lock, wait.state_of_lock.owner_tid) == (Primitive.PI, LOCK, 1001)
    world.words(0, 1001, 1, 1001, 1, 0)  # no PI mutex: a word on the stack like any other
    assert world.wait().primitive is Primitive.FUTEX


@pytest.mark.parametrize(
    ("owner", "says"), [(0x7FFFFFFF, "was not made consistent yet"), (0x7FFFFFFE, "can be used no more")]
)
def test_robust_mutexes_after_the_death_of_an_owner(owner, says):
    world = two_threads(World(), futex(LOCK, 0, 0x80000000 | 1002))
    world.words(0, 0x80000000 | 1002, 1, owner, 0, 144)
    wait = world.wait()
    assert (wait.primitive, wait.state_of_lock.owner_tid) == (Primitive.ROBUST, 1002)
    assert says in wait.state_of_lock.faults[0]


@pytest.mark.parametrize(("operation", "kind", "same"), [(0, 128, True), (PRIVATE, 128, False), (0, 0, False)])
def test_whether_processes_share_a_lock_is_told_twice(operation, kind, same):
    world = two_threads(World(), futex(LOCK, operation, 2))
    world.words(0, 2, 0, 4242, 1, kind)
    wait = world.wait()
    assert (wait.primitive is Primitive.MUTEX) is same
    assert not same or (wait.state_of_lock.owner_tid, wait.state_of_lock.faults) == (4242, ())


@pytest.mark.parametrize(
    "words", [(2, 0, 1234, 0, 0), (2, 7, 1234, 1, 0), (2, 0, 1234, 1, 0, 0, 0x5550, 0x5555, 0, 0), (2, 0, 1234, 1, 16)]
)
def test_a_futex_of_the_program_beside_its_own_data_has_no_lost_owner(words):
    """The common mutex of 0, 1, 2 awaits 2 as well; a held pthread mutex has users, no count and no list."""
    world = two_threads(World(), futex(LOCK, PRIVATE, 2))
    world.words(0, *words)
    wait = world.wait()
    assert wait.primitive is Primitive.LOW_LEVEL and wait.confidence is Confidence.LOW


def test_a_wait_by_syscall_or_from_the_programs_own_code_is_no_pthread_object():
    world = two_threads(World(), futex(LOCK, PRIVATE, 2))
    world.words(0, 2, 0, 1002, 1, 0)
    assert world.wait().primitive is Primitive.MUTEX
    wait = world.wait(stacks=Stack(("syscall", "libc.so.6"), ("std::__detail::__platform_wait<int>", "server")))
    assert (wait.primitive, wait.confidence) == (Primitive.FUTEX, Confidence.HIGH)
    world.modules = [Module("/lib/libc.so.6", 0x700000, 0x800000, None)]
    assert world.wait(stacks=Stack((None, "server"))).primitive is Primitive.FUTEX
    assert world.wait(stacks=Stack((None, "libc.so.6"))).primitive is Primitive.MUTEX
    assert world.wait(stacks=Stack((None, None))).primitive is Primitive.MUTEX


def test_statics_and_once():
    world = two_threads(World(), futex(LOCK, 0, 0x10100))
    world.words(0, 0x10100)
    wait = world.wait(stacks=Stack(("syscall", "libc.so.6"), ("__cxa_guard_acquire", "libstdc++.so.6")))
    assert (wait.primitive, wait.state_of_lock.meaning) == (Primitive.ONCE, "in progress")
    world = two_threads(World(), futex(LOCK, PRIVATE, 1))
    world.words(0, 1)
    wait = world.wait(stacks=Stack(("futex_wait", "libc.so.6"), ("__pthread_once_slow", "libc.so.6")))
    assert (wait.primitive, wait.confidence) == (Primitive.ONCE, Confidence.HIGH)
    assert world.wait().primitive is Primitive.FUTEX


def test_a_lock_of_stdio_names_its_owner_by_its_descriptor():
    world = two_threads(World(), futex(LOCK, PRIVATE, 2))
    owner = TLS + 2 * 0x1000
    world.words(0, 2, 1, owner, 0)
    wait = world.wait()
    assert (wait.primitive, wait.state_of_lock.owner_tid) == (Primitive.LOW_LEVEL, 1002)
    assert wait.confidence is Confidence.HIGH
    world.words(0, 2, 1, owner + 0x10000, 0)
    assert world.wait().state_of_lock is None


def test_the_lock_of_an_arena_of_malloc():
    heap = 0x7F0004000000
    for size in (0x20, 0x30):
        world = two_threads(World(), futex(heap + size, PRIVATE, 2))
        world.segments.append((heap, struct.pack("<Q", heap + size).ljust(size, b"\0") + struct.pack("<I", 2)))
        wait = world.wait()
        assert (wait.primitive, wait.confidence) == (Primitive.LOW_LEVEL, Confidence.HIGH)
        assert "malloc arena" in wait.because[0]


def test_a_mutex_between_two_owners_keeps_its_name():
    world = two_threads(World(), futex(LOCK, PRIVATE, 2))
    world.words(0, 2, 0, 0, 0, 0)
    wait = world.wait(stacks=Stack(("__lll_lock_wait", "libc.so.6"), ("___pthread_mutex_lock", "libc.so.6")))
    assert (wait.primitive, wait.confidence, wait.state_of_lock.owner_tid) == (Primitive.MUTEX, Confidence.HIGH, None)
    wait = world.wait(stacks=Stack(("__lll_lock_wait_private", "libc.so.6"), ("malloc", "libc.so.6")))
    assert wait.primitive is Primitive.LOW_LEVEL
    wait = world.wait(stacks=Stack((None, "libc.so.6"), ("free_sessions", "server"), ("pthread_mutex_lock", None)))
    assert (wait.primitive, wait.confidence) == (Primitive.LOW_LEVEL, Confidence.LOW)
    assert wait.alternatives == (Primitive.MUTEX, Primitive.FUTEX)


def test_an_owner_that_is_about_to_count_itself_and_memory_that_is_absent_are_no_damage():
    stack = Stack((None, "libc.so.6"), ("___pthread_mutex_lock", "libc.so.6"))
    world = two_threads(World(), futex(LOCK, PRIVATE, 2))
    world.words(0, 2, 0, 1002, 0, 0)
    assert world.wait(stacks=stack).state_of_lock.owner_tid == 1002
    absent = two_threads(World(), futex(0xDEAD0000, PRIVATE, 2)).wait(stacks=stack)
    assert (absent.primitive, absent.state_of_lock, absent.confidence) == (Primitive.MUTEX, None, Confidence.LOW)


def test_a_poll_of_many_files_that_is_restarted_is_no_futex():
    arguments = {"rdi": 0x7FFF0000, "rsi": 0x89, "rdx": 60000, "r10": 0x7FFF8000, "r8": 0, "r9": 0x50}
    world = two_threads(World(), {"orig_rax": 219, "rax": -516 & (1 << 64) - 1, "rip": CODE, **arguments})
    assert world.wait().state is State.SYSCALL
    world = two_threads(World(), futex(LOCK, 9, 0, timeout=0x7FFF8000, call=219))  # shared, of the monotonic clock
    assert (world.wait().state, world.wait().timed) == (State.FUTEX, True)


def test_a_call_with_no_address_is_no_futex():
    world = World(AARCH64)
    world.thread({"x8": 98, "x0": 0, "x1": PRIVATE, "x2": 2, "x3": 0, "pc": 0x999000})  # its code is not in the core
    assert world.wait().state is State.SYSCALL


@pytest.mark.parametrize("state", [1, 2])
def test_joins_on_a_machine_whose_descriptor_lies_below_the_thread_pointer(state):
    world = World(AARCH64)
    world.code[:4] = b"\x01\x00\x00\xd4"
    second = TLS + 2 * 0x2000 + 0x1000
    call = {"x8": 98, "x1": 0x109, "x3": 0, "x4": 0, "x5": 0xFFFFFFFF, "pc": CODE}
    world.thread({**call, "x0": second - 0x1000 + 0x8D0, "x2": 1002})
    world.thread({**call, "x0": TLS + 0x2000 + 0x1000 - 0x100, "x2": state})
    census = world.census()
    assert [wait.primitive for wait in census.waits] == [Primitive.JOIN, Primitive.JOIN]
    assert [wait.state_of_lock.owner_tid for wait in census.waits] == [1002, 1001]


def test_a_thread_that_ends_does_not_hide_the_others_ids_in_a_namespace():
    world = World(foreign=-990)
    for _ in range(5):
        world.thread(futex(LOCK, PRIVATE, 2))
    tls, block = world.segments[8]
    world.segments[8] = (tls, bytes(0x2D0) + struct.pack("<i", -1) + block[0x2D4:])
    world.words(0, 2, 0, 12, 1, 0)
    census = world.census()
    assert census.tids == {11: 1, 12: 2, 13: 3, 14: 4} and census.complete
    assert census.waits[0].state_of_lock.faults == ()


def test_nobody_is_gone_where_the_threads_own_ids_are_not_known():
    world = two_threads(World(), futex(LOCK, PRIVATE, 2))
    world.segments = [(at, data) for at, data in world.segments if at >= STACK]
    world.words(0, 2, 0, 4242, 1, 0)
    census = world.census()
    assert not census.complete and census.waits[0].state_of_lock.faults == ()
    assert "whether an owner that is not listed still lives is not known" in census.notes[0]


SPIN = "f0ff0f 750b 31c0 c3 0f1f840000000000 f390 833f00 7fe9 ebf7"


@pytest.mark.parametrize(
    ("at", "flags", "spinning"),
    [(0, 0, True), (3, 0, True), (3, 0x40, False), (5, 0, False), (7, 0, False), (16, 0, True), (18, 0, True),
     (21, 0, True), (23, 0, True), (40, 0, False), (-8, 0, False)],
)  # fmt: skip
def test_a_thread_that_has_got_the_spinlock_does_not_spin(at, flags, spinning):
    world = World()
    code = bytes.fromhex(SPIN.replace(" ", ""))
    world.code[0x100 : 0x100 + len(code)] = code
    world.words(0, 0)
    world.thread({**RUNNING, "rdi": LOCK, "rip": CODE + 0x100 + at, "eflags": flags})
    assert (world.wait().state is State.SPINNING) is spinning


def test_the_code_of_older_and_newer_spinlocks():
    world = World()
    newer = bytes.fromhex("31c0 f0ff0f 7501 c3 660f1f440000 6690 f390 3907 7efa f0ff0f 75f5 c3".replace(" ", ""))
    world.code[0x100 : 0x100 + len(newer)] = newer
    for at, spinning in ((16, True), (18, True), (20, True), (22, True), (27, False)):
        world.threads, world.segments = [], []
        world.thread({**RUNNING, "rdi": LOCK, "rip": CODE + 0x100 + at})
        assert (world.wait().state is State.SPINNING) is spinning, at


def test_many_threads_that_each_wait_at_a_semaphore_of_their_own_are_mentioned_in_one_pass():
    world = World()
    for at in range(120):
        world.words(32 * at, 0, 1, 0, 0)
        world.thread({**futex(LOCK + 32 * at, BITSET_RT, 0), "r12": LOCK + 32 * ((at + 1) % 120)})
    census = world.census()
    assert all(wait.primitive is Primitive.SEMAPHORE for wait in census.waits)
    assert [census.mentions[LOCK][0].thread, len(census.mentions)] == [120, 120]


WORD = st.integers(0, (1 << 64) - 1) | st.integers(0, 4096).map(lambda at: LOCK + 4 * (at % 16)) | st.sampled_from(
    [0, 1, 2, TLS + 0x1000, STACK + 0x1000, (1 << 64) - 1, RESTART, 202, 219, 98]
)  # fmt: skip
NAMES = st.sampled_from(["orig_rax", "rax", "rdi", "rsi", "rdx", "r10", "r8", "r9", "rip", "rbx", "rbp", "eflags"])


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.dictionaries(NAMES, WORD), min_size=0, max_size=6),
    st.lists(st.none() | WORD, min_size=6, max_size=6),
    st.binary(min_size=96, max_size=96),
)
def test_no_registers_or_pointers_of_threads_do_harm(registers, pointers, data):
    world = World()
    world.lock[:96] = data
    for each in registers:
        world.thread(each)
    world.threads = [
        Thread(one.number, one.lwp, None, pointer or one.stack_pointer, pointer, one.registers)
        for one, pointer in zip(world.threads, pointers)
    ]
    census = world.census()
    assert len(census.waits) == len(registers)
    for wait in census.waits:
        assert (wait.primitive is None) or wait.confidence is not None

"""The lock census over memory and registers laid out by hand: x86-64, i386, aarch64, big-endian.

Register sets are those that gdb shows of blocked threads (x86-64 and i386), or that the kernel's signal code
leaves (aarch64: arch/arm64/kernel/signal.c). Object contents follow glibc's headers.
"""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.abi import AARCH64, I386, Abi
from gdbext.debuginfo import Frame
from gdbext.memory.fake import FakeMemory
from gdbext.report import Confidence
from gdbext.structures.locks.frames import find_telling
from gdbext.structures.locks.model import Primitive, State
from gdbext.structures.locks.spins import find_spinlock
from gdbext.structures.locks.waiters import count_told_waiters
from gdbext.target import Target
from tests.support.examples import examples
from tests.support.lockworld import BITSET_RT, CODE, LOCK, PRIVATE, RESTART, TLS, World, futex, two_threads

MUTEX = [(0, Primitive.MUTEX), (1, Primitive.RECURSIVE), (2, Primitive.ERRORCHECK), (3, Primitive.ADAPTIVE)]


@pytest.mark.parametrize(("kind", "primitive"), MUTEX)
@pytest.mark.parametrize("elision", [0, 256, 512])
def test_mutexes(kind, primitive, elision):
    world = two_threads(World(), futex(LOCK, PRIVATE, 2))
    world.words(0, 2, 0, 1002, 1, kind | elision)
    wait = world.wait()
    assert (wait.state, wait.primitive, wait.lock) == (State.FUTEX, primitive, LOCK)
    assert (wait.state_of_lock.owner_tid, wait.confidence, wait.timed) == (1002, Confidence.HIGH, False)


def test_robust_and_pi_mutexes_hold_the_owner_in_the_word():
    world = two_threads(World(), futex(LOCK, 0, 0x80000000 | 1002))
    world.words(0, 0x80000000 | 1002, 1, 1002, 1, 16)
    wait = world.wait()
    assert (wait.primitive, wait.state_of_lock.owner_tid) == (Primitive.ROBUST, 1002)
    world = two_threads(World(), futex(LOCK, 6 | PRIVATE, 0))
    world.words(0, 0x80000000 | 1002, 1, 0, 1, 32)
    wait = world.wait()
    assert (wait.primitive, wait.state_of_lock.owner_tid) == (Primitive.PI, 1002)


def test_a_robust_mutex_whose_owner_died_says_so():
    world = two_threads(World(), futex(LOCK, 0, 0xC0000000))
    world.words(0, 0xC0000000, 0, 0, 1, 16)
    assert world.wait().state_of_lock.faults == ("its owner died holding it",)


def test_faults_of_mutexes():
    world = two_threads(World(), futex(LOCK, PRIVATE, 2))
    world.words(0, 2, 0, 4242, 1, 0)
    assert world.wait().state_of_lock.faults == ("its owner, thread id 4242, is not among the living threads",)
    world = two_threads(World(), futex(LOCK, 0, 2))
    world.words(0, 2, 0, 4242, 1, 128)  # shared between processes: the owner may live elsewhere
    assert world.wait().state_of_lock.faults == ()
    world = two_threads(World(), futex(LOCK, PRIVATE, 2))
    world.words(0, 2, 0, 0, 0, 0xFFFFFFFF)
    assert world.wait().state_of_lock.faults == ("it was destroyed (its kind is -1)",)


@pytest.mark.parametrize(
    ("offset", "value", "words", "primitive", "owner", "readers"),
    [
        (8, 3, (1 << 3 | 3, 0, 3, 3, 0, 0, 1002, 0), Primitive.RWLOCK_READ, 1002, None),
        (12, 3, (3, 0, 3, 3, 0, 0, 1002, 0), Primitive.RWLOCK_WRITE, 1002, None),
        (8, 2, (2 << 3 | 2, 0, 2, 1, 0, 0, 0, 0), Primitive.RWLOCK_WRITE, None, 2),
    ],
)
def test_read_write_locks(offset, value, words, primitive, owner, readers):
    world = two_threads(World(), futex(LOCK + offset, BITSET_RT, value))
    world.words(0, *words)
    wait = world.wait()
    assert (wait.primitive, wait.lock) == (primitive, LOCK)
    assert (wait.state_of_lock.owner_tid, wait.state_of_lock.readers) == (owner, readers)


def condition(world, offset_of_signals, waiters):
    # wseq, g1_start, [g_refs], g_size, orig_size, wrefs, g_signals
    refs = (4, 4) if offset_of_signals == 40 else ()
    world.words(0, 4, 0, 0, 0, *refs, 0, 0, 0, waiters << 3, 0, 0)


@pytest.mark.parametrize(("signals", "release"), [(40, "2.25"), (32, "2.41")])
@pytest.mark.parametrize("group", [0, 1])
def test_condition_variables_of_both_layouts(signals, release, group):
    world = two_threads(World(), futex(LOCK + signals + 4 * group, BITSET_RT, 0, timeout=0x7000))
    condition(world, signals, 2)
    wait = world.wait()
    assert (wait.primitive, wait.lock, wait.timed) == (Primitive.CONDITION, LOCK, True)
    assert wait.state_of_lock.waiters == 2 and release in wait.because[0]


def test_semaphores_and_barriers_are_told_apart():
    world = two_threads(World(), futex(LOCK, BITSET_RT, 0))
    world.words(0, 0, 3, 0, 0)
    assert world.wait().primitive is Primitive.SEMAPHORE
    assert world.wait().state_of_lock.waiters == 3
    world = two_threads(World(), futex(LOCK + 4, PRIVATE, 8))
    world.words(0, 10, 8, 4, 0, 0)
    wait = world.wait()
    assert (wait.primitive, wait.lock, wait.state_of_lock.meaning) == (Primitive.BARRIER, LOCK, "2 of 4 have arrived")


def test_joins_by_id_and_by_state():
    world = World()
    world.thread(futex(TLS + 2 * 0x1000 + 0x2D0, 0x109, 1002))
    world.thread({"orig_rax": 34, "rax": RESTART})
    wait = world.wait()
    assert (wait.primitive, wait.state_of_lock.owner_tid) == (Primitive.JOIN, 1002)
    world = World()
    world.thread(futex(TLS + 2 * 0x1000 + 0x628, 0x109, 2))
    world.thread({"orig_rax": 34, "rax": RESTART})
    assert world.wait().primitive is Primitive.JOIN
    assert world.wait(2).state is State.SYSCALL and world.wait(2).syscall == "pause"


def test_a_thread_that_was_just_woken_waits_no_more():
    world = two_threads(World(), futex(LOCK, PRIVATE, 2, result=0))
    world.words(0, 2, 0, 1002, 1, 0)
    assert world.wait().state is State.RUNNING


@pytest.mark.parametrize(
    "result, code, state",
    [
        (202, "0f05", State.FUTEX),  # set back to the instruction that calls, with the call's number
        (219, "0f05", State.FUTEX),  # likewise, by way of restart_syscall
        (202, "4889", State.RUNNING),
        (0, "0f05", State.RUNNING),
        (202, None, State.FUTEX),  # no code, but futex never returns this
        (219, None, State.RUNNING),
    ],
)
def test_a_call_that_was_interrupted_let_go_and_stopped_again(result, code, state):
    world = World()
    world.code[0x100:0x102] = bytes.fromhex(code or "").ljust(2, b"\x90")
    at = CODE + 0x100 if code else 0x900000
    world = two_threads(world, {**futex(LOCK, PRIVATE, 2, result=result), "rip": at})
    world.words(0, 2, 0, 1002, 1, 0)
    assert world.wait().state is state


def test_a_call_that_returned_its_own_number_is_none_where_there_is_no_code():
    world = World()
    world.thread({"orig_rax": 0, "rax": 0, "rip": 0x900000})  # read() at the end of a file
    assert world.wait().state is State.RUNNING


def test_a_restarted_call_is_known_by_its_arguments():
    world = two_threads(World(), futex(LOCK, BITSET_RT, 2, timeout=0x7FFF7000, call=219))
    world.words(0, 2, 0, 1002, 1, 0)
    wait = world.wait()
    assert (wait.primitive, wait.timed) == (Primitive.MUTEX, True)
    world = two_threads(World(), {"orig_rax": 219, "rax": RESTART, "rdi": 0x7FFF0000, "rsi": 2, "rdx": 1000, "r10": 0})
    assert (world.wait().state, world.wait().syscall) == (State.SYSCALL, "restart_syscall")


def test_another_pid_namespace():
    world = two_threads(World(foreign=-990), futex(LOCK, PRIVATE, 2))
    world.words(0, 2, 0, 12, 1, 0)  # 1002 outside is 12 inside
    census = world.census()
    assert census.waits[0].state_of_lock.faults == ()
    assert census.tids == {11: 1, 12: 2}
    assert "PID namespace" in census.notes[0]


def test_spinlocks_and_who_mentions_them():
    world = World()
    # lock decl (%rdi); jne; xor; ret; padding to 16; pause; cmpl $0, (%rdi); jg; jmp
    code = "f0ff0f7503 31c0c3 66906690 66906690 f390 833f00 7fe9 ebf7"
    world.code[0x100:0x120] = bytes.fromhex(code.replace(" ", "")).ljust(32, b"\x90")
    running = {"orig_rax": (1 << 64) - 1, "rax": 0}
    for _ in range(2):
        world.thread({**running, "rdi": LOCK, "rip": CODE + 0x112})
    world.thread({**running, "r13": LOCK, "rip": CODE + 0x800})
    world.thread({**running, "rip": CODE + 0x800}, struct.pack("<3Q", 1, 2, LOCK))
    world.words(0, 0xFFFFFFFE)
    census = world.census()
    assert [wait.state for wait in census.waits[:3]] == [State.SPINNING, State.SPINNING, State.RUNNING]
    assert census.waits[0].state_of_lock.meaning == "held, at least 2 spinning"
    found = [(mention.thread, mention.places, mention.confidence) for mention in census.mentions[LOCK]]
    assert found == [(3, ("r13",), Confidence.MEDIUM), (4, ("stack+0x10",), Confidence.LOW)]


def test_a_pause_loop_of_somebody_else_is_spinning_at_the_unknown():
    world = World()
    world.code[0x100:0x102] = b"\xf3\x90"
    world.thread({"orig_rax": (1 << 64) - 1, "rax": 0, "rip": CODE + 0x102, "rdi": LOCK})
    wait = world.wait()
    assert (wait.state, wait.lock, wait.confidence) == (State.SPINNING, None, Confidence.LOW)


def test_i386():
    world = World(I386)
    world.thread({"orig_eax": 240, "eax": -512 & 0xFFFFFFFF, "ebx": LOCK, "ecx": PRIVATE, "edx": 2, "esi": 0})
    world.thread({"orig_eax": 0xFFFFFFFF, "eax": 0})
    world.words(0, 2, 0, 1002, 1, 1)  # lock, count, owner, kind, nusers
    wait = world.wait()
    assert (wait.primitive, wait.state_of_lock.owner_tid) == (Primitive.RECURSIVE, 1002)


@pytest.mark.parametrize("number", [98, 128])
def test_aarch64(number):
    world = World(AARCH64)
    world.code[0x100:0x104] = b"\x01\x00\x00\xd4"
    world.thread({"x8": number, "x0": LOCK, "x1": BITSET_RT, "x2": 2, "x3": 0x7000, "x4": 0,
                  "x5": 0xFFFFFFFF, "pc": CODE + 0x100})
    world.thread({"x8": 98, "x0": LOCK, "pc": CODE + 0x200})
    world.words(0, 2, 0, 1002, 1, 0)
    census = world.census()
    wait = census.waits[0]
    assert (wait.primitive, wait.state_of_lock.owner_tid, wait.tid) == (Primitive.MUTEX, 1002, 1001)
    assert census.waits[1].state is State.RUNNING  # x8 is stale: it stands at no svc


class Standing:
    """Every thread stands in one function."""

    def __init__(self, function):
        self.function = function

    def frames(self, thread, limit):
        return [Frame(0, CODE + 0x200, None, self.function, "libc.so.6")]


def test_spinning_is_not_decoded_on_aarch64_and_that_is_said():
    world = World(AARCH64)
    world.words(0, 0xFFFFFFFE)  # on x86: held, two spin
    world.thread({"x8": 98, "x0": LOCK, "x1": 1, "pc": CODE + 0x200})
    census = world.census()
    assert (census.waits[0].state, census.waits[0].lock) == (State.RUNNING, None)
    assert census.notes[-1] == "spinlocks are not decoded on aarch64: a thread that runs may be spinning"
    wait = world.census(Standing("pthread_spin_lock")).waits[0]
    assert (wait.state, wait.primitive, wait.lock, wait.confidence) == (
        State.SPINNING, Primitive.SPINLOCK, None, Confidence.LOW,
    )  # fmt: skip
    assert "which lock is not decoded on this machine" in wait.because
    memory = FakeMemory([(LOCK, bytes(world.lock))])
    target = Target(memory, AARCH64, threads=world.threads)
    assert find_spinlock(target, LOCK).meaning == "not decoded on this machine"
    assert count_told_waiters(target, LOCK, []) == 0
    twin = two_threads(World(), futex(LOCK, PRIVATE, 2))
    assert not any("not decoded" in note for note in twin.census().notes)


def test_a_machine_that_is_not_known_says_so():
    world = World(Abi(8, "big", "s390x"))
    world.thread({"r2": 1})
    census = world.census()
    assert census.waits[0].state is State.UNKNOWN
    assert "registers of s390x are not known" in census.notes[0]


def test_libcs_own_locks_are_no_mutexes():
    world = two_threads(World(), futex(LOCK, PRIVATE, 2))
    world.words(0, 2, 0, 0, 0, 0x55501234)  # a malloc arena: mutex, flags, have_fastchunks, pad, a fastbin's pointer
    wait = world.wait()
    assert (wait.primitive, wait.confidence) == (Primitive.LOW_LEVEL, Confidence.LOW)


class Named:
    def __init__(self, *names):
        self.names = names

    def frames(self, thread, limit):
        return [Frame(at, CODE, None, name) for at, name in enumerate(self.names)]


def test_names_decide_between_what_looks_alike():
    world = two_threads(World(), futex(LOCK, BITSET_RT, 0))
    world.words(0, 0, 1, 0, 0)
    wait = world.wait(stacks=Named("__futex_abstimed_wait_common", "__new_sem_wait_slow64", "take"))
    assert (wait.primitive, wait.confidence) == (Primitive.SEMAPHORE, Confidence.HIGH)
    unlike = two_threads(World(), futex(LOCK, PRIVATE, 77))
    wait = unlike.wait(stacks=Named("___pthread_mutex_lock"))
    assert (wait.primitive, wait.confidence, wait.state_of_lock) == (Primitive.MUTEX, Confidence.LOW, None)


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(min_size=64, max_size=64), st.integers(0, 15), st.sampled_from([0, 0x80, 0x109, 0x189, 0x86, 0x8D]),
       st.integers(0, (1 << 32) - 1) | st.sampled_from([0, 1, 2, 3, 0x80000000]))  # fmt: skip
def test_garbage_is_bounded_and_never_a_certainty_about_nobody(data, word, operation, value):
    world = two_threads(World(), futex(LOCK + 4 * word, operation, value))
    world.lock[:64] = data
    wait = world.wait()
    assert wait.state is State.FUTEX and wait.primitive is not None
    if wait.confidence is Confidence.HIGH and operation not in (0x86, 0x8D):
        assert wait.state_of_lock is not None


def test_memory_that_is_missing_leaves_the_word_unexplained():
    world = two_threads(World(), futex(0xDEAD0000, PRIVATE, 2))
    wait = world.wait()
    assert wait.lock == 0xDEAD0000 and wait.state_of_lock is None


def test_where_a_stack_ends_in_nothing_no_frame_is_shown():
    lost = [Frame(0, 0x1000, None, None, "libc.so.6"), Frame(1, 0, None, None), Frame(2, 0x2000, None, "never")]
    assert find_telling(lost) is None
    assert find_telling([lost[0], lost[2]]) == lost[2]

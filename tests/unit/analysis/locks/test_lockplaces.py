"""Names and places: where in tables, blocks and mappings locks and threads are; what is odd and no finding."""

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.analysis.addresses import Addresses, find_mapping_name, find_short_name
from gdbext.analysis.locks.oddities import for_each_oddity
from gdbext.analysis.locks.report import Knowledge, Position, lock_text, lockwait_report
from gdbext.analysis.locks.waitchanges import Earlier, compare
from gdbext.analysis.locks.waitgraph import find_held_locks, find_holders
from gdbext.analysis.tables.places import TablePlaces, WalkedTable, walked_tables
from gdbext.analysis.tables.search import Looked
from gdbext.errors import UsageError
from gdbext.heap.model import State as Block
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module, Thread
from gdbext.structures.locks.model import Census, LockState, Mention, Primitive, State, Wait
from gdbext.structures.walk.model import BinArray, Links, Node, Table
from gdbext.target import Target
from tests.unit.analysis.tables.walks import bins_walk, head, list_walk, opened, table, walked

MASK = (1 << 64) - 1


def wait(number, primitive=None, lock=None, state=State.FUTEX, timed=False, **of_lock):
    told = LockState(lock, primitive, **{"word": 2, "meaning": "held", **of_lock}) if lock else None
    return Wait(Thread(number, 100 + number, None), state, 1000 + number, None, primitive, lock, told, timed)


def census(*waits, mentions=None):
    return Census(waits, {one.tid: one.thread.number for one in waits}, mentions or {})


def odd(*waits, mentions=None):
    return list(for_each_oddity(census(*waits, mentions=mentions), lambda one: lock_text(one, lambda address: None)))


# ---- tables ----

NODES = [[], [0x9000, 0x7000, 0x8000], [], [0x7800]]


def chained():
    return Table(0x5000, Node(Links(8), element=16), [BinArray(0x6000, 4, 16, 8)], lock=0x5000, bin_lock=4)


def thread(**registers):
    return Thread(1, 1, None, 0x1000, None, registers)


def position(*tables, stack=b"", **registers):
    target = Target(FakeMemory([(0x1000, stack or bytes(64))]), X86_64)
    return TablePlaces(tables).find_position(target, thread(**registers))


def test_a_lock_of_a_table_of_a_bin_of_an_entry():
    places = TablePlaces([WalkedTable("cache", chained(), bins_walk(NODES), 40)])
    names = {
        0x5000: "lock of cache",
        0x6014: "lock of bin 1 of cache",
        0x6034: "lock of bin 3 of cache",
        0x6044: None,  # behind the last bin
        0x6010: None,
        0x7000 - 16: "in an entry of bin 1 of cache",
        0x7000 - 16 + 39: "in an entry of bin 1 of cache",
        0x7000 - 16 + 40: None,
        0x7800: "in an entry of bin 3 of cache",
        0: None,
        MASK: None,
    }
    assert {address: places.find_lock_name(address) for address in names} == names
    assert TablePlaces([WalkedTable("cache", chained(), bins_walk(NODES))]).find_lock_name(0x7000 - 16) is None


def test_a_thread_in_a_chain_at_a_bin_in_a_list():
    known = WalkedTable("cache", chained(), bins_walk(NODES))
    assert str(position(known, rbx=0x8000)) == "in the chain of bin 1 of cache, at entry 3 of 3"
    found = position(known, rbx=0x7800, r12=0x9000, rax=3)
    assert (found.bin, found.position, found.length, found.place) == (1, 1, 3, "r12")  # the longest chain
    assert str(position(known, rbx=0x6010)) == "in the chain of bin 1 of cache, of 3 entries"
    on_stack = (0x7800).to_bytes(8, "little") + bytes(8)
    assert position(known, rbx=0x6010, stack=on_stack).place == "rbx"
    assert position(known, rbx=1, stack=on_stack).place == "stack+0x0"
    assert position(known, rbx=0x6008, stack=bytes(8)) is None
    plain = WalkedTable("queue", head(), list_walk([0x100, 0x300, 0x200]))
    assert str(position(plain, rbx=0x300)) == "in a list of queue, at entry 2 of 3"
    assert TablePlaces([WalkedTable("queue", head(), list_walk([0x100]), 8)]).find_lock_name(0x104) == (
        "in entry 1 of queue"
    )
    assert position(WalkedTable("none", head(), list_walk([])), rbx=1) is None


def test_tables_of_a_group_are_slabs():
    one, two = table(4), table(4)
    pairs = walked((one, bins_walk(NODES)), (two, bins_walk(NODES)))
    group = Looked("env.cache", opened(one, two), pairs)
    assert [each.name for each in walked_tables(group, 0)] == ["slab 0 of env.cache", "slab 1 of env.cache"]
    single = Looked("cache", opened(one), pairs[:1])
    assert [(each.name, each.size) for each in walked_tables(single, 24)] == [("cache", 24)]


# ---- blocks and mappings ----


def test_names_of_blocks(maker):
    maker.span(0x10000, [(100, Block.IN_USE), (200, Block.SMALL), (100, Block.TOP)])
    heap = maker.heap()
    first, second = int(heap.blocks.address[0]), int(heap.blocks.address[1])
    target = Target(FakeMemory([]), X86_64)
    among = Addresses(target, [heap])
    assert find_short_name(among.at(first)) == f"block of {int(heap.blocks.size[0])} bytes"
    assert find_short_name(among.at(first + 0x28)) == f"block of {int(heap.blocks.size[0])} bytes + 0x28"
    assert find_short_name(among.at(second + 8)).startswith("freed block of ")
    assert find_short_name(among.at(8)) is None and find_short_name(Addresses(target).at(first)) is None


def test_names_of_stacks_and_mappings():
    class Mapped(FakeMemory):
        def regions(self):
            return (
                Region(0x1000, 0x2000, name="[heap]"),
                Region(0x3000, 0x4000),
                Region(0x5000, 0x6000, name="/dev/shm/cache.db", offset=0x2000),
            )

    threads = [Thread(1, 1, None), Thread(2, 2, None, 0x3800)]
    target = Target(Mapped([]), X86_64, modules=[Module("/lib/libc.so.6", 0x7000, 0x9000, None)], threads=threads)
    among = Addresses(target)
    assert find_short_name(among.at(0x3900)) == "stack of thread 2"
    assert find_short_name(among.at(0x37F8)) is None and find_short_name(among.at(0x1800)) == "[heap] + 0x800"
    names = {
        0x1410: "[heap] + 0x410",
        0x3900: None,
        0x5010: "cache.db + 0x2010",
        0x7C60: "libc.so.6 + 0xc60",
        0xA000: None,
    }
    assert {address: find_mapping_name(among.at(address)) for address in names} == names


# ---- who is worth a look ----


def test_holders_are_owners_and_those_who_mention_a_lock():
    mentions = {0xB0: [Mention(number, ("r13",)) for number in range(20, 40)], 0xC0: [Mention(50, ("r13",))]}
    taken = census(
        wait(1, Primitive.MUTEX, 0xA0, owner_tid=1007),
        wait(2, Primitive.MUTEX, 0xA8, owner_tid=4242),
        wait(3, Primitive.SPINLOCK, 0xB0),
        wait(4, Primitive.CONDITION, 0xC0),
        wait(5, Primitive.JOIN, 0xD0, owner_tid=1006),
        wait(6),
        wait(7),
        mentions=mentions,
    )
    assert find_holders(taken) == {7, *range(20, 28)}
    assert find_held_locks(taken) == {0xA0, 0xA8, 0xB0}
    assert find_holders(census(wait(6))) == find_held_locks(census(wait(6))) == frozenset()


# ---- oddities ----


def spinning(number, word):
    return wait(number, Primitive.SPINLOCK, 0xA0, State.SPINNING, None, word=word)


def test_a_spinlock_that_nobody_holds():
    (told,) = odd(spinning(2, -2), spinning(3, -2), wait(1, state=State.SYSCALL))
    assert told.startswith("2 threads spin at the spinlock 0xa0, but no thread mentions it, and no other runs: was it")
    assert odd(spinning(2, -2), spinning(3, -2), wait(1, state=State.RUNNING)) == []
    assert odd(spinning(2, -2), spinning(3, -2), mentions={0xA0: [Mention(1, ("r13",))]}) == []
    assert odd(spinning(2, -1), spinning(3, -1)) == []  # one of them has just taken it
    assert odd(spinning(2, 1)) == []  # free


def test_readers_behind_a_writer():
    def at(number, primitive, readers=2):
        return wait(number, primitive, 0xA0, readers=readers)

    writer, reader = at(2, Primitive.RWLOCK_WRITE), at(3, Primitive.RWLOCK_READ)
    running = wait(9, state=State.RUNNING)
    assert odd(writer, reader, running) == [
        "2 readers hold the rwlock 0xa0, 1 thread waits to write, and behind it 1 thread waits to read"
    ]
    assert odd(writer, running) == odd(reader, running) == []
    assert odd(at(2, Primitive.RWLOCK_WRITE, None), at(3, Primitive.RWLOCK_READ, None), running) == []


def test_waits_that_nobody_is_left_to_end():
    condition = wait(2, Primitive.CONDITION, 0xA0, meaning="1 waiter")
    joining = wait(1, Primitive.JOIN, 0xD0, owner_tid=1002)
    assert odd(condition, joining) == [
        "1 thread waits for the condition 0xa0, and nobody is left to wake it: every thread waits"
    ]
    for other in (
        wait(1, state=State.RUNNING),
        wait(1, state=State.SYSCALL),
        wait(1, Primitive.JOIN, 0xD0, timed=True),
        wait(1, Primitive.MUTEX, 0xD0, timed=None),  # not known
        wait(1, Primitive.FUTEX, 0xD0),  # of something else, which another process may wake
        wait(1, Primitive.MUTEX, 0xD0, shared=True),
    ):
        assert odd(condition, other) == []


# ---- sentences ----


@pytest.mark.parametrize(
    ("primitive", "name", "text"),
    [
        (Primitive.MUTEX, "queue_lock", "the mutex queue_lock"),
        (Primitive.MUTEX, None, "the mutex 0xa0"),
        (Primitive.RWLOCK_READ, "table", "the rwlock table"),
        (Primitive.SPINLOCK, "lock of slab 3 of cache", "the lock of slab 3 of cache"),
        (Primitive.RWLOCK_WRITE, "in an entry of bin 7 of cache", "a lock in an entry of bin 7 of cache"),
    ],
)
def test_what_is_waited_for_in_words(primitive, name, text):
    assert lock_text(wait(1, primitive, 0xA0), lambda address: name) == text


# ---- several samples ----


def look(place, *waits):
    known = Knowledge(positions={1: Position(1, 0x5000, None, 7, place, 900, "rbx")})
    running = Wait(Thread(1, 101, None), State.RUNNING, 1001)
    return lockwait_report(census(running, *waits), known)


def data_of(report):
    from tests.unit.analysis.locks.test_lockwait import document

    return document(report)["data"]


def chain(*places):
    """Return the last of several samples, each compared with the one before."""
    waiting = wait(2, Primitive.MUTEX, 0xA0, owner_tid=1001)
    answer, data = look(places[0], waiting), None
    for at, place in enumerate(places):
        report = look(place, waiting)
        if data is not None:
            answer = compare(Earlier(data, float(at - 1)), report.data, float(at))
            report = type(report)(answer)
        data = data_of(report)
    return answer, data


@pytest.mark.parametrize(
    ("places", "verdict", "overall"),
    [
        ((5, 5), "stuck", "stuck"),
        ((5, 5, 5), "stuck", "stuck"),
        ((5, 9, 9), "stuck", "slow"),
        ((5, 5, 9), "slow", "slow"),
        ((None, None), "same holder", "same holder"),  # a bin, and no entry
    ],
)
def test_all_samples_are_one_verdict(places, verdict, overall):
    answer, data = chain(*places)
    assert [(row.verdict, row.overall) for row in answer.changes] == [(verdict, overall)]
    assert len(data["samples"]) == len(places)
    assert [each["seconds"] for each in data["samples"]] == [None] + [1.0] * (len(places) - 1)
    assert answer.counted == f"{len(places)} samples in {len(places) - 1}.0 s"
    assert all(each["waiting"] == 1 for each in data["samples"])


def test_a_lock_that_was_let_go_between():
    waiting = wait(2, Primitive.MUTEX, 0xA0, owner_tid=1001)
    first = compare(Earlier(data_of(look(5, waiting))), look(5).data)
    assert [(row.verdict, row.overall) for row in first.changes] == [("gone", "gone")]
    assert first.counted == "2 samples"
    again = compare(Earlier(data_of(type(look(5))(first))), look(5, waiting).data)
    assert [(row.verdict, row.overall) for row in again.changes] == [("new", "gone")]


@pytest.mark.parametrize("data", [{}, {"locks": 3, "threads": []}, {"threads": [{}], "locks": [], "samples": [3]}])
def test_what_is_no_whole_answer(data):
    with pytest.raises(UsageError, match="it is no whole answer of lockwait"):
        compare(Earlier(data), look(5, wait(2, Primitive.MUTEX, 0xA0)).data)


def test_nodes_are_found_all_at_once():
    known = WalkedTable("cache", chained(), bins_walk(NODES))
    words = np.array([0x7000, 1, 0x9000, MASK, 0x7800], np.uint64)
    assert known.find_nodes(words).tolist() == [1, -1, 0, -1, 3]

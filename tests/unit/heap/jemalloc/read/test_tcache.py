"""Thread caches laid out by hand in bytes, in every version's form, sound and damaged."""

import struct
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gdbext.errors import FaultError
from gdbext.heap.jemalloc.find.globals import find_jemallocs
from gdbext.heap.jemalloc.model import TsdKind, TsdState
from gdbext.heap.jemalloc.read.tcache import read_tcaches
from gdbext.heap.jemalloc.read.tsd import for_each_in_ring, read_tsds
from gdbext.progress import SILENT
from gdbext.report import Problem, ThreadRef
from tests.support.jeworld import HEAP, LAYOUTS, MODULE, laid

VERSIONS = list(LAYOUTS)
OLD = ("5.1.0", "5.2.1")
ROOM = 20  # objects of each class
CLASSES = 41
FREE_TABLE, TABLE_PAST = MODULE + 0x700, MODULE + 0x708


class Cache:
    """One ``tcache_t`` with its stacks; ``tsd`` says whether a ``tsd_t`` is around it."""

    def __init__(self, world, tsd=True, arena=0):
        self.world, self.layout = world, world.layout
        self.old = self.layout.version in OLD
        self.tsd = world.allocate(self.layout["tsd"].size) if tsd else None
        self.slow = None
        if tsd:
            self.address = self.tsd + self.layout["tsd"].offset("tcache")
            self.slow = None if self.old else self.tsd + self.layout["tsd"].offset("tcache_slow")
            world.allocate(1 << 16)  # stacks are far from a thread's cache
            self.stacks = world.allocate(8 * ROOM * CLASSES)
        else:
            self._created()
        self.owner = world.arenas[arena]
        holder = "tcache" if self.old else "tcache_slow"
        self.head = self.address if self.old else self.slow
        world.put(holder, self.head, arena=self.owner)
        if not self.old:
            world.put("tcache", self.address, tcache_slow=self.slow)
            world.put("tcache_slow", self.slow, tcache=self.address)
        if self.layout.version == "5.3.1":
            world.put("tcache_slow", self.slow, tcache_nbins=CLASSES)
        for szind in range(CLASSES):
            self.fill(szind, [])

    def _created(self):
        """As ``tcache_create_explicit`` has it: the stacks behind the cache, since 5.3 in front of it."""
        size = self.layout["tcache"].size
        if self.old:
            self.address = self.world.allocate(size + 8 * ROOM * CLASSES)
            self.stacks = self.address + size
        else:
            whole = 8 * ROOM * CLASSES
            self.stacks = self.world.allocate(whole + size + self.layout["tcache_slow"].size)
            self.address = self.stacks + whole
            self.slow = self.address + size

    def bin(self, szind):
        tcache = self.layout["tcache"]
        names = ["bins_small", "bins_large"] if self.old else ["bins"]
        for name in names:
            member = tcache.member(name)
            if szind < member.count:
                return self.address + member.offset + szind * member.size
            szind -= member.count
        raise AssertionError

    def fill(self, szind, objects, count=None, low_water=0):
        end = self.stacks + 8 * ROOM * (szind + 1)
        for at, value in enumerate(reversed(objects)):
            self.world.word(end - 8 * (at + 1), value)
        count = len(objects) if count is None else count
        place, head = self.bin(szind), end - 8 * count
        if self.old:
            water = struct.unpack("<I", struct.pack("<i", -1 if not objects else low_water))[0]
            number = count & 0xFFFFFFFF
            self.world.put("cache_bin", place, avail=end, ncached=number, low_water=water)
            return
        low = {"low_bits_empty": end, "low_bits_full": end - 8 * ROOM, "low_bits_low_water": end - 8 * low_water}
        self.world.put("cache_bin", place, stack_head=head, **{key: at & 0xFFFF for key, at in low.items()})
        if "ncached_max" in self.layout["cache_bin"]:
            self.world.put("cache_bin", place, ncached_max=ROOM)

    def state(self, **changes):
        known = TsdState(
            address=self.tsd or 0,
            thread=ThreadRef(1, 77, "worker"),
            raw_state=0,
            state=TsdKind.NOMINAL,
            arena=self.owner,
            iarena=self.owner,
            tcache_enabled=True,
            tcache=self.address,
            tcache_arena=self.owner,
        )
        return replace(known, **changes)


def location_of(world, **how):
    (location,) = find_jemallocs(world.target(**how), SILENT).locations
    return location


def read(world, tsds, absent=(), symbols=None):
    location = location_of(world)
    if symbols:
        location = replace(location, symbols={**location.symbols, **symbols})
    problems = []
    found = read_tcaches(world.target(absent=absent), location, tsds, problems)
    return found, [problem.message for problem in problems], problems


def listed(world, arena, *caches, close=True):
    """Put caches on both of an arena's lists."""
    layout = world.layout
    for index, cache in enumerate(caches):
        after = caches[(index + 1) % len(caches)]
        holder = layout["tcache" if cache.old else "tcache_slow"]
        link, inner = holder.offset("link"), holder.offset("descriptor")
        ends = close or index + 1 < len(caches)
        world.word(cache.head + link, after.head if ends else HEAP)
        world.word(cache.head + inner, after.head + inner if ends else HEAP)
    first = caches[0]
    inner = layout["tcache" if first.old else "tcache_slow"].offset("descriptor")
    world.put("arena", world.arenas[arena], tcaches=first.head, descriptors=first.head + inner)


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_read_in_the_order_in_which_they_are_handed_out(version):
    world = laid(version)
    cache = Cache(world)
    cache.fill(3, [0x1000, 0x2000, 0x3000], low_water=2)
    cache.fill(40, [0x9000])
    (found,), messages, _ = read(world, [cache.state()])
    assert messages == []
    assert (found.address, found.arena, found.thread) == (cache.address, cache.owner, ThreadRef(1, 77, "worker"))
    small, large = found.bins
    assert (small.szind, small.size, small.objects.tolist()) == (3, 48, [0x1000, 0x2000, 0x3000])
    assert (small.most, small.low_water, small.cached, small.bytes) == (ROOM, 2, 3, 144)
    assert (large.szind, large.objects.tolist(), large.most) == (40, [0x9000], ROOM)
    assert (found.cached, found.bytes) == (4, 144 + large.size)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_classes_room_is_not_told_before_5_3(version):
    cache = Cache(world := laid(version))
    cache.fill(0, [0x1000])
    (found,), messages, _ = read(world, [cache.state()])
    assert messages == [] and found.bins[0].most == (None if version in OLD else ROOM)


@pytest.mark.parametrize(
    "changes",
    [
        {"tcache_enabled": False},
        {"tcache_arena": 0},
        {"state": TsdKind.PURGATORY},
        {"state": TsdKind.REINCARNATED},
        {"state": TsdKind.UNINITIALIZED},
    ],
    ids=str,
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_cache_that_is_not_in_use_is_not_told(version, changes):
    cache = Cache(world := laid(version))
    cache.fill(3, [0x1000])
    assert read(world, [cache.state(**changes)])[:2] == ([], [])


def test_nothing_is_known_without_threads_and_lists():
    assert read(laid(), None)[:2] == (None, [])


def test_a_class_that_is_switched_off_holds_nothing():
    cache = Cache(world := laid("5.3.1"))
    disabled = MODULE + 0x6F0
    low = {"low_bits_empty": disabled & 0xFFFF, "low_bits_full": disabled & 0xFFFF}
    world.put("cache_bin", cache.bin(3), stack_head=disabled, low_bits_low_water=disabled & 0xFFFF, **low)
    cache.fill(4, [0x1000])
    (found,), messages, _ = read(world, [cache.state()])
    assert messages == [] and [one.szind for one in found.bins] == [4]


def test_classes_beyond_those_in_use_are_left_out():
    cache = Cache(world := laid("5.3.1"))
    cache.fill(40, [0x1000])
    world.put("tcache_slow", cache.slow, tcache_nbins=40)
    (found,), messages, _ = read(world, [cache.state()])
    assert found.bins == () and messages == []


# -- damage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "count"), [*((one, ROOM + 1) for one in VERSIONS), ("5.1.0", 1 << 30)])
def test_more_objects_than_fit_are_told_and_left_out(version, count):
    cache = Cache(world := laid(version))
    cache.fill(3, [0x1000], count=count)
    cache.fill(4, [0x2000])
    (found,), (message,), (problem,) = read(world, [cache.state()])
    head = cache.stacks + 8 * ROOM * 4 - 8 * count
    what = f"class 3 (48 bytes) has {count} objects and room for {ROOM}, from {head & (1 << 64) - 1:#x}"
    assert message == f"the thread cache at {cache.address:#x}: {what}: left out"
    assert problem.kind == "tcache-count" and problem.corruption
    assert [one.szind for one in found.bins] == [4]


@pytest.mark.parametrize("version", OLD)
def test_a_negative_number_of_objects_is_told(version):
    cache = Cache(world := laid(version))
    cache.fill(3, [0x1000], count=-2)
    _, (message,), _ = read(world, [cache.state()])
    assert "class 3 (48 bytes) has a number of objects that cannot be and room for 20" in message


@pytest.mark.parametrize("version", [one for one in VERSIONS if one not in OLD])
def test_a_stack_that_does_not_hold_whole_words_is_told(version):
    cache = Cache(world := laid(version))
    cache.fill(3, [0x1000])
    world.put("cache_bin", cache.bin(3), stack_head=cache.stacks + 8 * ROOM * 4 - 12)
    _, (message,), _ = read(world, [cache.state()])
    assert "has a number of objects that cannot be" in message


def test_many_damaged_classes_are_counted():
    cache = Cache(world := laid("5.2.1"))
    for szind in range(2, 30):
        cache.fill(szind, [], count=100)
    _, messages, _ = read(world, [cache.state()])
    assert len(messages) == 9
    assert messages[-1].endswith("20 more classes have numbers of objects that cannot be: left out")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stack_that_cannot_be_read_is_told(version):
    cache = Cache(world := laid(version))
    cache.fill(3, [0x1000])
    nowhere = 0x1234_5678_0000 + (cache.stacks + 8 * ROOM * 4 - 8 & 0xFFFF)
    if cache.old:
        for szind in range(2, 5):
            world.put("cache_bin", cache.bin(szind), avail=nowhere + 8 + 8 * ROOM * (szind - 3))
    else:
        world.put("cache_bin", cache.bin(3), stack_head=nowhere)
    _, messages, problems = read(world, [cache.state()])
    start = f"the thread cache at {cache.address:#x}: its stack of class 3 cannot be read:"
    assert messages[0].startswith(start) and problems[0].kind == "tcache"


def test_a_stack_that_is_absent_is_no_damage():
    cache = Cache(world := laid("5.3.0"))
    cache.fill(3, [0x1000])
    low = cache.stacks + 8 * ROOM * 4 - 8 & 0xFFFF
    world.put("cache_bin", cache.bin(3), stack_head=HEAP + low)
    _, (message,), (problem,) = read(world, [cache.state()])
    assert (problem.kind, problem.corruption) == ("absent-memory", False)


def test_a_cache_that_cannot_be_read_is_told():
    cache = Cache(world := laid("5.3.0"))
    found, (message,), _ = read(world, [cache.state(tcache=0x1234_5678_0000)])
    assert found == []
    assert message.startswith("the thread cache at 0x123456780000 cannot be read:")


# -- caches without a thread ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_caches_on_an_arenas_lists_are_told_once(version):
    world = laid(version)
    own, made, other = Cache(world), Cache(world, tsd=False), Cache(world, tsd=False)
    made.fill(3, [0x1000])
    other.fill(4, [0x2000, 0x3000])
    listed(world, 0, own, made, other)
    found, messages, _ = read(world, [own.state()])
    assert messages == []
    assert [(one.address, one.cached, one.thread) for one in found] == [
        (own.address, 0, ThreadRef(1, 77, "worker")),
        (made.address, 1, None),
        (other.address, 2, None),
    ]
    assert found[1].arena == world.arenas[0]
    without, _, _ = read(world, None)
    assert {one.address for one in without} == {own.address, made.address, other.address}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cache_of_the_program_has_no_tsd_around_it(version):
    world = laid(version)
    own, made = Cache(world), Cache(world, tsd=False)
    world.put("tsd", own.tsd, arena=world.arenas[0], tcache_enabled=1)
    listed(world, 0, own, made)
    tsds = read_tsds(world.target(), location_of(world), [])
    assert [tsd.address for tsd in tsds or ()] == [own.tsd]


def test_a_list_that_does_not_close_is_told():
    world = laid("5.3.0")
    made = Cache(world, tsd=False)
    listed(world, 0, made, close=False)
    found, messages, problems = read(world, [])
    assert [one.address for one in found] == [made.address]
    assert any("arena 0's list of tcaches" in one for one in messages)
    assert all(one.kind in ("list", "absent-memory") for one in problems)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_cache_on_a_list_is_told(version):
    world = laid(version)
    made = Cache(world, tsd=False)
    listed(world, 0, made)
    world.put("tcache" if made.old else "tcache_slow", made.head, arena=world.arenas[1])
    found, messages, _ = read(world, [])
    assert found == []
    assert messages[0] == f"arena 0's list of tcaches holds {made.head:#x}, which is no thread cache"


@pytest.mark.parametrize("version", VERSIONS)
def test_created_caches_are_found_by_their_table(version):
    world = laid(version)
    made = Cache(world, tsd=False)
    made.fill(3, [0x1000])
    table = world.allocate(8 * 4)
    for at, value in enumerate((table + 8, 1, made.address, 0)):  # free, to be made again, in use, last free
        world.word(table + 8 * at, value)
    world.word(FREE_TABLE, table)
    world.word(TABLE_PAST, 4)
    symbols = {"tcaches": FREE_TABLE, "tcaches_past": TABLE_PAST}
    found, messages, _ = read(world, [], symbols=symbols)
    assert messages == [] and [one.bins[0].objects.tolist() for one in found] == [[0x1000]]
    world.word(TABLE_PAST, 1 << 31)
    assert "jemalloc counts 2147483648 created thread caches" in read(world, [], symbols=symbols)[1][0]
    world.word(FREE_TABLE, 0x1234_5678_0000)
    world.word(TABLE_PAST, 4)
    _, (message,), _ = read(world, [], symbols=symbols)
    assert message.startswith("the table of created thread caches cannot be read:")


def test_a_created_cache_that_is_none_is_told():
    world = laid("5.3.0")
    made = Cache(world, tsd=False)
    table = world.allocate(8)
    world.word(table, made.address)
    world.word(FREE_TABLE, table)
    world.word(TABLE_PAST, 1)
    world.put("tcache", made.address, tcache_slow=made.address)
    found, (message,), _ = read(world, [], symbols={"tcaches": FREE_TABLE, "tcaches_past": TABLE_PAST})
    assert found == []
    assert message == f"the table of created thread caches holds {made.address:#x}, which is none: left out"


def test_noise_ends_bounded():
    rng = np.random.default_rng(5)
    for version in VERSIONS:
        world = laid(version)
        cache = Cache(world)
        for _ in range(5):
            size = world.layout["tcache"].size
            world.poke(cache.address, rng.integers(0, 256, size, np.uint8).tobytes())
            found, messages, _ = read(world, [cache.state()])
            assert len(found) == 1 and len(messages) < 300


@pytest.mark.parametrize(
    ("next_of", "absent", "expected"),
    [
        ({16: 32}, True, Problem("absent-memory", 32, "a list: 2 elements read, then the next is not in the target")),
        (
            {16: 32, 32: 48, 48: 32},
            False,
            Problem("list", 32, "a list: 3 elements read, then it does not lead back to 0x10", True),
        ),
        ({16: 32, 32: 16}, False, None),
    ],
)
def test_a_ring_that_does_not_close_says_how_far_it_was_read(next_of, absent, expected):
    class Reader:
        def word(self, address):
            if address - 8 not in next_of:
                raise FaultError(address, 8, "x")
            return next_of[address - 8]

    problems = []
    target = SimpleNamespace(reader=Reader(), lacks=lambda address, size: absent)
    assert len(list(for_each_in_ring(target, 16, 8, "a list", problems))) == len(set(next_of) | set(next_of.values()))
    assert problems == ([expected] if expected else [])

"""What places are called, in memory laid out by hand."""

import numpy as np
import pytest

from gdbext.analysis.pins.naming import Places
from gdbext.analysis.reach.model import RootWord
from gdbext.analysis.types.model import HIGH, BlockTypes, TypeName
from gdbext.debuginfo import FramePlace
from gdbext.heap.model import State
from gdbext.layout.types import Code, Field, Type
from gdbext.memory import Region
from tests.support.reachworld import DATA, HEAP, STACK, ReachWorld
from tests.unit.analysis.reach.names import SaidNames, variables

POINTER = Type("void *", Code.POINTER, 8)
CACHE = Type("struct cache", Code.STRUCT, 32, fields=lambda: [Field("hits", 0, LONG), Field("head", 24, POINTER)])
LONG = Type("long", Code.INTEGER, 8)
ITEM = Type("struct item", Code.STRUCT, 16, fields=lambda: [Field("id", 0, LONG), Field("next", 8, POINTER)])
DATA_SYMBOLS = variables([("cache", DATA + 0x100, 32), ("plain", DATA + 0x200, 64)], static=["plain"])


def places(world, names=None, types=None):
    reach = world.reach()
    known = None
    if types is not None:
        code = np.array([types.get(address, 0) for address in reach.address.tolist()], np.uint32)
        every = [TypeName("unknown", "unknown"), TypeName("struct item", "debug info"), TypeName("zeros", "zeros")]
        known = BlockTypes(every, code, np.full(len(code), HIGH, np.uint8))
    return Places(reach, names or SaidNames(), lambda: known)


@pytest.mark.parametrize(
    "at, text, offset",
    [
        (DATA + 0x100 + 24, "global cache.head (+0x18) of app", 24),
        (DATA + 0x100, "global cache.hits of app", 0),
        (DATA + 0x208, "static plain +0x8 of app", 8),
        (DATA + 0x300, "data of app +0x300", 0x300),  # behind the end of the variable before it
    ],
)
def test_variables(at, text, offset):
    place = places(ReachWorld(), SaidNames(DATA_SYMBOLS, types={"cache": CACHE})).of_address(at)
    assert (place.text, place.kind, place.address, place.offset) == (text, "global", at, offset)


def test_a_module_without_symbols():
    assert places(ReachWorld()).of_address(DATA + 0x118).text == "data of app +0x118"


def test_stacks():
    frames = {
        (1, STACK + 0x2100): FramePlace(2, "worker", "item.next"),
        (1, STACK + 0x2108): FramePlace(2, "worker", None),
        (1, STACK + 0x2110): FramePlace(3, None, None),
    }
    named = places(ReachWorld(), SaidNames(frames=frames))
    texts = [named.of_address(STACK + at).text for at in (0x2100, 0x2108, 0x2110, 0x2120, 0x1FF8)]
    assert texts == [
        "thread 1, frame 2 worker, variable item.next",
        "stack of thread 1, frame 2 worker",
        "stack of thread 1, frame 3 ??",
        "stack of thread 1 +0x120 from the stack pointer",
        "stack of thread 1 -0x8 from the stack pointer",
    ]
    place = named.of_address(STACK + 0x2100)
    assert (place.kind, place.thread) == ("stack", 1)


def test_thread_local_storage_on_a_stack():
    world = ReachWorld()
    world.thread(tls=STACK + 0x3F00)
    own = {1: variables([("current", STACK + 0x3E00, 8)])}
    named = places(world, SaidNames(own=own, types={"current": POINTER}))
    assert named.of_address(STACK + 0x3E00).text == "thread-local current of thread 1"
    assert named.of_address(STACK + 0x3E00).kind == "tls"
    assert named.of_address(STACK + 0x3F10).text == "tls of thread 1 +0x10 from the thread pointer"
    assert named.of_address(STACK + 0x3E08).kind == "stack"


def test_registers_and_other_words():
    held = {(1, "rdi"): FramePlace(0, "send", "buffer")}
    named = places(ReachWorld(), SaidNames(registers=held))
    place = named.of_word(RootWord("register", "rdi", 0, 1))
    assert place.text == "rdi of thread 1, variable buffer of frame 0 send"
    assert (place.kind, place.address, place.thread) == ("register", None, 1)
    assert named.of_word(RootWord("register", "rax", 0, 1)).text == "rax of thread 1"
    assert named.of_word(RootWord("tls", "dtv", 0, 2)).text == "dtv of thread 2"


def test_other_mappings():
    world = ReachWorld()
    world.map(Region(0x400000, 0x402000))
    world.map(Region(0x500000, 0x502000, name="/var/cache/some"))
    named = places(world)
    assert named.of_address(0x400028).text == "anonymous memory 0x400000-0x402000 +0x28"
    assert named.of_address(0x500030).text == "/var/cache/some at 0x500030"
    assert [named.of_address(at).kind for at in (0x400028, 0x500030)] == ["anonymous", "file"]


def test_blocks_and_what_lies_between():
    world = ReachWorld()
    item, array = world.block(HEAP + 0x100, 24), world.block(HEAP + 0x200, 64)
    zeros, unknown = world.block(HEAP + 0x300, 64), world.block(HEAP + 0x400, 64)
    freed = world.block(HEAP + 0x500, 64, State.TCACHE)
    world.extra["metadata"] = [(HEAP + 0x600, HEAP + 0x680)]
    types = {item: 1, array: 1, zeros: 2}
    named = places(world, SaidNames(types={"struct item": ITEM}), types)
    texts = [named.of_address(at).text for at in (item + 8, item + 12, item + 20, array + 40, zeros + 8, unknown)]
    assert texts == [
        f"block {item:#x} (struct item, 24 bytes) +0x8 next",
        f"block {item:#x} (struct item, 24 bytes) +0xc next+0x4",
        f"block {item:#x} (struct item, 24 bytes) +0x14",
        f"block {array:#x} (struct item, 64 bytes) +0x28 [2].next",
        f"block {zeros:#x} (zeros, 64 bytes) +0x8",
        f"block {unknown:#x} (64 bytes) +0x0",
    ]
    place = named.of_address(item + 8)
    assert (place.kind, place.block, place.size, place.type, place.offset) == ("block", item, 24, "struct item", 8)
    free = named.of_address(freed + 16)
    assert free.text == f"free (tcache) block {freed:#x} (64 bytes) +0x10" and free.kind == "free block"
    assert named.of_address(HEAP + 0x680).text == f"the allocator's own bytes at {HEAP + 0x680:#x}"
    assert named.of_address(HEAP + 0x610).text == f"test's own memory at {HEAP + 0x610:#x}"
    assert named.of_address(HEAP + 0x610).kind == "allocator"


def test_types_are_found_only_when_a_block_is_named():
    asked = []
    named = Places(ReachWorld().reach(), SaidNames(), lambda: asked.append(1))
    named.of_address(DATA)
    assert asked == []

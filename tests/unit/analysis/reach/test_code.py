"""Immediates in memory that a program writes and executes."""

import numpy as np
import pytest

from gdbext.abi import I386, X86_64
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.refs import refs
from gdbext.analysis.reach.code import is_generated_code, scan_code
from gdbext.debuginfo import NoDebugInfo
from gdbext.heap.model import State
from gdbext.kernels import BlockIndex, PointerRules
from gdbext.memory import Region
from tests.support.reachworld import HEAP, ReachWorld

REACHED, MAYBE, LEAKED = 2, 1, 0
CODE = 0x700000
LOADED = b"\x49\xbf"  # movabs $…,%r15


def world_of(code, abi=X86_64, **region):
    """Three blocks, and a mapping with these bytes; "{0}" stands for the address of the first, "{0+8}" farther in."""
    world = ReachWorld(abi)
    blocks = [world.block(HEAP + 0x100 * at, 64) for at in (1, 2, 3)]
    world.map(Region(CODE, CODE + 0x4000, **{"permissions": "rwx", **region}))
    raw = b"".join(
        part if isinstance(part, bytes) else (blocks[part[0]] + part[1]).to_bytes(abi.pointer_size, "little")
        for part in code
    )
    raw += b"\x90" * (-len(raw) % abi.pointer_size)
    step = abi.pointer_size
    world.put(CODE, *(int.from_bytes(raw[at : at + step], "little") for at in range(0, len(raw), step)))
    return world, blocks


@pytest.mark.parametrize("abi", [X86_64, I386], ids=["64", "32"])
@pytest.mark.parametrize("odd", range(8))
def test_a_start_pointer_counts_at_every_byte(abi, odd):
    world, blocks = world_of([b"\x90" * odd, (0, 0), b"\xc3", (2, 0)], abi)
    assert list(world.states().values()) == [REACHED, LEAKED, REACHED]


@pytest.mark.parametrize("odd", range(1, 8))
def test_an_interior_pointer_counts_where_it_is_loaded(odd):
    code = [b"\x90" * odd, LOADED, (0, 8), b"\xe8", b"\x90" * (-(odd + 11) % 8 + odd), (1, 8)]
    world, _ = world_of(code)
    loaded_aligned = (odd + 2) % 8 == 0
    assert list(world.states().values()) == [MAYBE, LEAKED, LEAKED] or loaded_aligned


def test_an_aligned_interior_pointer_is_data_beside_code():
    world, _ = world_of([(0, 8)])
    assert list(world.states().values()) == [MAYBE, LEAKED, LEAKED]


def test_no_other_machine_has_that_instruction():
    world, _ = world_of([b"\x90", LOADED, (0, 8)], I386)
    assert list(world.states().values()) == [LEAKED, LEAKED, LEAKED]


@pytest.mark.parametrize(
    "region, searched",
    [
        ({"permissions": "r-x"}, True),
        ({"permissions": "rwx", "name": "[anon:v8]"}, True),
        ({"permissions": "r-x", "name": "/memfd:doublemapper (deleted)"}, True),
        ({"permissions": "r-x", "name": "/dev/zero (deleted)"}, True),
        ({"permissions": "rwx", "name": "/usr/lib/jit.cache"}, True),
        ({"permissions": "r-x", "name": "/usr/lib/libc.so.6"}, False),
        ({"permissions": "rw-", "name": ""}, False),
        ({"permissions": "r--", "name": ""}, False),
        ({"permissions": "r-x", "name": "[vdso]"}, False),
    ],
)
def test_what_is_searched_so(region, searched):
    world, _ = world_of([b"\x90\x90\x90", (0, 0)], **region)
    assert list(world.states().values())[0] == (REACHED if searched else LEAKED)
    assert is_generated_code(Region(CODE, CODE + 8, **region)) == searched or region["name"] == "[vdso]"


def test_words_across_the_bounds_of_pieces():
    index, rules = BlockIndex(np.array([0x5500], np.uint64), np.array([64], np.uint64)), PointerRules(8)
    raw = b"\x90" * 13 + (0x5500).to_bytes(8, "little") + b"\x90" * 11
    for cut in range(1, len(raw)):
        hits = scan_code([(CODE, raw[:cut]), (CODE + cut, raw[cut:])], index, rules, "x86-64")
        assert hits.place.tolist() == [CODE + 13] and hits.interior.tolist() == [False], cut
    apart = scan_code([(CODE, raw[:16]), (CODE + 4096, raw[16:])], index, rules, "x86-64")
    assert len(apart) == 0
    assert len(scan_code([], index, rules, "x86-64")) == 0


def test_who_points_at_a_block_is_named_at_its_byte():
    world, blocks = world_of([b"\x90" * 3, (1, 0)])
    freed = world.block(HEAP + 0x800, state=State.FREE)
    world.put(CODE + 0x100, (freed << 24) & (1 << 64) - 1, freed >> 40)
    reach = world.reach()
    places = Places(reach, NoDebugInfo(), lambda: None)
    for address, place in ((blocks[1], CODE + 3), (freed, CODE + 0x103)):
        found = refs(reach, places, address).data
        assert [(one.kind, one.address, one.into) for one in found.references] == [("anonymous", place, 0)]

"""Headers recognised from the heap itself, and what is none."""

import random

import pytest

from gdbext.abi import I386, X86_64
from gdbext.analysis.blocks.listing import Manner, listing
from gdbext.analysis.blocks.livefacts import Live
from gdbext.analysis.leaks.report import leaks
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.path import paths
from gdbext.analysis.pins.refs import refs
from gdbext.analysis.reach.headers import LEAST_BLOCKS
from gdbext.analysis.reach.mark import read_reach
from gdbext.analysis.reach.model import Reading
from gdbext.debuginfo import NoDebugInfo
from gdbext.progress import SILENT
from tests.support.reachworld import DATA, HEAP, SIZE, ReachWorld

REACHED, MAYBE, LEAKED = 2, 1, 0
SIZES = (40, 56, 88, 120)


def world_of(offsets, sizes=SIZES, abi=X86_64):
    """A block for each offset, which a word of data points that far into; lost is one like it."""
    world, blocks, at = ReachWorld(abi), [], HEAP + 0x100
    for number, offset in enumerate(offsets):
        size = sizes[number % len(sizes)]
        blocks.append(world.block(at, size))
        world.put(DATA + abi.pointer_size * number, at + offset)
        at += size + 8
    assert at < HEAP + SIZE - 0x200
    return world, blocks, world.block(at, 88)


def headers_of(world):
    found = world.reach().marked.headers
    return [(one.offset or f"1/{one.part}", one.blocks, one.of) for one in found.found] if found else []


@pytest.mark.parametrize("abi", [X86_64, I386], ids=["64", "32"])
@pytest.mark.parametrize("offset", [1, 8, 16, 24])
def test_a_constant_distance_is_a_header_and_nothing_lost_is_hidden(abi, offset):
    world, blocks, lost = world_of([offset] * 60, abi=abi)
    assert headers_of(world) == [(offset, 60, 60)]
    assert world.states() == {**dict.fromkeys(blocks, REACHED), lost: LEAKED}


def test_what_leads_elsewhere_stays_possibly_leaked():
    world, blocks, lost = world_of([16] * 57 + [24, 32, 8])
    assert headers_of(world) == [(16, 57, 60)]
    assert world.states() == {**dict.fromkeys(blocks[:57], REACHED), **dict.fromkeys(blocks[57:], MAYBE), lost: LEAKED}


def test_what_blocks_behind_headers_lead_to_is_reached_by_headers_and_by_start_pointers():
    world, blocks, lost = world_of([16] * 40)
    chain = [world.block(lost + 0x80 * at, 88) for at in (1, 2, 3)]
    world.put(blocks[3] + 8, chain[0] + 16)
    world.put(chain[0], chain[1])
    world.put(chain[1] + 80, chain[2] + 16)
    assert world.states() == {**dict.fromkeys([*blocks, *chain], REACHED), lost: LEAKED}
    offsets = dict(zip(world.reach().address.tolist(), world.reach().header_offsets.tolist()))
    assert [offsets[one] for one in chain] == [16, 0, 16]
    assert all(offsets[one] == 16 for one in blocks) and offsets[lost] == 0


def test_two_headers():
    world, _, _ = world_of([16] * 50 + [32] * 30)
    assert headers_of(world) == [(16, 50, 80), (32, 30, 30)]


def tables(entries):
    """Blocks as PHP's arrays are: 8 bytes of hash an entry, then, where the pointer leads, 32 bytes each."""
    return world_of([8 * number for number in entries], sizes=[40 * number + 8 for number in entries])


def test_a_header_that_grows_with_its_block():
    world, blocks, lost = tables([1, 2, 4, 8] * 6)
    assert headers_of(world) == [("1/5", 24, 24)]
    assert world.states() == {**dict.fromkeys(blocks, REACHED), lost: LEAKED}
    assert world.reach().header_offsets.tolist() == [8, 16, 32, 64] * 6 + [0]
    (header,) = leaks(world.reach(), None).data.headers
    assert (header.offset, header.part, header.reached_blocks) == (None, 5, 24)


def test_two_sizes_are_no_header_that_grows():
    world, _, _ = tables([4, 8] * 12)
    assert headers_of(world) == [] and list(world.states().values())[:24] == [MAYBE] * 24


def test_a_few_blocks_prove_nothing():
    world, blocks, lost = world_of([16] * (LEAST_BLOCKS - 1))
    assert headers_of(world) == [] and world.states() == {**dict.fromkeys(blocks, MAYBE), lost: LEAKED}


def test_offsets_that_differ_are_no_header():
    random.seed(13)
    world, blocks, lost = world_of([8 * random.randint(1, 10) for _ in range(80)], sizes=(88,))
    assert headers_of(world) == [] and world.states() == {**dict.fromkeys(blocks, MAYBE), lost: LEAKED}


def test_what_chance_explains_is_no_header():
    """Blocks so small that half of all interior pointers would lead there."""
    world, _, _ = world_of([8] * 18 + [16] * 12, sizes=(24,))
    assert headers_of(world) == []


def test_ends_of_arrays_are_no_header():
    """Pointers behind the last item, which is no byte of what was asked for, lead into the rest of the block."""
    world, _, _ = world_of([80] * 60, sizes=(88,))
    assert headers_of(world) == []


def test_short_texts_behind_a_header_are_no_ends():
    world, _, _ = world_of([3] * 60, sizes=(16, 24))
    assert headers_of(world) == [(3, 60, 60)]


def test_ends_of_arrays_do_not_count_for_a_header_of_the_same_bytes():
    world, _, _ = world_of([80] * 60 + [24] * 40, sizes=(88,))
    assert headers_of(world) == [(24, 40, 100)]


def test_pointers_in_what_is_lost_prove_nothing():
    world, blocks, lost = world_of([16] * 5)
    for number in range(11):
        leaky = world.block(lost + 0x60 * (number + 1), 88)
        for word in range(11):
            world.put(leaky + 8 * word, blocks[word % 5] + 16)
    assert headers_of(world) == []


def test_headers_are_recognised_in_the_roots_of_registers_and_not_where_nobody_asks():
    world, blocks, lost = world_of([16] * 40)
    of_register = world.block(lost + 0x80, 88)
    world.thread(registers={"rbx": of_register + 16})
    assert world.states()[of_register] == REACHED
    plain = read_reach(world.target(), [world.heap()], Reading(headers=False), SILENT)
    assert plain.marked.headers is None and plain.states.tolist() == [MAYBE] * 40 + [LEAKED, MAYBE]
    assert not plain.header_offsets.any()


def test_every_answer_says_so():
    world, blocks, lost = world_of([16] * 40)
    world.put(blocks[0], blocks[1] + 16, blocks[1] + 24)
    reach = world.reach()
    places = Places(reach, NoDebugInfo(), lambda: None)
    (evidence,) = [one for one in leaks(reach, None).evidence if one.subject == "headers"]
    assert evidence.message == (
        "100.0% of the possibly leaked blocks that interior pointers lead to have one 16 bytes into them (40 of 40; "
        "chance would give 15.1%): it is a start pointer"
    )
    found = refs(reach, places, blocks[1]).data
    assert (found.reach, found.pointers, found.interior) == ("reached", 2, 1)
    assert [(one.kind, one.into) for one in found.references] == [("global", 16), ("block", 16)]
    steps = paths(reach, places, blocks[0]).data.steps
    assert [(one.kind, one.into, one.interior) for one in steps] == [("global", 16, False)]
    data = leaks(reach, None, listed=True).data
    assert data.totals.reached_by_offset_blocks == 40 and data.totals.leaked_blocks == 1
    assert [(row.address, row.reached_by_offset) for row in data.reached_by_offset] == [(one, 16) for one in blocks]
    (header,) = data.headers
    assert (header.offset, header.blocks, header.of, header.share, header.reached_blocks) == (16, 40, 40, 1.0, 40)
    rows = list(listing(reach.heaps, manner=Manner(), live=Live(reach)).data.blocks)
    assert [row.reached_by_offset for row in rows] == [16] * 40 + [None]

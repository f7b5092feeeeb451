"""Blocks of several stops held against each other by address, against dictionaries that do the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gdbext.analysis.growth import census as blocks
from gdbext.analysis.growth.census import (
    Ageing,
    Census,
    count_blocks,
    find_census,
    for_each_kept,
    write_census,
)
from gdbext.heap.model import Blocks, Heap, State
from tests.support.examples import examples

KINDS = ("", "struct a", "struct b", "zeros")
SURE = (False, True, True, False)


def census(blocks):
    """Return a census of {address: (size, group)}."""
    address = np.array(sorted(blocks), np.uint64)
    size = np.array([blocks[at][0] for at in address.tolist()], np.uint32)
    group = np.array([blocks[at][1] for at in address.tolist()], np.uint8)
    return Census(address, size, group, KINDS, SURE, True)


def stops(seed, count):
    """Yield heaps of which each has a part of the one before."""
    chance = random.Random(seed)
    blocks = {}
    for _ in range(count):
        blocks = {at: block for at, block in blocks.items() if chance.random() < 0.8}
        for _ in range(chance.randrange(40)):
            blocks[chance.randrange(1, 200) * 16] = (chance.choice((24, 40)), chance.randrange(len(KINDS)))
        yield dict(blocks)


def are_same(one, other):
    (size, group), (now, kind) = one, other
    return size == now and not (SURE[group] and SURE[kind] and KINDS[group] != KINDS[kind])


@pytest.fixture(autouse=True)
def parts(monkeypatch):
    """Few blocks are matched at once, so that parts and their ends occur."""
    monkeypatch.setattr(blocks, "_AT_ONCE", 7)


def test_what_is_new_gone_and_kept():
    for seed in range(examples(80)):
        first, last = stops(seed, 2)
        kept = [at for at in last if at in first and are_same(first[at], last[at])]
        found = Ageing([census(first), census(last)]).exchange()
        size = sum(last[at][0] for at in kept)
        assert (found.kept_blocks, found.kept_bytes) == (len(kept), size)
        assert (found.new_blocks, found.gone_blocks) == (len(last) - len(kept), len(first) - len(kept))
        assert found.new_bytes == sum(block[0] for block in last.values()) - size
        assert found.gone_bytes == sum(block[0] for block in first.values()) - size


def test_generations_follow_each_block_through_all_stops():
    for seed in range(examples(80)):
        every = list(stops(seed, 6))
        born = dict.fromkeys(every[0], 0)
        came = [list(every[0].values())]
        for number, (before, now) in enumerate(zip(every, every[1:]), 1):
            same = {at for at in now if at in before and are_same(before[at], now[at])}
            born = {at: born[at] if at in same else number for at in now}
            came.append([block for at, block in now.items() if at not in same])
        ageing = Ageing(map(census, every))
        assert dict(zip(map(int, sorted(every[-1])), ageing.born.tolist())) == born
        for group, generations in ageing.ages().generations.items():
            for one in generations:
                mine = [block for at, block in every[-1].items() if born[at] == one.sample and KINDS[block[1]] == group]
                new = [block for block in came[one.sample] if KINDS[block[1]] == group]
                assert (one.blocks, one.bytes) == (len(mine), sum(size for size, _ in mine))
                assert (one.came_blocks, one.came_bytes) == (len(new), sum(size for size, _ in new))


def test_of_nothing_nothing_is_kept():
    empty, some = census({}), census({16: (24, 1)})
    assert list(for_each_kept(empty, some)) == [] and all(not len(now) for _, now in for_each_kept(some, empty))
    assert Ageing([some, empty]).exchange().gone_bytes == 24
    assert Ageing([some, empty, some]).born.tolist() == [2]


def test_blocks_in_use_of_all_heaps_count_and_large_ones_are_bounded():
    states = [State.IN_USE, State.TOP, State.MMAPPED, State.TCACHE]
    size = np.array([24, 99, 1 << 40, 24], np.uint64)
    one = Blocks(np.array([64, 128, 4096, 192], np.uint64), size, np.array(states, np.uint8), np.zeros(4, np.uint32))
    other = Blocks(*(column[:1] for column in (np.array([32], np.uint64), *one.columns[1:])))
    found = count_blocks([Heap("glibc", one, []), Heap("other", other, [])])
    assert found.address.tolist() == [32, 64, 4096]
    assert found.size.tolist() == [24, 24, (1 << 32) - 1]
    assert [found.names[group] for group in found.group.tolist()] == ["24", "24", str((1 << 32) - 1)]


def test_groups_beyond_those_of_a_byte_are_one():
    size = np.arange(1, 401, dtype=np.uint64)
    blocks = Blocks(size * np.uint64(4096), size, np.zeros(400, np.uint8), np.zeros(400, np.uint32))
    found = count_blocks([Heap("glibc", blocks, [])])
    assert len(found.names) == 256 and found.names[1] == "400"
    assert found.group.tolist().count(0) == 145 and max(size[found.group == 0].tolist()) == 145


def test_a_census_is_read_back_as_it_was(tmp_path):
    assert find_census(str(tmp_path)) is None
    made = census(next(stops(1, 1)))
    write_census(made, str(tmp_path))
    found = find_census(str(tmp_path))
    assert found.address.tolist() == made.address.tolist() and found.group.tolist() == made.group.tolist()
    assert (tuple(found.names), tuple(found.sure), found.typed) == (KINDS, SURE, True)
    each = sum((tmp_path / f"{name}.npy").stat().st_size - 128 for name in ("address", "size", "group"))
    assert each == 13 * len(made)

"""Counting one chain: against chains laid out by hand, sound, broken, and endless."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.errors import FaultError
from gdbext.memory.fake import FakeMemory
from gdbext.structures.walk import counting
from gdbext.structures.walk.counting import Chain, Count, Pages, count_nodes
from tests.support.examples import examples

BASE, STEP = 0x10000, 48


def laid_out(follow, link=16, word="<Q", base=BASE):
    """Memory in which node i is at base + 48 * i and leads to the address ``follow[i]``."""
    data = bytearray(STEP * len(follow))
    for at, address in enumerate(follow):
        struct.pack_into(word, data, STEP * at + link, address)
    return FakeMemory([(base, data)])


def at(number, base=BASE):
    return base + STEP * number


def straight(length, end=0):
    return [at(number + 1) for number in range(length - 1)] + [end]


@pytest.mark.parametrize("word, link", [("<Q", 16), (">Q", 0), ("<I", 8), (">I", 44)])
def test_a_sound_chain_in_every_byte_order(word, link):
    memory = laid_out(straight(300), link, word)
    assert count_nodes(memory.read, Chain(BASE, link, word)) == Count(300)
    assert count_nodes(memory.read, Chain(at(299), link, word)) == Count(1)
    assert count_nodes(memory.read, Chain(0, link, word)) == Count(0)


def test_the_stop_ends_it():
    memory = laid_out(straight(10, end=BASE))
    assert count_nodes(memory.read, Chain(at(1), 16, "<Q", stop=BASE)) == Count(9)
    assert count_nodes(memory.read, Chain(BASE, 16, "<Q", stop=BASE)) == Count(0)


def test_the_limit_is_reached_only_by_longer_chains():
    memory = laid_out(straight(10))
    assert count_nodes(memory.read, Chain(BASE, 16, "<Q"), most=10) == Count(10)
    assert count_nodes(memory.read, Chain(BASE, 16, "<Q"), most=9) == Count(9, "stopped at the limit of 9 nodes")


@pytest.mark.parametrize("bad", [8, 0x7777_0000_0000, (1 << 64) - 8])
def test_a_bad_pointer_says_where_and_after_how_many(bad):
    memory = laid_out(straight(5, end=bad))
    expected = Count(5, f"bad pointer {bad:#x} after 5 nodes", broken=True)
    assert count_nodes(memory.read, Chain(BASE, 16, "<Q")) == expected


@given(before=st.integers(0, 40), cycle=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_every_cycle_is_endless(before, cycle):
    length = before + cycle
    memory = laid_out([*straight(length)[:-1], at(before)])
    count = count_nodes(memory.read, Chain(BASE, 16, "<Q"), most=1000)
    assert count.nodes == 1000 and not count.broken
    assert count.why.startswith(f"a cycle of {cycle} nodes through ")


@given(st.lists(st.integers(0, 11), min_size=1, max_size=10), st.integers(0, 20))
@settings(max_examples=examples(200), deadline=None)
def test_any_links_at_all(targets, most):
    """Held to a walk that remembers all it has met."""
    follow = [0 if target == 11 else at(target) for target in targets]
    memory = laid_out(follow)
    met = []
    node = BASE
    while node and node not in met and node < at(len(follow)):
        met.append(node)
        node = follow[(node - BASE) // STEP]
    count = count_nodes(memory.read, Chain(BASE, 16, "<Q"), most=max(most, 1))
    if len(met) > max(most, 1) or node in met:
        assert count.nodes == max(most, 1)
    elif node and len(met) < max(most, 1):
        assert count == Count(len(met), f"bad pointer {node:#x} after {len(met)} nodes", broken=True)
    else:
        assert count.nodes == len(met)


def test_time_ends_it_with_what_was_counted(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(counting.time, "monotonic", lambda: next(clock))
    memory = laid_out(straight(5000))
    count = count_nodes(memory.read, Chain(BASE, 16, "<Q"), seconds=3)
    assert count == Count(3 * 1024, "stopped after 3 s and 3072 nodes")


def test_pages_that_cannot_be_read_whole():
    """A node at the end of a mapping that is no whole page, and a link across two pages."""
    memory = FakeMemory([(0x1FF0, struct.pack("<QQ", 0, 0x2FFC)), (0x2FFC, struct.pack("<Q", 7) + bytes(8))])
    pages = Pages(memory.read, "<Q")
    assert pages.word(0x1FF8) == 0x2FFC and pages.word(0x2FFC) == 7 and pages.word(0x1FF0) == 0
    with pytest.raises(FaultError):
        pages.word(0x1FE8)


def test_pages_are_read_once_and_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(counting, "_KEPT", 4)
    memory = FakeMemory([(0x10000, bytes(0x10000))])
    asked = []

    def read(address, size):
        asked.append((address, size))
        return memory.read(address, size)

    pages = Pages(read, "<Q")
    for _ in range(3):
        assert [pages.word(0x10000 + 8 * number) for number in range(100)] == [0] * 100
    assert asked == [(0x10000, 4096)]
    for number in range(10):
        pages.word(0x10000 + 4096 * number)
    assert len(asked) == 10 and len(pages._pages) <= 4

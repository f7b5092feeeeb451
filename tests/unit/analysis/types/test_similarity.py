"""Leaked blocks named after those of the same size whose words are of the same kinds."""

from __future__ import annotations

import numpy as np
import pytest

from gdbext.abi import I386, X86_64, Abi
from gdbext.analysis.types import similarity
from gdbext.layout.types import Code, Type
from tests.unit.analysis.types.world import CODE, World

BIG = Abi(8, "big", "s390x")
UNKNOWN = ("unknown", "unknown", "")
LIKE_ITEM = ("like struct item", "similarity", "low")
ITEM = ("struct item *next", "char *name", "u64 number", "void *call")
TWIN = ("struct twin *next", "char *title", "u64 count", "void *call")


def pointer(world, target):
    return Type(f"{target.name} *", Code.POINTER, world.abi.pointer_size, target=lambda: target)


class Lists(World):
    """Lists of structures with a name, a number and a function."""

    def __init__(self, abi=X86_64):
        super().__init__(abi)
        self.declare(item=ITEM, twin=TWIN, numbers=("u64 first", "u64 second", "u64 third", "u64 fourth"))
        self.text = self.block(b"a name of something\0")

    def node(self, next, number, call=CODE + 64):
        count = self.words(number) if self.abi.pointer_size == 8 else number.to_bytes(8, self.abi.byteorder)
        return self.block(self.words(next, self.text) + count + self.words(call))

    def list(self, count, call=CODE + 64):
        head = 0
        for number in range(1, count + 1):
            head = self.node(head, number, call)
        return head

    def reached(self, name, count, call=CODE + 64):
        self.variable(pointer(self, self.types.find_type(f"struct {name}")), self.words(self.list(count, call)))

    def lost(self, address):
        self.leaked.add(address)
        return address


@pytest.mark.parametrize("abi", [X86_64, I386, BIG], ids=lambda abi: abi.machine)
def test_what_leaked_is_named_after_what_it_is_like(abi):
    world = Lists(abi)
    world.reached("item", 10)
    last = world.lost(world.node(0, 3))
    first = world.lost(world.node(last, 4))
    answers = world.answers()
    assert answers[last] == answers[first] == LIKE_ITEM


def test_seven_are_too_few():
    world = Lists()
    world.reached("item", 8)  # the last of which has no next
    lost = world.lost(world.node(0, 3))
    assert world.answers()[lost] == UNKNOWN


def test_two_types_that_look_the_same_name_nothing():
    world = Lists()
    world.reached("item", 10)
    world.reached("twin", 2)
    lost = world.lost(world.node(0, 3))
    assert world.answers()[lost] == UNKNOWN


def test_types_that_differ_in_one_word_are_told_apart():
    world = Lists()
    world.reached("item", 10)
    world.reached("twin", 10, CODE + 128)
    item, twin, neither = (world.lost(world.node(0, 3, call)) for call in (CODE + 64, CODE + 128, CODE + 192))
    answers = world.answers()
    assert answers[item] == LIKE_ITEM
    assert answers[twin][0] == "like struct twin"
    assert answers[neither] == UNKNOWN


def test_other_sizes_and_other_words_are_not_alike():
    world = Lists()
    world.reached("item", 10)
    record = world.block(b"\x91" * 20)
    for words in (
        (0, record, 3, CODE + 64),  # no text
        (0, world.text, 0x12345678, CODE + 64),  # a larger number than any
        (0, world.text + 8, 3, CODE + 64),  # into the middle
        (5, world.text, 3, CODE + 64),  # a number where others have a pointer
        (0, world.text, 3, CODE + 64, 0, 0),  # larger
    ):
        lost = world.lost(world.block(world.words(*words)))
        assert world.answers()[lost] == UNKNOWN, words


def test_numbers_alone_tell_nothing():
    world = Lists()
    numbers = pointer(world, world.types.find_type("struct numbers"))
    for number in range(1, 20):
        world.variable(numbers, world.words(world.block(world.words(number, 2, 3, 4))))
    lost = world.lost(world.block(world.words(7, 2, 3, 4)))
    assert world.answers()[lost] == UNKNOWN


def test_unknown_ones_in_use_may_be_something_else():
    world = Lists()
    world.reached("item", 10)
    nobody = [world.node(0, number) for number in range(1, 5)]
    lost = world.lost(world.node(0, 3))
    answers = world.answers()
    assert {answers[at] for at in (lost, *nobody)} == {UNKNOWN}


def test_blocks_that_are_compared_are_chosen_by_chance():
    """Types that take turns are all among them, however few are taken."""
    rows = np.arange(0, 400_000, 2)
    chosen = similarity._some(rows, 1000)
    assert 500 < len(chosen) < 1500
    assert 0.3 < np.mean(chosen % 4 == 0) < 0.7
    assert similarity._some(rows[:1000], 1001).tolist() == rows[:1000].tolist()


def test_only_so_many_are_asked_about_and_leaked_ones_first(monkeypatch):
    monkeypatch.setattr(similarity, "_MOST", 2)
    world = Lists()
    world.reached("item", 10)
    others = [world.node(0, number) for number in range(1, 4)]
    lost = [world.lost(world.node(0, number)) for number in range(1, 3)]
    answers = world.answers()
    assert {answers[at] for at in lost} == {LIKE_ITEM}
    assert {answers[at] for at in others} == {UNKNOWN}

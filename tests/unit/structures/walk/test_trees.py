"""Binary trees, against trees that the test itself has made, and hand-made damage."""

from __future__ import annotations

import random
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.abi import X86_64, Abi
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.progress import SILENT
from gdbext.structures.walk import trees
from gdbext.structures.walk.model import End, TreeRoot
from gdbext.structures.walk.trees import check_tree, walk_tree
from gdbext.target import Target

BASE, HEADER, SIZE = 0x10000, 0x8000, 40
BIG = Abi(4, "big", "ppc")


class Tree:
    """Nodes as libstdc++ lays them out: colour, parent, left, right, then the value; a header before them.

    :param keys: in the order in which they are put in, without any balance.
    """

    def __init__(self, keys, abi=X86_64):
        self.abi = abi
        self.word = abi.pointer_size
        self.keys = list(keys)
        self.at = {key: BASE + SIZE * number for number, key in enumerate(self.keys)}
        self.links = {key: [HEADER, 0, 0] for key in self.keys}
        for key in self.keys[1:]:
            self._hang(key)

    def _hang(self, key):
        over = self.keys[0]
        while True:
            side = 1 if key < over else 2
            if not self.links[over][side]:
                break
            over = self.keys[(self.links[over][side] - BASE) // SIZE]
        self.links[over][side], self.links[key][0] = self.at[key], self.at[over]

    def target(self, regions=(), pieces=None):
        mark = self.abi.word_format
        image = bytearray(SIZE * len(self.keys))
        for key in self.keys:
            links = b"".join(struct.pack(mark, link) for link in (1, *self.links[key]))
            start = self.at[key] - BASE
            image[start : start + len(links)] = links
        segments = pieces(image) if pieces else [(BASE, image)]
        return Target(FakeMemory(segments, regions), self.abi)

    def root(self, **changes):
        ordered = sorted(self.keys)
        described = {
            "address": 0x7000,
            "root": self.at[self.keys[0]] if self.keys else 0,
            "left": 2 * self.word,
            "right": 3 * self.word,
            "parent": self.word,
            "header": HEADER,
            "entries": len(self.keys),
            "leftmost": self.at[ordered[0]] if ordered else HEADER,
            "rightmost": self.at[ordered[-1]] if ordered else HEADER,
            "alignment": self.word,
        }
        return TreeRoot(**{**described, **changes})

    def walk(self, most=None, **changes):
        return walk_tree(self.target(), self.root(**changes), most, SILENT)

    def in_order(self):
        return [self.at[key] for key in sorted(self.keys)]

    def height(self):
        levels = {self.at[key]: 0 for key in self.keys}
        for key in self.keys:
            levels[self.at[key]] = levels.get(self.links[key][0], 0) + 1
        return max(levels.values(), default=0)

    def check(self, walk, **changes):
        return [
            (problem.kind, problem.address)
            for problem in check_tree(self.target(), self.root(**changes), walk)
        ]


KEYS = st.lists(st.integers(0, 1000), max_size=40, unique=True)


@settings(max_examples=60, deadline=None)
@given(KEYS, st.sampled_from([X86_64, BIG]))
def test_every_node_in_order(keys, abi):
    tree = Tree(keys, abi)
    walk = tree.walk()
    assert walk.nodes.tolist() == tree.in_order()
    assert (walk.end.reason, walk.end.link, walk.end.address) == (End.NULL, len(keys), None)
    assert walk.depth == tree.height()
    parents = {tree.at[key]: tree.links[key][0] for key in keys}
    assert [parent or HEADER for parent in walk.parents.tolist()] == [
        parents[at] for at in walk.nodes.tolist()
    ]
    assert tree.check(walk) == []


def test_an_empty_tree():
    tree = Tree([])
    walk = tree.walk()
    assert (len(walk.nodes), walk.depth, walk.end.reason) == (0, 0, End.NULL)
    assert tree.check(walk) == []
    assert tree.check(walk, leftmost=0x1230, entries=1) == [("tree-count", 0x7000), ("tree-end", 0x7000)]


def test_a_sentinel_node_and_a_tagged_link():
    tree = Tree([5, 3, 8])
    for links in tree.links.values():
        links[1:] = [link or 0xFF00 for link in links[1:]]
        links[0] |= 1  # a colour
    tree.links[5][1] |= 1
    walk = tree.walk(sentinel=0xFF00, mask=1)
    assert walk.nodes.tolist() == tree.in_order()
    assert tree.check(walk, mask=1) == []


def test_the_limit_is_in_nodes():
    tree = Tree([4, 2, 6, 1, 3, 5, 7])
    for most in range(8):
        walk = tree.walk(most)
        assert len(walk.nodes) == most
        assert walk.end.reason is (End.NULL if most == 7 else End.LIMIT)
        assert set(walk.nodes.tolist()) <= set(tree.in_order())
        assert walk.nodes.tolist() == sorted(walk.nodes.tolist(), key=tree.in_order().index)
        assert tree.check(walk) == []


@pytest.mark.parametrize(
    ("key", "side", "to", "reason", "link", "missing"),
    [
        (6, 2, 0xDEAD0000, End.BAD_POINTER, 3, [7]),
        (2, 1, BASE + 1, End.DECODE_ERROR, 3, [1]),
        (7, 2, BASE, End.CYCLE, 4, []),  # back to the root
        (5, 1, BASE + 5 * SIZE, End.CYCLE, 4, []),  # to itself
        (6, 1, BASE + SIZE, End.CYCLE, 3, [5]),  # to another's child
        (1, 1, HEADER, End.BAD_POINTER, 4, []),
    ],
)
def test_damage_ends_in_one_place_and_all_else_is_walked(key, side, to, reason, link, missing):
    tree = Tree([4, 2, 6, 1, 3, 5, 7])
    tree.links[key][side] = to
    walk = tree.walk()
    assert (walk.end.reason, walk.end.link, walk.end.address) == (reason, link, to)
    assert walk.nodes.tolist() == [tree.at[each] for each in range(1, 8) if each not in missing]
    (problem,) = [found for found in tree.check(walk) if found[0] == "tree-link"]
    assert problem == ("tree-link", to)


def test_of_two_links_to_a_node_the_one_that_its_link_back_names_is_right():
    tree = Tree([4, 2, 6, 1, 3, 5, 7])
    tree.links[6][1] = tree.at[2]  # higher up than the other, and read before the left one's children
    tree.links[4][1], tree.links[4][2] = tree.at[6], tree.at[2]
    walk = tree.walk()
    assert walk.nodes.tolist() == [tree.at[key] for key in (6, 7, 4, 1, 2, 3)]
    assert tree.check(walk, entries=6, leftmost=None, rightmost=None) == [("tree-link", tree.at[2])]


def test_a_node_without_a_link_that_its_link_back_names_is_walked_all_the_same():
    tree = Tree([4, 2, 6, 1, 3])
    tree.links[4][1] = tree.at[1]
    walk = tree.walk()
    assert walk.nodes.tolist() == [tree.at[key] for key in (1, 4, 6)]
    assert tree.check(walk, entries=3, rightmost=tree.at[6]) == [("tree-parent", tree.at[1])]


def test_both_links_to_one_node():
    tree = Tree([4, 2])
    tree.links[4][2] = tree.at[2]
    walk = tree.walk()
    assert walk.nodes.tolist() == [tree.at[2], tree.at[4]]
    assert walk.end.reason is End.CYCLE


def test_a_node_that_the_core_lacks_is_not_damage():
    tree = Tree([4, 2, 6, 1, 3, 5, 7])
    gone = tree.at[6]
    end = BASE + 7 * SIZE
    regions = [Region(BASE, gone), Region(gone, gone + SIZE, source="absent"), Region(gone + SIZE, end)]

    def pieces(image):
        return [(BASE, image[: gone - BASE]), (gone + SIZE, image[gone - BASE + SIZE :])]

    target = tree.target(regions, pieces)
    walk = walk_tree(target, tree.root(), None, SILENT)
    assert walk.nodes.tolist() == [tree.at[key] for key in (1, 2, 3, 4)]
    assert (walk.end.reason, walk.end.address) == (End.ABSENT, gone)
    (problem,) = check_tree(target, tree.root(), walk)
    assert (problem.kind, problem.address, problem.corruption) == ("absent-memory", gone, False)


def test_links_back_counts_and_ends_are_checked():
    tree = Tree([4, 2, 6, 1, 3])
    tree.links[3][0] = tree.at[6]
    walk = tree.walk()
    assert tree.check(walk) == [("tree-parent", tree.at[3])]
    assert tree.check(walk, parent=None) == []
    tree.links[3][0] = tree.at[2]
    tree.links[4][0] = 0
    assert tree.check(walk) == [("tree-parent", tree.at[4])]
    assert tree.check(walk, header=None) == []
    tree.links[4][0] = HEADER
    assert tree.check(walk, entries=6) == [("tree-count", 0x7000)]
    assert tree.check(walk, leftmost=tree.at[2]) == tree.check(walk, rightmost=tree.at[4])
    (problem,) = check_tree(tree.target(), tree.root(leftmost=tree.at[2]), walk)
    assert problem.message == f"the tree's first node is recorded as {tree.at[2]:#x}, it is {tree.at[1]:#x}"


def test_the_problem_of_a_bad_link_says_where():
    tree = Tree([4, 2, 6])
    tree.links[2][1] = 0xDEAD0000
    (problem,) = check_tree(tree.target(), tree.root(), tree.walk())
    assert problem.message == (
        "a link of level 3 of the tree at 0x7000 leads to 0xdead0000, which is not mapped"
    )
    assert problem.corruption


def test_a_list_taken_for_a_tree_ends_in_time(monkeypatch):
    monkeypatch.setattr(trees, "MOST_LEVELS", 500)
    walk = Tree(range(800)).walk()
    assert (len(walk.nodes), walk.depth, walk.end.reason) == (500, 500, End.LIMIT)


def test_garbage_ends_in_time():
    """Every node's links lead to random nodes: each is met once."""
    chance = random.Random(1)
    count = 20_000
    tree = Tree([])
    words = [BASE + SIZE * chance.randrange(count) for _ in range(count * 5)]
    memory = FakeMemory([(BASE, struct.pack(f"<{count * 5}Q", *words))])
    started = time.process_time()
    walk = walk_tree(Target(memory, X86_64), tree.root(root=BASE), None, SILENT)
    assert time.process_time() - started < 5
    assert len(set(walk.nodes.tolist())) == len(walk.nodes) > count // 2
    assert walk.end.reason is End.CYCLE and len(walk.ends) == 1000


def test_an_interrupt_keeps_what_was_met():
    class Impatient:
        def at(self, doing, done, total):
            if done:
                raise KeyboardInterrupt

    tree = Tree([4, 2, 6])
    walk = walk_tree(tree.target(), tree.root(), None, Impatient())
    assert walk.nodes.tolist() == [tree.at[4]]
    assert walk.end.reason is End.INTERRUPTED
    assert tree.check(walk) == []

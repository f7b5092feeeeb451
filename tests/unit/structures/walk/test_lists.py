"""Lists that the test lays out byte by byte, sound ones and ones with one thing wrong."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext.abi import I386, X86_64, Abi
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.structures.walk import chainwalk as following
from gdbext.structures.walk import gather as gathering
from gdbext.structures.walk.lists import check_list, walk_list
from gdbext.structures.walk.model import ChainEnd, End, Links, ListHead, Node
from gdbext.target import Target
from tests.support.examples import examples

BASE = 0x10000
HEAD = 0x8000
STEP = 48
S390 = Abi(8, "big", "22", 4096)
PPC = Abi(4, "big", "20", 4096)


class Memory:
    """Words at addresses, in a head's page and the nodes' pages; the rest is 0."""

    def __init__(self, abi=X86_64, size=1 << 16):
        self.abi, self.head, self.nodes = abi, bytearray(4096), bytearray(size)

    def put(self, address, value):
        data, at = (self.nodes, address - BASE) if address >= BASE else (self.head, address - HEAD)
        data[at : at + self.abi.pointer_size] = (value & self.abi.word_mask).to_bytes(
            self.abi.pointer_size, self.abi.byteorder
        )

    def get(self, address):
        return int.from_bytes(
            self.nodes[address - BASE : address - BASE + self.abi.pointer_size], self.abi.byteorder
        )

    def target(self, copying=False, regions=()):
        memory = FakeMemory([(HEAD, self.head), (BASE, self.nodes)], regions)
        return Target(Copying(memory) if copying else memory, self.abi)


class Copying:
    """Memory as a process has it: read, never lent."""

    def __init__(self, memory):
        self._memory = memory
        self.regions, self.reads = memory.regions, 0

    def read(self, address, size):
        self.reads += 1
        return bytes(self._memory.read(address, size))


def node_at(at):
    return BASE + STEP * ((7 * at) % 64) + STEP * 64 * (at // 64)


def single(memory, count, end=0):
    """A singly linked list of ``count`` nodes, its link in word 1."""
    word = memory.abi.pointer_size
    nodes = [node_at(at) for at in range(count)]
    for node, following_node in zip(nodes, [*nodes[1:], end]):
        memory.put(node + word, following_node)
    return nodes, ListHead(HEAD, nodes[0] if nodes else end, Node(Links(word)))


def double(memory, count, style):
    """A doubly linked list: ``list_head``, ``tailq`` (link back to a link), ``glist`` or ``utlist``."""
    word = memory.abi.pointer_size
    nodes = [node_at(at) for at in range(count)]
    circular, to_link = style == "list_head", style == "tailq"
    for at, node in enumerate(nodes):
        memory.put(node, nodes[at + 1] if at + 1 < count else HEAD if circular else 0)
        back = (
            nodes[at - 1]
            if at
            else {"list_head": HEAD, "tailq": HEAD, "utlist": nodes[-1], "glist": 0}[style]
        )
        memory.put(node + word, back)
    last = nodes[-1] if nodes else HEAD if style in ("list_head", "tailq") else 0
    memory.put(HEAD, nodes[0] if nodes else HEAD if circular else 0)
    memory.put(HEAD + word, last)
    links = Links(0, prev=word, prev_is_link=to_link, alignment=word)
    head = ListHead(
        HEAD,
        nodes[0] if nodes else HEAD if circular else 0,
        Node(links),
        stop=HEAD if circular else None,
        last=last,
        last_is_link=to_link,
        entries=count,
    )
    return nodes, head


STYLES = ["list_head", "tailq", "glist", "utlist"]
ABIS = pytest.mark.parametrize("abi", [X86_64, I386, S390, PPC], ids=["le64", "le32", "be64", "be32"])


def kinds(problems):
    return [problem.kind for problem in problems]


@ABIS
@pytest.mark.parametrize("copying", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 60, 1000])
def test_a_list_is_walked_in_order(abi, count, copying):
    memory = Memory(abi)
    nodes, head = single(memory, count)
    walk = walk_list(memory.target(copying), head)
    assert walk.nodes.tolist() == nodes
    assert walk.end == ChainEnd(End.NULL, count)


@pytest.mark.parametrize(
    "most, reason, length", [(0, End.LIMIT, 0), (5, End.LIMIT, 5), (9, End.NULL, 9), (50, End.NULL, 9)]
)
def test_a_bound_ends_a_walk_only_when_there_is_more(most, reason, length):
    memory = Memory()
    nodes, head = single(memory, 9)
    walk = walk_list(memory.target(), head, most)
    assert walk.nodes.tolist() == nodes[:length] and (walk.end.reason, walk.end.link) == (reason, length)
    assert not check_list(memory.target(), head._replace(entries=9), walk)


ENDS = {
    "unmapped": (
        0x5550_0000,
        End.BAD_POINTER,
        "list-pointer",
        "link 5 holds 0x55500000, which is not mapped",
    ),
    "misaligned": (
        node_at(2) + 4,
        End.DECODE_ERROR,
        "list-misaligned",
        "which is not aligned as its nodes are",
    ),
    "marker": ((1 << 64) - 1, End.FORBIDDEN, "list-marker", "which marks a node that is on no list"),
    "itself": (node_at(4), End.CYCLE, "list-cycle", "a cycle of 1 nodes at"),
    "rho": (node_at(1), End.CYCLE, "list-cycle", "a cycle of 4 nodes at"),
    "ring": (node_at(0), End.CYCLE, "list-cycle", "a cycle of 5 nodes at"),
}


@pytest.mark.parametrize("copying", [False, True])
@pytest.mark.parametrize("damage", ENDS)
def test_a_broken_list_says_where_and_why_it_ends(damage, copying):
    last, reason, kind, message = ENDS[damage]
    memory = Memory()
    nodes, head = single(memory, 5, last)
    links = Links(8, alignment=8, forbidden=((1 << 64) - 1,))
    head = head._replace(node=Node(links), entries=5)
    walk = walk_list(memory.target(copying), head)
    assert walk.nodes.tolist() == nodes
    assert (walk.end.reason, walk.end.link, walk.end.address) == (reason, 5, last)
    assert walk.end.cycle == {"itself": 1, "rho": 4, "ring": 5}.get(damage)
    (problem,) = check_list(memory.target(), head, walk)
    assert (
        problem.kind == kind and problem.corruption and problem.address == last and message in problem.message
    )


def test_a_first_link_that_is_bad_is_told_as_such():
    memory = Memory()
    head = ListHead(HEAD, 0x5550_0000, Node(Links(0)))
    walk = walk_list(memory.target(), head)
    assert walk.end == ChainEnd(End.BAD_POINTER, 0, 0x5550_0000)
    assert "its first link holds 0x55500000" in check_list(memory.target(), head, walk)[0].message


def test_memory_that_the_core_lacks_is_no_damage():
    memory = Memory(size=STEP * 64)
    nodes, head = single(memory, 4, BASE + (1 << 20))
    regions = [
        Region(HEAD, HEAD + 4096),
        Region(BASE, BASE + len(memory.nodes)),
        Region(BASE + (1 << 20), BASE + (2 << 20), source="absent"),
    ]
    target = memory.target(regions=regions)
    walk = walk_list(target, head)
    assert walk.end == ChainEnd(End.ABSENT, 4, BASE + (1 << 20))
    (problem,) = check_list(target, head._replace(entries=100), walk)
    assert (
        problem.kind == "absent-memory"
        and not problem.corruption
        and "the core does not hold" in problem.message
    )


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("abi", [X86_64, PPC])
@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_sound_lists_of_all_kinds_are_silent(style, abi, count):
    memory = Memory(abi)
    nodes, head = double(memory, count, style)
    walk = walk_list(memory.target(), head)
    assert walk.nodes.tolist() == nodes and walk.end.reason.sound
    assert check_list(memory.target(), head, walk) == []


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_link_back_that_leads_elsewhere_is_told(style, at):
    memory = Memory()
    nodes, head = double(memory, 10, style)
    wrong = nodes[at - 3 if at > 3 else at + 3]
    memory.put(nodes[at] + 8, wrong)
    walk = walk_list(memory.target(), head)
    (problem,) = check_list(memory.target(), head, walk)
    assert problem.kind == "list-prev" and problem.address == nodes[at] and problem.corruption
    assert f"link back of node {at + 1} of its chain holds {wrong:#x}" in problem.message


def test_the_link_back_of_a_circular_head_is_held_to_the_last_node():
    memory = Memory()
    nodes, head = double(memory, 4, "list_head")
    memory.put(HEAD + 8, nodes[2])
    head = head._replace(last=None)
    (problem,) = check_list(memory.target(), head, walk_list(memory.target(), head))
    assert problem.kind == "list-prev" and problem.address == HEAD and f"{nodes[3]:#x}" in problem.message


@pytest.mark.parametrize("style", ["tailq", "glist"])
def test_a_last_node_that_is_not_the_last_is_told(style):
    memory = Memory()
    nodes, head = double(memory, 4, style)
    head = head._replace(last=nodes[1])
    (problem,) = check_list(memory.target(), head, walk_list(memory.target(), head))
    assert (
        problem.kind == "list-last"
        and f"{nodes[1]:#x}" in problem.message
        and f"{nodes[3]:#x}" in problem.message
    )


@pytest.mark.parametrize(
    "style, last", [("glist", node_at(1)), ("tailq", node_at(1)), ("tailq", 0x5550_0000)]
)
def test_an_empty_list_has_no_last_node(style, last):
    memory = Memory()
    memory.put(node_at(1), 77)
    _, head = double(memory, 0, style)
    head = head._replace(last=last)
    (problem,) = check_list(memory.target(), head, walk_list(memory.target(), head))
    assert (
        problem.kind == "list-last" and f"the list is empty, but its head holds {last:#x}" in problem.message
    )


def test_a_count_that_is_off_is_told_with_both_numbers():
    memory = Memory()
    _, head = double(memory, 4, "glist")
    head = head._replace(entries=7)
    (problem,) = check_list(memory.target(), head, walk_list(memory.target(), head))
    assert problem.kind == "list-count" and problem.message == "the list counts 7 entries, 4 were walked"


def test_a_circular_list_that_ends_with_null_is_told_unless_it_is_empty():
    memory = Memory()
    nodes, head = double(memory, 4, "list_head")
    memory.put(nodes[3], 0)
    (problem,) = check_list(memory.target(), head, walk_list(memory.target(), head))
    assert problem.kind == "list-end" and problem.address == nodes[3]
    unused = ListHead(HEAD, 0, head.node, stop=HEAD, last=0, entries=0)
    assert check_list(memory.target(), unused, walk_list(memory.target(), unused)) == []


def test_many_problems_of_a_kind_are_counted():
    memory = Memory()
    nodes, head = double(memory, 200, "glist")
    for node in nodes:
        memory.put(node + 8, 0x77)
    problems = check_list(memory.target(), head, walk_list(memory.target(), head))
    assert len(problems) == 21 and set(kinds(problems)) == {"list-prev"}
    assert problems[-1].message == "180 more of this kind"


def test_a_list_that_was_only_walked_in_part_is_not_held_to_its_end():
    memory = Memory()
    _, head = double(memory, 30, "glist")
    assert check_list(memory.target(), head, walk_list(memory.target(), head, 10)) == []


class Stopping:
    """A progress that is interrupted after some calls."""

    def __init__(self, calls):
        self.calls = calls

    def at(self, doing, done, total):
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("full", [False, True])
def test_an_interrupt_leaves_what_was_walked(full):
    memory = Memory(size=STEP * 1100)
    nodes, head = single(memory, 1000)
    limits = {"_AT_FIRST": 10, "_READS": 16}
    with patch.multiple(following, **limits), patch.object(gathering, "MOST_KEPT", 0 if full else 1 << 20):
        walk = walk_list(memory.target(copying=True), head, progress=Stopping(4))
    assert walk.end.reason == End.INTERRUPTED
    assert 10 < len(walk.nodes) < 1000 and walk.nodes.tolist() == nodes[: len(walk.nodes)]
    assert check_list(memory.target(), head._replace(entries=1000), walk) == []


def links_at_random():
    return st.lists(st.one_of(st.integers(0, 29), st.just(-1), st.just(-2)), min_size=30, max_size=30)


@settings(max_examples=examples(200), deadline=None)
@given(
    links_at_random(),
    st.sampled_from([(X86_64, 8), (I386, 4), (S390, 8), (PPC, 4)]),
    st.booleans(),
    st.integers(1, 40),
    st.sampled_from([0, 1 << 16, 1 << 28]),
    st.sampled_from([None, 0, 3, 29, 30, 100]),
    st.sampled_from([0, 64]),
)
def test_pieces_of_any_size_make_the_same_walk(links, abi, scattered, at_first, kept, most, few):
    """However often a walk is taken up again, by bounds, by windows, by single reads, it finds the same."""
    machine, word = abi
    distance = 1 << 15 if scattered else STEP
    memory = Memory(machine, 30 * distance)
    for at, to in enumerate(links):
        memory.put(BASE + distance * at + word, {-1: 0, -2: 0x5550_0000}.get(to, BASE + distance * to))
    met, at, end = [], 0, None
    while at >= 0 and at not in met:
        if most is not None and len(met) >= most:
            break
        met.append(at)
        at = links[at]
    if at in met:
        end = ChainEnd(End.CYCLE, len(met), BASE + distance * at, len(met) - met.index(at))
    elif at == -1:
        end = ChainEnd(End.NULL, len(met))
    else:
        reason = End.BAD_POINTER if at < 0 and len(met) != most else End.LIMIT
        end = ChainEnd(reason, len(met), 0x5550_0000 if at < 0 else BASE + distance * at)
    limits = {"_AT_FIRST": at_first, "_FEW": few, "_MOST_STEPS": 20}
    with patch.multiple(following, **limits), patch.object(gathering, "MOST_KEPT", kept):
        walk = walk_list(memory.target(copying=True), ListHead(HEAD, BASE, Node(Links(word))), most)
    assert [(node - BASE) // distance for node in walk.nodes.tolist()] == met and walk.end == end


def test_mangled_links_are_followed():
    memory = Memory()
    nodes = [node_at(at) for at in range(20)]
    for node, following_node in zip(nodes, [*nodes[1:], 0]):
        memory.put(node, following_node ^ (node >> 12))
    walk = walk_list(memory.target(), ListHead(HEAD, nodes[0], Node(Links(0, mangled=True, alignment=16))))
    assert walk.nodes.tolist() == nodes and walk.end == ChainEnd(End.NULL, 20)


def xor_list(memory, count, ring=False):
    nodes = [node_at(at) for at in range(count)]
    around = [nodes[-1], *nodes, nodes[0]] if ring else [0, *nodes, 0]
    for at, node in enumerate(nodes):
        memory.put(node + 8, around[at] ^ around[at + 2])
    return nodes, ListHead(HEAD, nodes[0], Node(Links(8, xor=True, alignment=8)))


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_xor_links_are_followed(count):
    memory = Memory()
    nodes, head = xor_list(memory, count)
    walk = walk_list(memory.target(), head)
    assert walk.nodes.tolist() == nodes and walk.end == ChainEnd(End.NULL, count)
    assert walk_list(memory.target(), head, count - 1).end.reason == End.LIMIT


def test_xor_links_with_a_head_end_there():
    memory = Memory()
    nodes = [node_at(at) for at in range(9)]
    around = [HEAD, *nodes, HEAD]
    for at, node in enumerate(nodes):
        memory.put(node + 8, around[at] ^ around[at + 2])
    head = ListHead(HEAD, nodes[0], Node(Links(8, xor=True)), stop=HEAD)
    walk = walk_list(memory.target(), head)
    assert walk.nodes.tolist() == nodes and walk.end == ChainEnd(End.HEAD, 9, HEAD)


def test_broken_xor_links_end_somewhere():
    memory = Memory()
    nodes, head = xor_list(memory, 9)
    memory.put(nodes[5] + 8, nodes[4] ^ 0x5550_0000)
    assert walk_list(memory.target(), head).end == ChainEnd(End.BAD_POINTER, 6, 0x5550_0000)
    memory.put(nodes[5] + 8, 0)  # back to where it came from
    walk = walk_list(memory.target(), head)
    assert walk.end == ChainEnd(End.CYCLE, 6, nodes[4], 2) and walk.nodes.tolist() == nodes[:6]
    memory.put(nodes[5] + 8, nodes[4] ^ (nodes[6] + 1))
    assert walk_list(memory.target(), head).end.reason == End.DECODE_ERROR


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.integers(-1, 19), min_size=20, max_size=20))
def test_random_xor_links_end_and_count_each_node_once(links):
    memory = Memory()
    for at, to in enumerate(links):
        memory.put(node_at(at) + 8, (node_at(to) if to >= 0 else 0) ^ node_at(links[to]))
    walk = walk_list(memory.target(), ListHead(HEAD, node_at(0), Node(Links(8, xor=True))))
    assert len(set(walk.nodes.tolist())) == len(walk.nodes) <= 20


def test_a_long_list_is_never_refused():
    count = 300_000
    order = np.random.default_rng(3).permutation(count)
    nodes = (BASE + 16 * order).astype(np.uint64)
    links = np.zeros(2 * count, np.uint64)
    links[2 * order[:-1] + 1] = nodes[1:]
    memory = FakeMemory([(BASE, memoryview(links).cast("B"))])
    walk = walk_list(Target(memory, X86_64), ListHead(HEAD, int(nodes[0]), Node(Links(8))))
    assert walk.end == ChainEnd(End.NULL, count) and (walk.nodes == nodes).all()

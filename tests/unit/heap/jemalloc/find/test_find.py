"""Finding a jemalloc that was laid out by hand: what is believed, what is refused in one line, what is none."""

import struct
import time
from dataclasses import replace

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.heap.jemalloc.find.globals import find_jemallocs, heap_names
from gdbext.heap.jemalloc.model import Location
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module
from gdbext.progress import SILENT
from gdbext.target import Target
from tests.support.jeworld import (
    ARENAS,
    BASE,
    CONSTANTS,
    INFOS,
    LAYOUTS,
    MODULE,
    NARROW,
    PATH,
    ROOT,
    World,
    laid,
)


def found_in(target):
    return find_jemallocs(target, SILENT)


def only_problem(target):
    """Return the problem's kind and message; nothing was found."""
    found = found_in(target)
    assert found.locations == ()
    (problem,) = found.problems
    assert not problem.corruption
    return problem.kind, problem.message


def erase(world, *places):
    """Fill (offset, bytes) of the module with zeros."""
    for start, size in places:
        world.module[start : start + size] = bytes(size)


TABLE = (ARENAS, 16)
TREE = (ROOT, 8 << 18)


# -- none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_a_jemalloc_that_was_never_used_is_none(named):
    world = laid()
    erase(world, TABLE, TREE)
    assert found_in(world.target(named=named)) == found_in(Target(FakeMemory([]), X86_64))


def test_a_process_of_another_word_size_has_none():
    world = laid()
    small = replace(world.target(), abi=X86_64._replace(pointer_size=4))
    assert found_in(small).locations == () and found_in(small).problems == ()


# -- refused -------------------------------------------------------------------------------------------


def test_a_wrong_index_is_refused():
    world = laid()
    for index in (0, 1):
        at = world.arenas[index] + LAYOUTS["5.3.0"]["arena"].offset("base") - BASE
        world.put("base", int.from_bytes(world.base[at : at + 8], "little"), ind=77)
    why = "arenas[0]->base->ind is not 0 (table of 5.3.0, 54eaed1d8b)"
    message = f"jemalloc in {PATH} (by symbols) is not believed: {why}"
    assert only_problem(world.target()) == ("no-layout", message)


def test_a_tree_that_leads_elsewhere_is_refused():
    world = laid()
    erase(world, TREE)
    assert "its radix tree leads back to 0 of 2 slabs" in only_problem(world.target())[1]


def test_size_classes_of_another_allocator_are_refused():
    world = laid()
    world.put("bin_info", MODULE + INFOS, reg_size=9)
    assert (
        "its table of small size classes is not as the source computes it" in only_problem(world.target())[1]
    )


def test_a_version_without_a_table_is_named():
    world = laid()
    world.constants = world.constants.replace(b"5.3.0", b"5.0.1")
    erase(world, TABLE)
    assert only_problem(world.target(named=False)) == (
        "no-layout",
        f"{PATH} holds jemalloc 5.0.1; without debug info only 5.1.0, 5.2.1, 5.3.0, 5.3.1 are known",
    )


@pytest.mark.parametrize("lost", [TABLE, TREE], ids=["arenas", "tree"])
def test_a_known_version_whose_data_fit_no_table_is_told(lost):
    world = laid()
    erase(world, lost)
    assert only_problem(world.target(named=False)) == (
        "no-layout",
        f"{PATH} holds jemalloc 5.3.0, but its data fit no table: without debug info only usual builds are known",
    )


# -- not in the target ---------------------------------------------------------------------------------


def test_metadata_that_is_not_in_the_core_is_no_damage():
    kind, message = only_problem(laid().target(absent=[BASE]))
    assert kind == "absent-memory" and message.endswith("cannot be read: its arenas are not in the target")
    assert only_problem(laid().target(named=False, absent=[BASE])) == (
        "absent-memory",
        f"{PATH} holds jemalloc 5.3.0, but what its variables lead to is not in the target",
    )


def test_variables_that_are_not_in_the_core_are_told_once():
    where = f"its array of arenas at {MODULE + ARENAS:#x} is not in the target"
    assert only_problem(laid().target(absent=[MODULE])) == (
        "absent-memory",
        f"jemalloc in {PATH} (by symbols) cannot be read: {where}",
    )
    assert only_problem(laid().target(named=False, absent=[MODULE])) == (
        "absent-memory",
        f"{PATH} holds jemalloc 5.3.0, but its variables are not in the target",
    )


def test_a_library_of_which_the_core_has_nothing_is_known_by_its_name():
    target = laid().target(named=False, absent=[MODULE, CONSTANTS])
    assert only_problem(target) == (
        "absent-memory",
        f"{PATH} holds a jemalloc, but its variables are not in the target",
    )
    other = replace(target, modules=(replace(target.modules[0], path="/bin/my_jemalloc_test"),))
    assert found_in(other).problems == ()


def test_constants_that_are_not_in_the_core_are_done_without():
    (location,) = found_in(laid("5.1.0").target(named=False, absent=[CONSTANTS])).locations
    assert (location.layout.version, location.version) == ("5.1.0", "5.1.0")


# -- what structure alone cannot tell ------------------------------------------------------------------


def test_without_names_the_array_says_how_many_arenas_there_are():
    world = laid()
    world.poke(MODULE + 0x800, b"\x09\0\0\0")  # narenas_total, with seven not yet made
    (named,) = found_in(world.target()).locations
    (unnamed,) = found_in(world.target(named=False)).locations
    assert (named.arena_limit, unnamed.arena_limit) == (9, 2)
    assert unnamed.nominal_tsds is None


# -- what is none --------------------------------------------------------------------------------------


def module_of(data, *others, path="/usr/bin/program", words=b"<jemalloc>: %s\0"):
    """Return a target with one module of these data that has jemalloc's name among its words."""
    blocks = [(CONSTANTS, words.ljust(0x1000, b"\0")), (MODULE, data), *others]
    regions = [
        Region(
            start,
            start + len(block),
            "r--" if start == CONSTANTS else "rw-",
            path if start < MODULE + len(data) else "",
        )
        for start, block in blocks
    ]
    module = Module(path, CONSTANTS, MODULE + len(data), None)
    return Target(FakeMemory(blocks, regions), X86_64, modules=(module,))


def noise(chance, size, likely):
    """Return words: half of them 0, others pointers into ``likely``, small numbers, or anything."""
    count = size // 8
    starts, lengths = np.array(likely, np.uint64)[chance.integers(len(likely), size=count)].T
    pointers = starts + chance.integers(lengths // np.uint64(64), dtype=np.uint64) * np.uint64(64)
    small = chance.integers(64, size=count, dtype=np.uint64)
    anything = chance.integers(1 << 64, size=count, dtype=np.uint64)
    nothing = np.zeros(count, np.uint64)
    kinds = (nothing, nothing, nothing, pointers, pointers, small, anything)
    return np.choose(chance.integers(len(kinds), size=count), kinds).astype("<u8").tobytes()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("words", [b"<jemalloc>: %s\0", b"<jemalloc>\0" + b"5.2.1-0-g" + b"0" * 40 + b"\0"])
def test_structure_finds_none_in_noise(seed, words):
    chance = np.random.default_rng(seed)
    heap = (BASE, 1 << 20)
    target = module_of(
        noise(chance, 1 << 16, [heap]), (BASE, noise(chance, 1 << 20, [heap, (MODULE, 1 << 16)])), words=words
    )
    start = time.process_time()
    assert found_in(target).locations == ()
    assert time.process_time() - start < 3


@pytest.mark.parametrize("version", list(LAYOUTS))
def test_structures_that_know_their_position_are_no_arenas(version):
    """A table of objects, each with a pointer to something that begins with the object's number: any program's."""
    layout = LAYOUTS[version]
    data, heap = bytearray(1 << 16), bytearray(8 << 20)
    stride = -(-layout["arena"].size // 64) * 64
    for index in range(8):
        arena, base = index * stride, (7 << 20) + index * 4096
        struct.pack_into("<Q", data, 0x1000 + 8 * index, BASE + arena)
        struct.pack_into("<Q", heap, arena + layout["arena"].offset("base"), BASE + base)
        struct.pack_into("<I", heap, base + layout["base"].offset("ind"), index)
        struct.pack_into("<Q", heap, base + layout["base"].offset("blocks"), BASE + base)  # a block of 0 bytes
    assert found_in(module_of(bytes(data), (BASE, bytes(heap)))).locations == ()
    assert found_in(module_of(bytes(data), (BASE, bytes(heap)))).problems == ()


@pytest.mark.parametrize("version", list(LAYOUTS))
def test_arenas_without_a_tree_are_no_jemalloc(version):
    world = laid(version)
    erase(world, TREE)
    assert found_in(world.target(named=False)).locations == ()


def test_blocks_that_lead_round_in_a_circle_end():
    world = World(LAYOUTS["5.3.0"], NARROW, arenas=4095 // 64)
    world.put("base_block", BASE, size=0, next=BASE)
    start = time.process_time()
    assert found_in(world.target(named=False)).locations == ()
    assert time.process_time() - start < 5


def test_another_programs_arenas_are_not_looked_at():
    world = laid()
    target = world.target(prefix="")
    del target.symbols.known["arena_emap_global"]  # a program of its own may have a variable "arenas"
    (location,) = found_in(target).locations
    assert location.found_by == "structure"


# -- names ---------------------------------------------------------------------------------------------


def places(*facts):
    """Return locations of (prefix, path, version, address of the arenas)."""
    (known,) = found_in(laid().target()).locations
    return [
        replace(
            known,
            prefix=prefix,
            module=Module(path, address, address + 1, None),
            version=version,
            arenas=address,
        )
        for prefix, path, version, address in facts
    ]


def test_several_are_called_by_what_tells_them_apart():
    one: Location = ("je_", "/lib/a.so", "5.3.0", 0x1000)
    assert heap_names(places(one)) == ["jemalloc"]
    assert heap_names(places(one, ("_rjem_", "/lib/a.so", "5.3.0", 0x2000))) == [
        "jemalloc je_",
        "jemalloc _rjem_",
    ]
    assert heap_names(places(one, ("je_", "/lib/b.so", "5.3.0", 0x2000))) == [
        "jemalloc a.so",
        "jemalloc b.so",
    ]
    assert heap_names(places(one, ("", "/x/a.so", "5.2.1", 0x2000))) == ["jemalloc 5.3.0", "jemalloc 5.2.1"]
    assert heap_names(places(one, (None, "/x/a.so", "5.3.0", 0x2000))) == [
        "jemalloc 0x1000",
        "jemalloc 0x2000",
    ]

"""Elements and bins of tables that a shape describes."""

import numpy as np
import pytest

from gdbext.analysis.tables.counts import Walked
from gdbext.analysis.tables.search import Looked
from gdbext.analysis.types.find import find_types
from gdbext.analysis.types.shaped import ShapedTable, shaped_tables
from gdbext.debuginfo import NoDebugInfo
from gdbext.heap.model import State
from gdbext.progress import SILENT
from gdbext.report import Problem
from gdbext.structures.walk.model import BinArray, BinsWalk, Node, Table
from tests.support.reachworld import DATA, HEAP, ReachWorld


def u64(*values):
    return np.array(values, np.uint64)


def types_of(world, *tables):
    reach = world.reach()
    found = find_types(reach, NoDebugInfo(), SILENT, tables=tables)
    return {
        int(address): (found.name(row), found.types[found.code[row]].kind, int(found.confidence[row]))
        for row, address in enumerate(reach.address)
    }


def test_elements_and_bins_get_the_shape_s_words():
    world = ReachWorld()
    element, other, bins = world.block(HEAP + 0x100, 40), world.block(HEAP + 0x200, 40), world.block(HEAP + 0x400, 512)
    world.put(DATA, bins)
    table = ShapedTable("unbound-lruhash", None, u64(element), [bins])
    found = types_of(world, table)
    assert found[element] == ("element of unbound-lruhash", "shape", 2)
    assert found[bins] == ("bins of unbound-lruhash", "shape", 2)
    assert found[other][1] != "shape"
    found = types_of(world, ShapedTable("unbound-lruhash", "struct lruhash_entry", u64(element)))
    assert found[element] == ("struct lruhash_entry", "shape", 2)


def test_blocks_of_several_elements_are_arrays_where_they_begin_with_one():
    world = ReachWorld()
    array, pool = world.block(HEAP + 0x100, 400), world.block(HEAP + 0x400, 400)
    freed = world.block(HEAP + 0x800, 40, State.FREE)
    table = ShapedTable("any", "struct e", u64(array + 40, array, pool + 40, pool + 80, freed, 0x10), [0x20])
    found = types_of(world, table)
    assert list(found) == [array, pool]
    assert found[array] == ("struct e[]", "shape", 2) and found[pool][1] != "shape"


@pytest.mark.parametrize("shape, problem, number", [("x", None, 1), ("", None, 0), ("x", Problem("k", None, "m"), 0)])
def test_tables_that_were_looked_at(shape, problem, number):
    node = Node(None, element=0x10, type="struct e")  # its links are not looked at
    arrays = [BinArray(0x5000, 4, 8), BinArray(0x6000, 4, 8, segment=256)]
    table = Table(0x4000, node, arrays, shape=shape)
    walk = BinsWalk(u64(1), np.zeros(1, np.uint8), u64(0x7010), u64(0))
    looked = Looked("cache", None, [Walked(0, table, walk, problem)])
    found = list(shaped_tables(looked))
    assert len(found) == number
    for one in found:
        assert (one.shape, one.element_type, one.elements.tolist(), one.bins) == ("x", "struct e", [0x7000], [0x5000])

"""An example of each leaked type: one that is pointed at, with the pointers that lead there."""

from __future__ import annotations

import numpy as np

from gdbext.analysis.leaks.examples import leak_examples
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.types.model import HIGH, BlockTypes, TypeName
from tests.support.reachworld import DATA, HEAP, ReachWorld
from tests.unit.analysis.reach.names import SaidNames


def test_the_costliest_types_and_how_their_blocks_are_kept():
    world = ReachWorld()
    held, root = world.block(HEAP + 0x1000, 64), world.block(HEAP + 0x2000, 64)
    middle, end, alone = (world.block(HEAP + at, size) for at, size in ((0x3000, 200), (0x4000, 3000), (0x5000, 40)))
    world.put(DATA, held)
    world.put(root, middle)
    world.put(middle, 0, end)
    codes = {root: 1, middle: 1, end: 2, alone: 3}
    reach = world.reach()
    code = np.array([codes.get(address, 0) for address in reach.address.tolist()], np.uint32)
    names = [TypeName(name, "debug info") for name in ("unknown", "Node", "Buffer", "Lost")]
    types = BlockTypes(names, code, np.full(len(code), HIGH, np.uint8))
    found = list(leak_examples(reach, Places(reach, SaidNames(), lambda: types), types))
    assert [(one.type, one.block, len(one.steps)) for one in found] == [
        ("Buffer", end, 2), ("Node", middle, 1), ("Lost", alone, 0)
    ]  # fmt: skip
    assert hex(root)[2:] in found[0].kept_by and "Node" in found[0].steps[0]


def test_nothing_leaked():
    world = ReachWorld()
    world.put(DATA, world.block(HEAP + 0x1000, 64))
    reach = world.reach()
    assert list(leak_examples(reach, Places(reach, SaidNames(), lambda: None), None)) == []

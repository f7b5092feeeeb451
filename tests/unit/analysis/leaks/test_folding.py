"""Leaked blocks in folded form, of graphs laid out by hand."""

from __future__ import annotations

import numpy as np

from gdbext.analysis.leaks.folding import fold_leaks
from gdbext.analysis.types.model import HIGH, BlockTypes, TypeName
from tests.support.reachworld import DATA, HEAP, ReachWorld


def lines_of(world, codes):
    reach = world.reach()
    code = np.array([codes.get(address, 0) for address in reach.address.tolist()], np.uint32)
    names = [TypeName(name, "debug info") for name in ("unknown", "Request", "Body; new", "Shared")]
    types = BlockTypes(names, code, np.full(len(code), HIGH, np.uint8))
    return list(fold_leaks(reach, types)), list(fold_leaks(reach, None))


def test_leak_roots_and_what_they_keep():
    world = ReachWorld()
    roots = [world.block(HEAP + 0x1000 * at, 100) for at in range(1, 4)]
    bodies = [world.block(HEAP + 0x1000 * at + 0x200, 1000) for at in range(1, 4)]
    shared, held = world.block(HEAP + 0x5000, 300), world.block(HEAP + 0x6000, 5000)
    world.put(DATA, held)
    for root, body in zip(roots, bodies):
        world.put(root, body, *([shared] if root != roots[2] else []))
    typed, sized = lines_of(world, {**dict.fromkeys(roots, 1), **dict.fromkeys(bodies, 2), shared: 3})
    assert typed == [
        "leaked;Request;Body, new 3000\n", "leaked;Request 300\n", "leaked;several leak roots;Shared 300\n"
    ]  # fmt: skip
    assert sized[0] == "leaked;100 bytes;1 000 bytes 3000\n"


def test_nothing_leaked():
    world = ReachWorld()
    world.put(DATA, world.block(HEAP + 0x1000, 100))
    assert lines_of(world, {}) == ([], [])

"""Chains of pointers as a graph."""

from __future__ import annotations

from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.path import paths
from gdbext.analysis.pins.pathdot import dot_lines
from tests.support.reachworld import DATA, HEAP, ReachWorld
from tests.unit.analysis.reach.names import SaidNames, variables


def test_a_chain_from_a_root():
    world = ReachWorld()
    at = [world.block(HEAP + 0x1000 * number, 100 * number) for number in (1, 2, 3)]
    world.put(DATA, at[0])
    world.put(at[0], 0, at[1])
    world.put(at[1], at[2] + 8)
    names = SaidNames(variables([('a"b\\c', DATA, 8)]))
    reach = world.reach()
    report = paths(reach, Places(reach, names, lambda: None), at[2])
    assert "".join(dot_lines(report.data)) == (
        'digraph "path" {\n  rankdir=LR; node [shape=box, fontname="sans-serif"];\n'
        '  r0 [label="global a\\"b\\\\c of app", shape=ellipse];\n'
        f'  r0 -> b{at[0]:x} [label=""];\n'
        f'  b{at[0]:x} -> b{at[1]:x} [label="+0x8"];\n'
        f'  b{at[1]:x} -> b{at[2]:x} [label="+0x0 to +0x8", style=dashed];\n'
        f'  b{at[2]:x} [label="{at[2]:#x}, 300 bytes", penwidth=2];\n'
        f'  b{at[0]:x} [label="{at[0]:#x}, 100 bytes"];\n'
        f'  b{at[1]:x} [label="{at[1]:#x}, 200 bytes"];\n'
        "}\n"
    )

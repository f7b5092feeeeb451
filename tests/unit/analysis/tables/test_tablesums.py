"""Sums without nodes say what the walk says, and leave to it what they cannot tell."""

import json
from dataclasses import replace
from unittest.mock import patch

import pytest

from gdbext.analysis.tables import counts
from gdbext.errors import FaultError
from gdbext.progress import SILENT
from gdbext.render import json_pieces
from gdbext.structures.shapes.resolve import Opened
from gdbext.structures.walk import chainwalk
from gdbext.structures.walk.model import BinArray, Group, ProbeTable
from tests.unit.structures.walk.test_bins import BINS, CHAINS, NEXT, UNMAPPED, World, lay_out, node_at


def answer(structure, summed):
    report = counts.walk_report(Opened(structure, (), (), "made by hand"), summed)
    return "".join(json_pieces(report, schema="x/1", target=None, limit=None))


def both(target, structure):
    summed = counts.sum_structure(target, structure, SILENT)
    walked = counts.walk_structure(target, structure, None, SILENT)
    assert answer(structure, summed) == answer(structure, walked)
    return summed


@pytest.mark.parametrize("end", ["null", "head"])
@pytest.mark.parametrize("entries", [8, 11, None])
def test_a_sound_table_is_summed_up_as_it_is_walked(end, entries):
    world = World()
    table = lay_out(world, CHAINS, end, stride=32 if end == "head" else 16)._replace(entries=entries)
    (summed,) = both(world.target(), table)
    assert isinstance(summed, counts.Tallied)


@pytest.mark.parametrize("link", [UNMAPPED, node_at(7)])
def test_a_broken_table_of_a_group_is_walked(link):
    world = World()
    table = lay_out(world, CHAINS)
    sound = table._replace(arrays=[replace(table.arrays[0], count=2)], entries=3)
    broken = table._replace(arrays=[replace(table.arrays[0], address=BINS + 32, count=6)], entries=5)
    lost = table._replace(arrays=[BinArray(UNMAPPED, 8, 16)])
    world.put(node_at(5) + NEXT, link)
    summed = both(world.target(), Group(0x7000, (sound, broken, lost)))
    assert [type(each) for each in summed] == [counts.Tallied, counts.Walked, counts.Walked]
    assert json.loads(answer(table, summed))["problems"]
    with pytest.raises(FaultError):
        counts.sum_structure(world.target(), lost, SILENT)


def test_what_has_no_bins_is_walked():
    world = World()
    probe = ProbeTable(BINS, 0, {}, lambda columns: columns["index"])
    assert isinstance(counts.sum_structure(world.target(), probe, SILENT)[0], counts.Walked)


def test_tables_that_lead_to_the_same_nodes_are_left_out():
    world = World(nodes=1 << 18)
    table = lay_out(world, [list(range(at, 4000, 10)) for at in range(10)])
    group = Group(0x7000, (table,) * 6)
    with patch.object(chainwalk, "_UNWATCHED", 4000):
        summed = both(world.target(), group)
    assert len(summed) < 6 and "most entries were met" in summed[-1].problem.message


def test_samples_that_are_too_small_leave_a_group_to_the_walk():
    world = World()
    table = lay_out(world, CHAINS)
    with patch.object(chainwalk, "_UNWATCHED", 16), patch.object(chainwalk, "SAMPLED", 1):
        summed = both(world.target(), Group(0x7000, (table,) * 6))
    assert all(isinstance(each, counts.Walked) for each in summed)


def test_an_interrupt_ends_a_group():
    class Told:
        def at(self, doing, done, total):
            raise KeyboardInterrupt

    world = World()
    table = lay_out(world, CHAINS)
    summed = counts.sum_structure(world.target(), Group(0x7000, (table, table)), Told())
    assert len(summed) == 1 and summed[0].interrupted and not summed[0].complete
    document = json.loads(answer(Group(0x7000, (table, table)), summed))
    assert not document["complete"] and document["data"]["tables"][0]["end"] == {"interrupted": 8}
    assert [problem["message"] for problem in document["problems"]] == ["stopped after 0 entries"]

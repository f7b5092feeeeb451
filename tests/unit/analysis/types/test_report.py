"""``blocks types``: sums, lists, and what was stopped."""

from __future__ import annotations

import pytest

from gdbext.analysis.types.find import find_types
from gdbext.analysis.types.report import list_type, summarise
from gdbext.errors import UsageError
from gdbext.progress import SILENT
from tests.unit.analysis.types.world import Clues, World


@pytest.fixture
def world():
    world = World()
    table = world.table("6Circle")
    for number in range(3):
        world.block(world.words(table, number))
    world.block(b"a line of text\0")
    for size in (20, 24, 100, 5000):
        world.block(b"\x91" * size)
    return world


def summary(world, by_size=False):
    reach = world.reach()
    return summarise(reach, find_types(reach, Clues(world), SILENT), by_size)


def test_sums_by_type(world):
    data = summary(world).data
    rows = {row.name: row for row in data.types}
    circles = rows["Circle"]
    assert (circles.blocks, circles.bytes, circles.recognised_by, circles.confidence) == (3, 72, "vtable", "high")
    assert circles.sample == world.blocks[0][0]
    assert (rows["unknown"].blocks, rows["unknown"].confidence) == (4, None)
    assert (data.known_bytes, data.contents_bytes) == (72, 24)
    assert data.total_bytes == sum(row.bytes for row in data.types) == sum(size for _, size in world.blocks)
    assert [row.bytes for row in data.types] == sorted((row.bytes for row in data.types), reverse=True)


def test_unknown_blocks_by_size(world):
    rows = {row.name: row.blocks for row in summary(world, True).data.types}
    assert rows == {
        "Circle": 3,
        "C string": 1,
        "unknown, 17 B to 32 B": 2,
        "unknown, 65 B to 128 B": 1,
        "unknown, 4 KiB to 8 KiB": 1,
    }


def test_blocks_of_a_type(world):
    reach = world.reach()
    found = find_types(reach, Clues(world), SILENT)
    rows = list(list_type(reach, found, "Circle").data.blocks)
    assert [row.address for row in rows] == [at for at, _ in world.blocks[:3]]
    assert (rows[0].reach, rows[0].confidence, rows[0].recognised_by) == ("reached", "high", "vtable")
    assert len(list(list_type(reach, found, "ircl").data.blocks)) == 3
    assert len(list(list_type(reach, found, "*").data.blocks)) == len(reach)
    with pytest.raises(UsageError) as error:
        list_type(reach, found, "Cirlce")
    assert "Circle" in str(error.value.hint)
    with pytest.raises(UsageError):
        list_type(reach, found, "Circle[]")


def test_what_is_stopped_is_kept_and_told(world):
    class Stopping:
        def at(self, doing, done, total):
            if doing == "looking at contents":
                raise KeyboardInterrupt

    reach = world.reach()
    found = find_types(reach, Clues(world), Stopping())
    assert found.name(0) == "Circle" and found.name(3) == "unknown"
    assert [problem.kind for problem in found.problems] == ["interrupted"]
    assert not summarise(reach, found).complete


def test_no_blocks_at_all(world):
    world.blocks = [(world.blocks[0][0], 8)]
    reach = world.reach()
    empty = type(reach.marked)(
        type(reach.marked.blocks)(
            type(reach.marked.blocks.index)(reach.address[:0], reach.size[:0]),
            reach.marked.blocks.heap[:0],
        ),
        reach.marked.roots,
        reach.marked.hits,
        [],
        reach.states[:0],
    )
    nothing = type(reach)(reach.target, reach.heaps, empty, reach.rules, SILENT)
    report = summarise(nothing, find_types(nothing, Clues(world), SILENT))
    assert (report.data.total_blocks, report.data.types) == (0, [])

"""The tables that triage looks at by itself: which types, what is passed over, where it stops."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gdbext.analysis.beyond import Beyond
from gdbext.analysis.page import make_page
from gdbext.analysis.tables import search as tablesearch
from gdbext.debuginfo import NoDebugInfo
from gdbext.layout.types import Code, Located, Type
from gdbext.progress import SILENT
from gdbext.report import Confidence, Evidence, Finding, Severity
from tests.support.worlds import World, library

STRUCTS = {
    "item": "struct item *next; u32 hash; u32 pad; ptr key",
    "bin": "struct item *first",
    "table": "u32 size; u32 pad; struct bin *bins",
    "pair": "struct table *both[2]",
}
TABLE = """
name = "table"
kind = "bins"
types = ["struct table"]
[[bins]]
array = "bins"
count = "size"
head = "first"
bin_of = "hash % bins"
[node]
next = "next"
hash = "hash"
key = "key"
"""
PAIR = 'name="pair"\nkind="group"\ntypes=["struct pair"]\n[group]\narray="both"\ncount=2\nindirect=true\nof="table"\n'
LIST = 'name="list"\nkind="list"\ntypes=["struct item"]\n[list]\nfirst="self"\n[node]\nnext="next"\n'
LOOSE = 'name="loose"\nkind="bins"\nneeds=["bins"]\n[[bins]]\narray="bins"\ncount=4\n[node]\nnext="next"\n'
SHAPES = library(TABLE, PAIR, LIST, LOOSE)
SETTINGS = {}
SPOILT = [*[7] * 400, 1, 2, 3, 11]


@pytest.fixture
def world():
    return World(**STRUCTS)


def fill(world, hashes, bins=64):
    """Make a table with an entry for each hash; return its address."""
    heads = [0] * bins
    for number, value in enumerate(hashes):
        heads[value % bins] = world.new("item", next=heads[value % bins], hash=value, key=0x1000 + number)
    return world.new("table", size=bins, bins=world.words(*heads))


def variable(world, text, address, kind="table"):
    return Located(text, world.type(kind), address, None)


def search(world, *variables, settings=SETTINGS, progress=SILENT):
    return tablesearch.search(world.target, world, SHAPES, variables, settings, progress)


def test_a_table_with_one_stored_hash_is_found_and_its_healthy_twin_is_not(world):
    spoilt, fair = fill(world, SPOILT), fill(world, range(400))
    found = search(world, variable(world, "cache", spoilt), variable(world, "other", fair))
    assert [one.kind for one in found.findings] == ["stale-hash"] and found.complete
    assert "cache" in found.findings[0].summary and "other" not in found.findings[0].summary
    assert [each.message for each in found.evidence] == ["2 hash tables examined: cache, other"]
    assert not search(world, variable(world, "other", fair)).findings


def test_a_table_of_a_group_is_told_once(world):
    spoilt, fair = fill(world, SPOILT), fill(world, range(400))
    pair = world.space(16)
    world.put(pair, spoilt)
    world.put(pair + 8, fair)
    found = search(world, variable(world, "pair", pair, "pair"), variable(world, "first", spoilt))
    assert len(found.findings) == 1 and "pair" in found.findings[0].summary
    assert found.evidence[0].message == "1 hash table examined: pair"


def test_a_local_that_leads_to_a_table_of_a_group_comes_after_the_group(world):
    spoilt = fill(world, SPOILT)
    pair = world.words(spoilt, fill(world, range(400)))
    found = search(world, variable(world, "table", spoilt), variable(world, "pair", pair, "pair"))
    assert len(found.findings) == 1 and "pair" in found.findings[0].summary
    assert found.evidence[0].message == "1 hash table examined: pair"


def test_what_is_no_table_now_is_passed_over(world):
    wild = Located("wild", world.pointer(world.type("table")), None, 0x10)
    spoilt = fill(world, SPOILT)
    found = search(world, wild, variable(world, "cache", spoilt))
    assert len(found.findings) == 1
    assert found.evidence[1].message == "1 variable passed over that cannot be a table now"


def test_after_so_many_entries_the_rest_is_named(world):
    tables = [fill(world, range(400)) for _ in range(3)]
    variables = [variable(world, name, table) for name, table in zip(("cache", "late", "later"), tables)]
    found = search(world, *variables, settings={"table-search-entries": 500})
    (one,) = found.unexamined
    assert str(one) == "hash tables (stopped after 500 entries at later)" and not found.complete
    assert one.next == "slabskew later, or set gx table-search-entries N"
    assert found == search(world, *variables, settings={"table-search-entries": 500})
    assert search(world, *variables, settings={"table-search-entries": 5000}).complete


def test_behind_a_wire_less_is_walked(world):
    far = replace(world.target, live=True)
    assert tablesearch.allowed(6400, far) == 100
    assert tablesearch.allowed(6400, replace(far, local_pid=7)) == tablesearch.allowed(6400, world.target) == 6400


@pytest.mark.parametrize("entries", [0, 1, 64, 100])
def test_with_the_least_of_entries_nothing_is_called_sound(world, entries):
    found = search(world, variable(world, "cache", fill(world, SPOILT)), settings={"table-search-entries": entries})
    assert found.findings or not found.complete


def test_the_user_stops_it(world):
    class Stopped:
        def at(self, doing, done, total):
            raise KeyboardInterrupt

    spoilt = fill(world, SPOILT)
    assert not search(world, variable(world, "cache", spoilt), progress=Stopped()).complete


def test_only_shapes_that_name_their_types_are_searched_for(world):
    shapes = tablesearch.table_shapes(SHAPES)
    assert set(shapes.shapes) == {"table", "pair"}
    matches = tablesearch.matcher(shapes)
    assert [matches(world.type(name)) for name in STRUCTS] == [False, False, True, True]
    assert tablesearch.may_have_tables(world, shapes)
    assert not tablesearch.may_have_tables(World(item="u32 a"), shapes)
    assert not tablesearch.may_have_tables(NoDebugInfo(), shapes)


@pytest.mark.parametrize(
    "pattern, known, asked",
    [("std::unordered_map<*", {"std"}, True), ("std::unordered_map<*", {"int"}, False), ("kh_*_t", set(), True)],
)
def test_of_a_pattern_its_namespace_is_asked_for(pattern, known, asked):
    shapes = library(TABLE.replace('"struct table"', f'"{pattern}"'))
    types = SimpleNamespace(find_type=lambda name: Type(name, Code.OTHER, 0) if name in known else None)
    assert tablesearch.may_have_tables(types, shapes) is asked


def test_triage_tells_what_was_found_beyond_the_heaps(maker):
    finding = Finding("stale-hash", Severity.CRITICAL, Confidence.MEDIUM, "the cache is stale")
    beyond = Beyond([finding], [Evidence("tables", "1 hash table examined: cache")])
    report = make_page(maker.target(), [], {}, beyond=beyond)
    assert report.findings and report.data.findings == [finding] and report.complete
    assert report.evidence[-1].subject == "tables"
    assert not make_page(maker.target(), [], {}, beyond=replace(beyond, unexamined=[tablesearch.INTERRUPTED])).complete

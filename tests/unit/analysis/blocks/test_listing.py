"""``blocks list``: its columns, its order, its totals, and what it says where roots are missing."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gdbext.analysis.blocks import listing
from gdbext.analysis.blocks.listing import Filters, Manner
from gdbext.analysis.blocks.query import parse
from gdbext.analysis.blocks.querycolumns import Needs
from gdbext.analysis.reach.model import Missing
from gdbext.errors import UsageError
from gdbext.heap.model import State
from gdbext.render import json_pieces, text
from gdbext.report import Problem, ThreadRef
from tests.unit.analysis.heaps import NO_ARENA, heap_of, live_of

ROWS = [
    (0x1000, 64, State.IN_USE, 0),
    (0x2000, 16, State.TCACHE, 0),
    (0x3000, 256, State.IN_USE, 2),
    (0x4000, 4096, State.MMAPPED, NO_ARENA),
    (0x5000, 48, State.IN_USE, 3),
]


def scene(**extra):
    """Four live blocks: reached, leaked, possibly leaked, leaked; the first points at all others."""
    heaps = [heap_of(ROWS)]
    edges = [(0, 1), (0, 2), (0, 3), (1, 3)]
    return heaps, live_of(heaps, [2, 0, 1, 0], edges, [0], [1, 2, 3, 0], [3, 2, 1, 0], **extra)


def answer(report):
    return json.loads("".join(json_pieces(report, schema="x", target=None, limit=None)))["data"]


def rows(report):
    return answer(report)["blocks"]


def test_the_usual_columns_are_as_ever():
    heaps, _ = scene()
    report = listing.listing(heaps)
    assert list(rows(report)[0]) == ["address", "size", "state", "arena", "allocator"]
    first = "".join(text(report, exact=False, limit=1)).splitlines()[4:6]
    assert first == [
        "address  size  state    arena  allocator",
        " 0x1000    64  in use  0xa000  glibc",
    ]


def test_what_is_known_of_live_blocks_is_shown_and_of_others_it_is_not_known():
    heaps, live = scene()
    found = rows(listing.listing(heaps, live=live))
    names = ("address", "reach", "refs", "type", "confidence", "arena")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("0x1000", "reached", 1, "Session", "high", "0xa000"),
        ("0x2000", None, None, None, None, "0xa000"),
        ("0x3000", "leaked", 1, "struct item", "medium", "0xa200"),
        ("0x4000", "possibly leaked", 1, "C string", "low", None),
        ("0x5000", "leaked", 2, "unknown", None, "0xa300"),
    ]
    shown = "".join(text(listing.listing(heaps, live=live), exact=False, limit=None)).splitlines()
    assert shown[4].split() == ["address", "size", "state", "reach", "refs", "type", "confidence"]
    assert shown[6].split() == ["0x2000", "16", "tcache", "?", "?", "?", "?"]


def test_columns_of_choice():
    heaps, live = scene()
    manner = Manner(columns=listing.read_columns("thread, size,thread,type"))
    report = listing.listing(heaps, Filters(where=parse("arena in (0, 1, 3) and state == used")), manner, live)
    assert rows(report)[0] == {
        "thread": [{"number": 1, "lwp": 10, "name": "main"}, {"number": 2, "lwp": 11, "name": "worker-1"}],
        "size": 64,
        "type": "Session",
    }
    assert [row.thread for row in report.data.blocks][1] is None
    assert ThreadRef(1, 10, "main") in next(iter(report.data.blocks)).thread


def test_every_column_in_text_fits():
    heaps, live = scene()
    manner = Manner(columns=list(listing.COLUMNS))
    lines = "".join(text(listing.listing(heaps, Filters(), manner, live), exact=False, limit=None)).splitlines()
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    "order, expected",
    [
        ("size", [0x2000, 0x5000, 0x1000, 0x3000, 0x4000]),
        ("-size", [0x4000, 0x3000, 0x1000, 0x5000, 0x2000]),
        ("-refs,size", [0x5000, 0x1000, 0x3000, 0x4000, 0x2000]),
        ("refs , - size", [0x4000, 0x3000, 0x1000, 0x5000, 0x2000]),
        ("reach,-address", [0x5000, 0x3000, 0x4000, 0x1000, 0x2000]),
        ("type", [0x4000, 0x1000, 0x3000, 0x5000, 0x2000]),
        ("-confidence", [0x1000, 0x3000, 0x4000, 0x5000, 0x2000]),
        ("thread,-size", [0x1000, 0x2000, 0x3000, 0x4000, 0x5000]),
        ("arena,address", [0x1000, 0x2000, 0x3000, 0x5000, 0x4000]),
        ("allocator,state", [0x1000, 0x3000, 0x5000, 0x4000, 0x2000]),
    ],
)
def test_orders(order, expected):
    heaps, live = scene()
    report = listing.listing(heaps, Filters(), Manner(sort=listing.read_sort(order)), live)
    assert [row.address for row in report.data.blocks] == expected


def test_several_heaps_are_sorted_together():
    heaps = [heap_of(ROWS[:2]), heap_of([(0x9000, 32, State.IN_USE, 0)], "jemalloc")]
    report = listing.listing(heaps, Filters(), Manner(sort=[("size", True)]))
    assert [(row.size, row.allocator) for row in report.data.blocks] == [
        (64, "glibc"),
        (32, "jemalloc"),
        (16, "glibc"),
    ]


def test_many_rows_in_an_order_come_piece_by_piece():
    heap = heap_of([(0x1000 + 0x40 * at, 16 + at % 7, State.IN_USE, 0) for at in range(9000)])
    report = listing.listing([heap], Filters(), Manner(sort=[("size", False), ("address", True)]))
    found = [(row.size, -row.address) for row in report.data.blocks]
    assert len(found) == report.data.blocks.total == 9000 and found == sorted(found)


def test_counts_alone():
    heaps, live = scene()
    report = listing.listing(heaps, Filters(where=parse("state == leaked")), Manner(count=True), live)
    assert answer(report) == {"matching_blocks": 2, "matching_bytes": 304}


def test_what_is_needed():
    usual, leaked = Filters(), Filters(where=parse("state == leaked"))
    assert listing.needs_of(usual, Manner()) == Needs()
    assert listing.needs_of(leaked, Manner()) == Needs(reach=True)
    assert listing.needs_of(usual, Manner(sort=[("refs", True)])) == Needs(reach=True, refs=True)
    assert listing.needs_of(leaked, Manner(columns=["type"])) == Needs(reach=True, types=True)
    assert listing.needs_of(usual, Manner(columns=["type"], count=True)) == Needs()


def test_references_from_the_block_itself_do_not_count():
    heaps, live = scene()
    assert live.refs.tolist() == [1, 1, 1, 2]  # row 0 by a register alone
    assert live.refs.dtype == np.uint32


def test_blocks_that_look_leaked_where_roots_are_missing_are_labelled():
    heaps, live = scene(missing=[Missing("stack of thread 3", 4096)])
    report = listing.listing(heaps, Filters(where=parse("state == leaked")), Manner(), live)
    assert not report.complete
    assert list(report.notes) == [
        "stack of thread 3 could not be examined, so blocks may look leaked that are not: see `blocks leaks`"
    ]
    sound = listing.listing(*scene()[:1], Filters(), Manner(), scene()[1])
    assert sound.complete and not sound.notes


@pytest.mark.parametrize("count", [False, True])
def test_a_query_by_type_is_incomplete_where_types_were_not_examined(count):
    heaps, live = scene()
    lost = Problem("types-without-debug-info", None, "no debugger: types by name were not examined")
    partly = replace(live, types=replace(live.types, problems=[lost]))

    def complete(query, live):
        report = listing.listing(heaps, Filters(where=parse(query)), Manner(count=count), live)
        assert (lost in report.problems) is (live is partly)
        return report.complete

    assert not complete("type == 'struct none'", partly) and not complete("size > 0 and confidence == high", partly)
    assert complete("type == 'struct none'", live) and complete("state == leaked", partly)


@pytest.mark.parametrize(
    "read, given, message",
    [
        (listing.read_sort, "sise", "--sort: no field 'sise'; did you mean size? the fields are size, address, state"),
        (listing.read_sort, "", "--sort: no field ''; the fields are size, address"),
        (listing.read_sort, "size,,state", "--sort: no field ''; the fields are size, address"),
        (listing.read_columns, "addres", "--columns: no field 'addres'; did you mean address? the fields are address"),
        (listing.read_query, "size >", "--where: at character 7: expected a number after >, but it ends there"),
        (listing.read_query, "sise > 1", "--where: at character 1: no field 'sise'; did you mean size? the fields are"),
    ],
)
def test_what_cannot_be_understood(read, given, message):
    with pytest.raises(UsageError) as raised:
        read(given)
    assert str(raised.value).startswith(message)

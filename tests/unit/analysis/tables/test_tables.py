"""Sums over walks, and what is told of their ends."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gdbext.analysis.tables import counts
from gdbext.errors import FaultError
from gdbext.progress import SILENT
from gdbext.render import json_pieces, text
from gdbext.report import Problem
from gdbext.structures.walk.model import ChainEnd, End, Group, ProbeTable, TreeRoot
from gdbext.structures.walk.trees import TreeWalk
from tests.unit.analysis.tables.walks import bins_walk, head, list_walk, opened, table, walked


def shown(report):
    return "".join(text(report, exact=False, limit=None))


def data_of(report):
    document = json.loads("".join(json_pieces(report, schema="x/1", target=None, limit=None)))
    return document["data"]


def messages(report):
    return [(problem.kind, problem.address, problem.message) for problem in report.problems]


def test_a_table():
    each = table(4, entries=3)
    report = counts.walk_report(opened(each), walked((each, bins_walk([[], [0x10, 0x20], [0x30], []]))))
    data = data_of(report)
    assert data["tables"] == [
        {
            "index": 0,
            "address": "0x9000",
            "bins": 4,
            "entries": 3,
            "walked": 3,
            "nonempty": 2,
            "max_len": 2,
            "max_bin": 1,
            "end": {"null": 4},
        }
    ]
    del data["tables"]
    assert data == {
        "shape": "made by hand",
        "total": 3,
        "bins": 4,
        "nonempty": 2,
        "max_len": 2,
        "max_table": 0,
        "max_bin": 1,
    }
    assert report.complete and not report.findings and not report.problems
    assert "in all: 3 entries in 4 bins; the longest chain has 2, in bin 1" in shown(report)


def test_a_group():
    first, second = table(2, entries=1), table(2, entries=2, address=0xA000)
    walks = bins_walk([[0x10], []]), bins_walk([[], [0x20, 0x30]])
    report = counts.walk_report(opened(first, second), walked((first, walks[0]), (second, walks[1])))
    assert [row.index for row in report.data.tables] == [0, 1]
    assert (report.data.total, report.data.max_table, report.data.max_bin) == (3, 1, 1)
    assert "3 entries in 4 bins of 2 tables; the longest chain has 2, in table 1, bin 1" in shown(report)


def test_a_list():
    each = head(entries=2)
    report = counts.walk_report(opened(each), walked((each, list_walk([0x10, 0x20]))))
    row = data_of(report)["tables"][0]
    assert (row["bins"], row["nonempty"], row["max_bin"]) == (None, None, None)
    assert (row["walked"], row["max_len"], row["end"]) == (2, 2, {"null": 1})
    told = shown(report)
    assert "in all: 2 entries in 1 list" in told and "bins" not in told and "?" not in told


def test_a_tree():
    root = TreeRoot(0x8000, 0x10, 8, 16, entries=1)
    found = TreeWalk(np.array([0x10], np.uint64), ChainEnd(End.NULL, 1))
    report = counts.walk_report(opened(root), walked((root, found)))
    assert "in all: 1 entry in 1 tree" in shown(report) and not report.problems


def test_a_table_that_could_not_be_walked_is_not_checked():
    probes = ProbeTable(0x9000, 1 << 40, {}, lambda columns: columns["index"])
    group = Group(1, [probes])
    found = counts.walk_structure(None, group, None, SILENT)
    assert "is more than can be" in found[0].problem.message
    assert counts.check_structure(None, found) == []


def test_empty_ones():
    each = table(3, entries=0)
    report = counts.walk_report(opened(each), walked((each, bins_walk([[], [], []]))))
    assert (report.data.max_len, report.data.max_bin) == (0, None)
    assert "in all: 0 entries in 3 bins\n" in shown(report)
    one = head()
    assert "1 entry in 1 list" in shown(counts.walk_report(opened(one), walked((one, list_walk([7])))))
    none = opened(each)._replace(structure=Group(1, ()))
    report = counts.walk_report(none, [])
    assert report.complete and "no tables" in shown(report) and report.data.max_table is None


def test_long_numbers_are_grouped_and_fit():
    each = table(1)
    walk = bins_walk([[]])
    wide = replace(
        walk,
        lengths=np.full(4_194_304, 1, np.uint64),
        reasons=np.zeros(4_194_304, np.uint8),
        nodes=np.arange(4_194_304, dtype=np.uint64),
    )
    told = shown(counts.walk_report(opened(each, each), walked((each, wide), (each, wide))))
    assert "8 388 608 entries in 8 388 608 bins of 2 tables" in " ".join(told.split())
    assert max(map(len, told.splitlines())) <= 100


# ---- ends ----


@pytest.mark.parametrize(
    "end, kind, message",
    [
        (ChainEnd(End.BAD_POINTER, 17, 0xDEAD0), "pointer", "breaks off: link 17 holds 0xdead0, which is not mapped"),
        (ChainEnd(End.CYCLE, 32, 0x10, 5), "cycle", "runs into a cycle of 5 nodes at 0x10 after 32 nodes"),
        (ChainEnd(End.DECODE_ERROR, 2, 0x3), "misaligned", "breaks off: link 2 holds 0x3, which is not aligned"),
        (ChainEnd(End.FORBIDDEN, 1, 0xFFFF), "marker", "breaks off: link 1 holds 0xffff, which marks a node"),
        (ChainEnd(End.ABSENT, 1, 0x10), None, "goes on at 0x10 (link 1), which the core does not hold"),
    ],
)
def test_an_end_that_is_not_sound(end, kind, message):
    nodes = list(range(16, 16 + 8 * end.link, 8))
    each = head()
    report = counts.walk_report(opened(each), walked((each, list_walk(nodes, end.reason, end.address, end.cycle))))
    [problem] = report.problems
    assert problem.kind == (f"list-{kind}" if kind else "absent-memory")
    assert (problem.address, problem.corruption) == (end.address, kind is not None)
    assert problem.message.startswith(f"the list at 0x8000 {message}")
    assert report.data.tables[0].end == {end.reason.word: 1}
    assert report.complete is (end.reason is not End.ABSENT)
    rows = table(2)
    report = counts.walk_report(opened(rows), walked((rows, bins_walk([nodes, []], {0: end}))))
    [problem] = report.problems
    assert problem.kind == (f"chain-{kind}" if kind else "absent-memory")
    assert problem.message.startswith(f"the chain of bin 0 {message}")
    assert report.data.tables[0].end == {"null": 1, end.reason.word: 1}
    two = walked((rows, bins_walk([[], []])), (rows, bins_walk([nodes, []], {0: end})))
    report = counts.walk_report(opened(rows, rows), two)
    assert report.problems[0].message.startswith(f"table 1: the chain of bin 0 {message}")


def test_an_interrupt_is_told():
    each = head()
    report = counts.walk_report(opened(each), walked((each, list_walk([16, 24, 32, 40], End.INTERRUPTED, 48))))
    assert messages(report) == [("interrupted", None, "stopped after 4 entries")] and not report.complete


def test_ends_beyond_those_that_are_told_each():
    rows = table(3)
    walk = bins_walk([[16], [24], []], {0: ChainEnd(End.CYCLE, 1, 16, 1)})
    walk.reasons[1] = End.BAD_POINTER
    report = counts.walk_report(opened(rows), walked((rows, walk)))
    assert messages(report)[1] == ("chain-pointer", None, "1 more chain ends so: bad-pointer")


@pytest.mark.parametrize("reason", [End.NULL, End.HEAD, End.SENTINEL, End.COUNT])
def test_sound_ends_are_no_problem(reason):
    each = head()
    report = counts.walk_report(opened(each), walked((each, list_walk([16], reason, 0x8000))))
    assert not report.problems and report.complete


def test_a_limit_is_a_note_and_excuses_the_count():
    each = head(entries=100)
    report = counts.walk_report(opened(each), walked((each, list_walk([16, 24], End.LIMIT, 32))))
    assert not report.problems and report.complete
    assert "1 chain was not followed beyond --max; figures are lower bounds" in shown(report)
    rows = table(3, entries=100)
    ends = {at: ChainEnd(End.LIMIT, 1, 32) for at in (0, 2)}
    report = counts.walk_report(opened(rows), walked((rows, bins_walk([[16], [], [24]], ends))))
    assert not report.problems
    assert "2 chains were not followed" in shown(report)


def test_a_count_that_does_not_agree():
    rows = table(2, entries=5)
    report = counts.walk_report(opened(rows), walked((rows, bins_walk([[16], []]))))
    assert messages(report) == [("table-count", 0x9000, "the table counts 5 entries, 1 was walked")]
    each = head(entries=1)
    report = counts.walk_report(opened(each, each), walked((each, list_walk([16, 24])), (each, list_walk([16]))))
    assert messages(report) == [("list-count", 0x8000, "table 0: the list counts 1 entry, 2 were walked")]
    cut = bins_walk([[16], []], complete=False)
    assert not counts.walk_report(opened(rows), walked((rows, cut))).problems


def test_tables_that_could_not_be_opened_make_it_incomplete():
    lost = Problem("table", 0x666, "table 1 is left out: its array is null")
    good, empty = table(2), table(2, address=0x666)._replace(arrays=())
    how = opened(good, empty, problems=[lost])
    report = counts.walk_report(how, walked((good, bins_walk([[], []])), (empty, bins_walk([]))))
    assert report.problems == [lost] and not report.complete


def test_a_group_that_was_not_walked_to_its_end():
    good = table(2)
    report = counts.walk_report(opened(good, good), walked((good, bins_walk([[], []]))))
    assert not report.complete


def test_a_check():
    each = table(2, entries=1)
    walks = walked((each, bins_walk([[16], []])))
    sound = counts.walk_report(opened(each), walks, [])
    assert not sound.findings and "The check found nothing wrong." in shown(sound)
    assert "The check" not in shown(counts.walk_report(opened(each), walks))
    wrong = Problem("misplaced-entry", 16, "it belongs to bin 1")
    report = counts.walk_report(opened(each), walks, [wrong])
    assert report.findings and report.problems == [wrong]


def test_a_check_does_not_repeat_what_the_walk_told():
    each = table(2, entries=5)
    repeated = Problem("table-count", 0x9000, "the table counts 5 entries, its bins hold 1")
    report = counts.walk_report(opened(each), walked((each, bins_walk([[16], []]))), [repeated])
    assert len(report.problems) == 1 and report.findings


# ---- counting one list ----


def test_a_count():
    each = head()
    end = list_walk([16, 24, 32], End.CYCLE, 24, 2)
    report = counts.count_report(opened(each), walked((each, end))[0])
    assert data_of(report) == {"count": 3, "end": "cycle", "address": "0x18", "cycle": 2}
    assert "entries: 3\nend:     cycle\n" in shown(report)
    assert report.problems[0].kind == "list-cycle"
    plain = counts.count_report(opened(each), walked((each, list_walk([])))[0])
    assert data_of(plain) == {"count": 0, "end": "null", "address": None, "cycle": None}


# ---- which walker walks what ----


def test_every_kind_has_its_walker(monkeypatch):
    calls = []

    def walker(name, result):
        def walk(target, each, *rest):
            calls.append((name, rest))
            return result

        return walk

    for name in ("list", "tree"):
        monkeypatch.setattr(counts, f"walk_{name}", walker(name, list_walk([16])))
    for name in ("bins", "probes"):
        monkeypatch.setattr(counts, f"walk_{name}", walker(name, bins_walk([[16]])))
    probe = ProbeTable(1, 1, {}, lambda columns: columns["index"])
    group = Group(1, [head(), table(1), probe, TreeRoot(1, 2, 0, 8)])
    found = counts.walk_structure(None, group, 7, "progress")
    assert calls == [("list", (7, "progress")), ("bins", (7, "progress")), ("probes", ("progress",)),
                     ("tree", (7, "progress"))]  # fmt: skip
    assert [each.index for each in found] == [0, 1, 2, 3]
    assert [each.element_type for each in found] == ["struct entry", "struct entry", None, None]


def test_an_interrupt_ends_a_group(monkeypatch):
    monkeypatch.setattr(counts, "walk_list", lambda *_: list_walk([16], End.INTERRUPTED))
    found = counts.walk_structure(None, Group(1, [head(), head()]), None, None)
    assert len(found) == 1 and found[0].interrupted and not found[0].complete
    cut = replace(bins_walk([[16]], {0: ChainEnd(End.INTERRUPTED, 1)}), complete=False)
    monkeypatch.setattr(counts, "walk_bins", lambda *_: cut)
    assert len(counts.walk_structure(None, Group(1, [table(1), table(1)]), None, None)) == 1


def test_one_table_of_a_group_that_cannot_be_read(monkeypatch):
    def walk(target, each, most, progress):
        if each.address == 0x666:
            raise FaultError(0x766, 16, "its 2 bins")
        return bins_walk([[16], []])

    monkeypatch.setattr(counts, "walk_bins", walk)
    group = opened(table(2, entries=1), table(2, entries=9, address=0x666), table(2))
    found = counts.walk_structure(None, group.structure, None, None)
    report = counts.walk_report(group, found)
    assert [row.walked for row in report.data.tables] == [1, 0, 1]
    assert messages(report) == [("table", 0x666, "table 1 is left out: cannot read 16 bytes of its 2 bins at 0x766")]
    assert not report.complete
    with pytest.raises(FaultError):
        counts.walk_structure(None, table(2, address=0x666), None, None)


def test_elements_are_where_their_nodes_say():
    for offset in (8, 0, -16):
        each = walked((head(element=offset), list_walk([0x100, 0x200])))[0]
        assert each.elements.tolist() == [0x100 - offset, 0x200 - offset]
    tree = TreeRoot(1, 2, 0, 8, element=-32, element_type="int")
    each = walked((tree, list_walk([0x100])))[0]
    assert (each.elements.tolist(), each.element_type) == ([0x120], "int")

"""What ``slabskew`` and ``triage`` tell of tables in memory: rows, sentences, findings, keys of every kind."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from gdbext.abi import X86_64
from gdbext.analysis.tables import skew
from gdbext.analysis.tables.counts import Walked
from gdbext.analysis.tables.keys import Entries
from gdbext.analysis.tables.verdicts import Verdict
from gdbext.errors import UsageError
from gdbext.memory.fake import FakeMemory
from gdbext.progress import SILENT
from gdbext.render import json_pieces, text
from gdbext.report import Confidence, Problem, Severity
from gdbext.structures.shapes.resolve import Opened
from gdbext.structures.walk.model import (
    BinArray,
    BinsWalk,
    Group,
    Key,
    Links,
    ListHead,
    Node,
    ProbeTable,
    Scalar,
    SlotField,
    Table,
    TreeRoot,
)
from gdbext.structures.walk.probes import walk_probes
from gdbext.target import Target

BASE, STEP = 0x10000, 32  # where entries are: next, hash (4 bytes), padding, key, inline key
STRINGS = 0x8000000


class Program:
    """A process with tables of entries; each entry is a hash and a key."""

    def __init__(self):
        self.entries = []
        self.strings = b""

    def add(self, hash, key=0, inline=b""):
        self.entries.append(struct.pack("<QIIQ8s", 0, hash & 0xFFFFFFFF, 0, key, inline))
        return BASE + STEP * (len(self.entries) - 1)

    def text(self, content):
        at = STRINGS + len(self.strings)
        self.strings += content + b"\0"
        return at

    def target(self):
        strings = self.strings.ljust(4096, b"\0")
        return Target(FakeMemory([(BASE, b"".join(self.entries) or b"\0"), (STRINGS, strings)]), X86_64)

    def table(self, bins, hashes, keys=None, key=Key(Scalar(16, 8)), address=0x900):  # noqa: B008
        """Lay out entries; return the table and its walk."""
        hashes = [int(each) for each in hashes]
        keys = range(1, len(hashes) + 1) if keys is None else keys
        nodes = np.array([self.add(hash, key) for hash, key in zip(hashes, keys)], np.uint64)
        owners = np.array(hashes, np.uint64) & np.uint64(bins - 1)
        order = np.argsort(owners, kind="stable")
        lengths = np.bincount(owners.astype(np.int64), minlength=bins).astype(np.uint64)
        walk = BinsWalk(lengths, np.zeros(bins, np.uint8), nodes[order], owners[order])
        array = BinArray(0x1000, bins, 16, bin_of=lambda stored: stored & np.uint64(bins - 1))
        return Table(address, Node(Links(0), Scalar(8, 4), key), [array], entries=len(hashes)), walk


def opened(structure, problems=()):
    return Opened(structure, (), tuple(problems), "made by hand")


def examined(program, *pairs, slab_of=None, problems=()):
    walked = [Walked(index, table, walk) for index, (table, walk) in enumerate(pairs)]
    tables = [table for table, _ in pairs]
    structure = tables[0] if len(tables) == 1 and not problems else Group(0x700, tables, slab_of, "", tuple(problems))
    return opened(structure, problems), walked, skew.examine(program.target(), structure, walked, {})


def report_of(program, *pairs, **how):
    how, _, found = examined(program, *pairs, **how)
    return skew.skew_report(how, found)


def findings_of(program, *pairs, **how):
    structure, walked, _ = examined(program, *pairs, **how)
    return skew.find_table_findings(program.target(), structure.structure, walked, "cache", {})


def shown(report):
    return "".join(text(report, exact=False, limit=None))


def data_of(report):
    return json.loads("".join(json_pieces(report, schema="x/1", target=None, limit=None)))["data"]


def random(count, seed=1):
    return np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint64)


def stale(program, count=400, **how):
    return program.table(1024, [*random(600), *[0x15A5A] * count], **how)


def words(report):
    return " ".join(shown(report).split())


# ---- the report ----


def test_a_healthy_table():
    program = Program()
    report = report_of(program, program.table(1024, random(700)))
    assert report.data.verdict is Verdict.OK and not report.findings and report.complete
    told = shown(report)
    assert "verdict: ok" in told and "Why:" not in told
    assert max(map(len, told.splitlines())) <= 100
    data = data_of(report)
    [row] = data["tables"]
    assert (row["walked"], row["entries"], row["distinct_hashes"], row["misplaced"]) == (700, 700, 700, 0)
    assert row["load"] == round(700 / 1024, 3) and row["share"] == 1.0
    assert row["histogram"] == data["histogram"] and sum(bins for _, bins in row["histogram"]) == 1024
    assert sum(length * bins for length, bins in row["histogram"]) == data["total"] == 700
    assert row["empty_share"] == row["histogram"][0][1] / 1024
    assert len(row["worst_bins"]) == 5 and row["worst_bins"][0]["len"] == data["max_len"] == row["max_len"]
    assert data["explanations"] == [] and data["misplaced"] == 0


def test_a_stale_hash():
    program = Program()
    report = report_of(program, stale(program))
    assert report.data.verdict is Verdict.STALE_HASH and report.findings
    told = words(report)
    assert (
        "400 of the 1 000 entries of the table are in bin 602, all with the one stored hash 0x15a5a and 400 different "
        "keys (distinguished by their addresses), while in the rest the longest bin has" in told
    )
    assert "Compute the hash of one of these keys" in told
    assert "257-512 1 0.1 % 400 40 %" in told
    [row, *_] = data_of(report)["worst_bins"]
    assert row == {"table": 0, "bin": 602, "len": 400, "distinct_hashes": 1, "distinct_keys": 400, "hash": "0x15a5a",
                   "hash_entries": 400, "hash_keys": 400}  # fmt: skip


def test_a_flood_of_one_key():
    program = Program()
    report = report_of(program, stale(program, keys=[*range(1, 601), *[7777] * 400]))
    assert report.data.verdict is Verdict.EQUAL_HASH_FLOOD
    assert "all with the one stored hash 0x15a5a and one key (distinguished" in words(report)
    assert "look at the look-up before the insert" in words(report)


def test_a_flood_of_unknown_keys():
    program = Program()
    report = report_of(program, stale(program, key=None))
    assert report.data.verdict is Verdict.EQUAL_HASH_FLOOD
    assert "0x15a5a (their keys are not known), while" in words(report)
    assert "Name where the key stands with --key" in words(report)


def test_weak_hashes():
    program = Program()
    report = report_of(program, program.table(4096, [value * 0x1234567 for value in range(6)] * 300))
    assert report.data.verdict is Verdict.WEAK_HASH
    assert "6 stored hashes in the table are shared by 1 800 of its 1 800 entries" in words(report)
    program = Program()
    low = random(3000) << np.uint64(10) & np.uint64(0xFFFFFFFF)
    report = report_of(program, program.table(4096, low))
    assert report.data.verdict is Verdict.WEAK_HASH
    assert "3 000 of the 3 000 entries in the table lie in 4 bins of 4 096" in words(report)


def test_a_hot_bin():
    program = Program()
    chosen = np.arange(300, dtype=np.uint64) << np.uint64(10) | np.uint64(5)
    report = report_of(program, program.table(1024, [*random(700), *chosen]))
    assert report.data.verdict is Verdict.HOT_BIN
    assert "entries of the table are in bin 5, with 30" in words(report)
    assert "different stored hashes, where a fair hash gives no bin more than" in words(report)


def test_misplaced_entries():
    program = Program()
    table, walk = program.table(1024, random(700))
    moved = replace(walk, owners=walk.owners ^ np.uint64(1))
    moved = replace(moved, lengths=np.bincount(moved.owners.astype(np.int64), minlength=1024).astype(np.uint64))
    report = report_of(program, (table, moved))
    assert report.data.verdict is Verdict.MISPLACED and report.data.misplaced == 700
    told = words(report)
    assert "nearly all, so it is rather the shape that does not fit" in told and "Check the shape first" in told
    few = replace(walk, owners=np.where(np.arange(700) < 5, walk.owners ^ np.uint64(1), walk.owners))
    told = words(report_of(program, (table, few)))
    assert "The stored hash of 5 of the 700 entries in the table belongs to another bin: a look-up does not" in told


def test_a_table_that_is_too_small():
    program = Program()
    report = report_of(program, program.table(16, random(1600)))
    assert report.data.verdict is Verdict.TABLE_TOO_SMALL and report.findings
    assert "The table has 100.0 entries for each of its 16 bins, evenly spread" in words(report)


def test_a_rehash_is_explained_and_is_no_finding():
    program = Program()
    table, walk = program.table(1024, random(700))
    report = report_of(program, (table._replace(rehashing=True), walk))
    assert report.data.verdict is Verdict.MID_REHASH and not report.findings
    assert "The table was stopped in the middle of a rehash" in words(report)


def group_of(program, sizes):
    return [
        program.table(4096, random(size, seed), address=0x900 + seed * 0x100) for seed, size in enumerate(sizes)
    ]


def test_a_skewed_group():
    program = Program()
    report = report_of(program, *group_of(program, [3000, 500, 500, 500]))
    assert report.data.verdict is Verdict.SLAB_SKEW
    assert "Table 0 holds 3 000 of the 4 500 entries in 4 tables (67 %, where 25 % would be fair)" in words(report)
    shares = [row["share"] for row in data_of(report)["tables"]]
    assert shares == [3000 / 4500, *[500 / 4500] * 3]


def test_entries_of_another_table_are_told():
    program = Program()
    pairs = group_of(program, [400, 400])
    report = report_of(program, *pairs, slab_of=lambda hashes: hashes >> np.uint64(31))
    assert report.data.verdict is Verdict.MISPLACED
    assert "of them to another table of the group" in words(report)


def test_many_tables_with_the_same_fault():
    program = Program()
    pairs = [program.table(1024, [9] * 50, address=0x900 + at) for at in range(7)]
    report = report_of(program, *pairs)
    assert len(report.data.explanations) == 4 + 1 + 1
    assert report.data.explanations[4] == "weak-hash in 3 more tables."


def test_a_table_that_was_lost_is_not_called_sound():
    program = Program()
    sound = program.table(1024, random(300))
    lost = sound[0]._replace(address=0x666, arrays=()), BinsWalk(*(np.empty(0, np.uint64) for _ in range(4)))
    lost = (lost[0], replace(lost[1], reasons=np.empty(0, np.uint8)))
    report = report_of(program, sound, lost, problems=[Problem("table", 0x666, "table 1 is left out: x")])
    assert [row["verdict"] for row in data_of(report)["tables"]] == ["ok", None]
    assert report.data.verdict is None and not report.findings and not report.complete
    assert "verdict: ?" in shown(report)


@pytest.mark.parametrize("structure", [ListHead(1, 2, Node(Links(0))), TreeRoot(1, 2, 0, 8)])
def test_what_has_no_bins_is_refused(structure):
    with pytest.raises(UsageError, match="made by hand: it has no bins; walklist walks it"):
        skew.check_bins_of(opened(structure))
    with pytest.raises(UsageError):
        skew.check_bins_of(opened(Group(1, [structure])))


def test_lengths_alone_are_judged_where_nothing_else_is_known():
    program = Program()
    table, walk = program.table(1024, random(700))
    note = "Neither hash nor key of the entries is known: the lengths alone are judged."
    assert note in words(report_of(program, (table._replace(node=Node(Links(0))), walk)))
    assert note not in words(report_of(program, (table, walk)))


@pytest.mark.parametrize(
    ("node", "absent", "present"),
    [
        (Node(Links(0)), ("hashes", "misplaced", "distinct keys", "commonest hash", "their keys"), ()),
        (
            Node(Links(0), None, Key(Scalar(16, 8))),
            ("hashes", "misplaced", "commonest hash", "entries with it", "their keys"),
            ("distinct keys",),
        ),
        (Node(Links(0), Scalar(8, 4)), ("distinct keys", "their keys"), ("hashes", "misplaced", "commonest hash")),
        (Node(Links(0), Scalar(8, 4), Key(Scalar(16, 8))), (), ("hashes", "misplaced", "their keys")),
    ],
    ids=["neither", "key", "hash", "both"],
)
def test_what_entries_do_not_store_has_no_column(node, absent, present):
    program = Program()
    table, walk = program.table(1024, random(700))
    report = report_of(program, (table._replace(node=node), walk))
    # Headers stand on one line or on several.
    headers = words(report).partition("Lengths of the bins")[0]
    assert [name for name in absent if name in headers] == [] and "?" not in headers
    assert [name for name in present if name.split()[0] not in headers] == []
    [row] = data_of(report)["tables"]
    assert {"distinct_hashes", "misplaced"} <= set(row) and "hash_keys" in row["worst_bins"][0]
    assert {"distinct_hashes", "distinct_keys", "hash_keys"} <= set(data_of(report)["worst_bins"][0])


def test_hashes_that_cannot_be_read_keep_their_column():
    program = Program()
    table, walk = program.table(1024, random(700))
    beyond = Node(Links(0), Scalar(1 << 40, 4), Key(Scalar(16, 8)))
    assert "hashes" in words(report_of(program, (table._replace(node=beyond), walk)))


# ---- open addressing ----


def probe_table(hashes, slots, keys=None):
    """A table with linear probing, its hash and key in one item of 16 bytes."""
    items = [(0, 0)] * slots
    for number, hash in enumerate(hashes):
        at = int(hash) % slots
        while items[at][1]:
            at = (at + 1) % slots
        items[at] = (int(hash), number + 1 if keys is None else keys[number])
    memory = FakeMemory([(0x4000, b"".join(struct.pack("<QQ", *item) for item in items))])
    fields = {name: SlotField(0x4000, 16, Scalar(at, 8)) for name, at in (("hash", 0), ("key", 8))}
    table = ProbeTable(
        0x3000, slots, fields, lambda row: row["key"] != 0, lambda row: row["hash"] % np.uint64(slots),
        hash="hash", key="key", entries=len(hashes),
    )  # fmt: skip
    return Target(memory, X86_64), table


def probed(target, table):
    walked = [Walked(0, table, walk_probes(target, table, SILENT))]
    return skew.skew_report(opened(table), skew.examine(target, table, walked, {}))


def test_open_addressing_has_probe_distances():
    target, table = probe_table([1, 1, 1, 2, 9, 9, 30], 32)
    report = probed(target, table)
    [row] = data_of(report)["tables"]
    # Slots 1, 2, 3 for hash 1, then 4 (two further) for hash 2; 9 and 10; 30.
    assert (row["distance_p50"], row["distance_p99"], row["distance_max"]) == (1, 2, 2)
    assert (row["walked"], row["max_len"], row["max_bin"], row["distinct_hashes"]) == (7, 3, 1, 4)
    assert row["worst_bins"][0]["distinct_keys"] == 3
    assert report.data.verdict is Verdict.OK and row["misplaced"] == 0
    assert "distance" in shown(report)
    assert "hashes" in shown(report) and "misplaced" in shown(report)
    bare = probed(target, table._replace(hash=None))
    told = shown(bare).partition("Lengths of the bins")[0]
    assert "distance" in told and "hashes" not in told and data_of(bare)["tables"][0]["distance_max"] == 2


def test_a_flood_in_open_addressing():
    target, table = probe_table([*random(300), *[7] * 100], 1024)
    assert probed(target, table).data.verdict is Verdict.STALE_HASH
    target, table = probe_table([*random(300), *[7] * 100], 1024, keys=[*range(1, 301), *[5] * 100])
    assert probed(target, table).data.verdict is Verdict.EQUAL_HASH_FLOOD
    target, table = probe_table(random(300), 1024)
    assert probed(target, table).data.verdict is Verdict.OK


def test_an_empty_open_table():
    target, table = probe_table([], 16)
    report = probed(target, table)
    assert report.data.verdict is Verdict.OK
    assert data_of(report)["tables"][0]["distance_max"] is None


# ---- keys ----


def distinct_keys(program, key, walk_of_table):
    table, walk = walk_of_table
    entries = Entries(program.target(), table._replace(node=table.node._replace(key=key)), walk)
    found = entries.find_keys(np.arange(len(walk.nodes)))
    return len(set(found.values[found.known].tolist())), int(found.known.sum())


def test_keys_by_pointer_value_and_text():
    program = Program()
    texts = [program.text(b"one"), program.text(b"two"), program.text(b"one")]
    made = program.table(8, [1, 2, 3, 4], keys=[*texts, texts[0]])
    at = Scalar(16, 8)
    assert distinct_keys(program, Key(at), made) == (3, 4)
    assert distinct_keys(program, Key(at, "value"), made) == (3, 4)
    assert distinct_keys(program, Key(at, "string"), made) == (2, 4)
    assert distinct_keys(program, Key(at, "bytes", 3), made) == (2, 4)
    assert distinct_keys(program, Key(at, "bytes", 11), made)[0] == 3
    assert distinct_keys(program, Key(Scalar(8, 4), "value"), made) == (4, 4)


def test_keys_in_the_entry():
    program = Program()
    nodes = [program.add(1, 0, text) for text in (b"abcdefg", b"abcdefh", b"abcdefg")]
    table = Table(0x900, Node(Links(0)), [BinArray(0x1000, 1, 8)])
    walk = BinsWalk(np.array([3], np.uint64), np.zeros(1, np.uint8), np.array(nodes, np.uint64), np.zeros(3, np.uint64))
    assert distinct_keys(program, Key(Scalar(24, 8), "inline", 7), (table, walk)) == (2, 3)
    assert distinct_keys(program, Key(Scalar(24, 8), "inline", 6), (table, walk)) == (1, 3)
    assert distinct_keys(program, Key(Scalar(24, 8), "inline", 3), (table, walk)) == (1, 3)
    entries = Entries(program.target(), table._replace(node=Node(Links(0), key=Key(Scalar(24, 8), "inline"))), walk)
    assert entries.find_keys(np.arange(3)) is None  # of unknown size


def test_keys_that_cannot_be_read_are_left_out():
    program = Program()
    made = program.table(8, [1, 2, 3], keys=[program.text(b"one"), 0xDEAD0000, 0])
    assert distinct_keys(program, Key(Scalar(16, 8), "string"), made) == (1, 1)
    assert distinct_keys(program, Key(Scalar(16, 8), "bytes", 4), made) == (1, 1)
    entries = Entries(program.target(), *made)
    assert made[0]._replace(node=made[0].node._replace(key=None)).node.key is None
    assert entries.key == made[0].node.key
    plain = made[0]._replace(node=Node(Links(0)))
    assert Entries(program.target(), plain, made[1]).find_keys(np.arange(3)) is None
    assert Entries(program.target(), plain, made[1]).find_hashes() is None


def test_only_so_many_strings_are_read(monkeypatch):
    monkeypatch.setattr("gdbext.analysis.tables.keys.MOST_STRINGS", 3)
    program = Program()
    made = program.table(8, range(5), keys=[program.text(b"%d" % each) for each in range(5)])
    assert distinct_keys(program, Key(Scalar(16, 8), "string"), made) == (3, 3)


# ---- findings ----


def test_findings_of_triage():
    program = Program()
    [finding] = findings_of(program, stale(program))
    assert (finding.kind, finding.severity, finding.confidence) == ("stale-hash", Severity.WARNING, Confidence.MEDIUM)
    assert finding.bytes is None and finding.waiters is None
    assert finding.summary.startswith("400 of the 1 000 entries of cache are in bin 602, all with the one stored hash")
    assert "bin 602: 400 entries, 1 distinct stored hash, 400 distinct keys" in finding.evidence
    assert finding.evidence[-1] == "slabskew cache"
    assert finding.remedy


@pytest.mark.parametrize(
    "kind, hashes, keys, confidence",
    [
        ("hot-bin", [0x15A5A] * 1200, [5] * 1200, Confidence.HIGH),  # a flood of one key
        ("stale-hash", [*[0x15A5A] * 1200, 1, 2], range(1202), Confidence.HIGH),
        ("weak-hash", [0x15A5A] * 1200, range(1200), Confidence.HIGH),  # a constant function
        ("weak-hash", [value * 0x1234567 for value in range(6)] * 1200, range(7200), Confidence.HIGH),
    ],
)
def test_long_chains_are_critical_and_content_makes_keys_sure(kind, hashes, keys, confidence):
    program = Program()
    [finding] = findings_of(program, program.table(4096, hashes, keys=keys, key=Key(Scalar(16, 8), "value")))
    assert (finding.kind, finding.severity, finding.confidence) == (kind, Severity.CRITICAL, confidence)


def test_a_finding_names_the_table_of_the_group():
    program = Program()
    pairs = group_of(program, [500, 500])
    pairs.append(program.table(1024, [*random(500), *[7] * 100], address=0x5000))
    [finding] = findings_of(program, *pairs)
    assert "101 of the 600 entries of cache, table 2 are in bin 7, 100 of these with" in finding.summary
    assert "entries of the 3 tables: 500, 500, 600" in finding.evidence


def test_each_kind_is_told_once_where_it_is_worst():
    program = Program()
    pairs = [program.table(1024, [*random(500, at), *[7] * (50 + 10 * at)], address=0x900 + at) for at in range(3)]
    [finding] = findings_of(program, *pairs)
    assert finding.summary.startswith("70 of the 570 entries of cache, table 2")


def test_slab_skew_is_a_finding_and_little_things_are_none():
    program = Program()
    [finding] = findings_of(program, *group_of(program, [3000, 500, 500, 500]))
    assert (finding.kind, finding.severity) == ("slab-skew", Severity.WARNING)
    program = Program()
    assert findings_of(program, program.table(1024, random(700))) == []
    assert findings_of(program, program.table(16, random(1600))) == []  # too small: slabskew's alone


def test_what_is_no_hash_table_has_no_findings():
    program = Program()
    table, walk = stale(program)
    bare = table._replace(node=Node(Links(0)))
    assert findings_of(program, (bare, walk)) == []
    head = ListHead(1, 2, Node(Links(0)))
    assert skew.find_table_findings(program.target(), head, [Walked(0, head, None)], "x", {}) == []


def test_settings_reach_the_findings():
    program = Program()
    structure, walked, _ = examined(program, stale(program))
    calm = {"hot-bin": 500}
    assert skew.find_table_findings(program.target(), structure.structure, walked, "cache", calm) == []

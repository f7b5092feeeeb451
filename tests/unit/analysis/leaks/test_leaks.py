"""The report of ``blocks leaks``: its figures, its tables and every sentence."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gdbext.analysis.leaks.doubts import doubts_text, find_doubts
from gdbext.analysis.leaks.report import leaks
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.mark import read_reach
from gdbext.analysis.reach.model import PLAIN
from gdbext.analysis.types.model import HIGH, NO_CONFIDENCE, BlockTypes, TypeName
from gdbext.heap.model import State
from gdbext.memory import Region
from gdbext.progress import SILENT
from gdbext.render import json_pieces, text
from gdbext.report import Problem, Status, exit_status
from tests.support.reachworld import DATA, HEAP, STACK, ReachWorld


def shown(report, limit=None):
    return "".join(text(report, exact=False, limit=limit))


def data(report, limit=None):
    document = json.loads("".join(json_pieces(report, schema="x/1", target=None, limit=limit)))
    return document["data"], document


def world():
    """One block reached, one possibly leaked, a list of three leaked, a cycle of two, and two that share one."""
    made = ReachWorld()
    at = [made.block(HEAP + 0x100 * number, 56 if number < 8 else 120) for number in range(1, 12)]
    made.put(DATA, at[0])
    made.put(at[0] + 8, at[1] + 16)
    made.put(at[2], at[3])
    made.put(at[3], at[4])
    made.put(at[4] + 8, int.from_bytes(b"a name\0\0", "little"))
    made.put(at[5], at[6])
    made.put(at[6], at[5])
    made.put(at[7], at[9])
    made.put(at[8], at[9])
    made.block(HEAP + 0x3000, 400, State.TCACHE)
    return made, at[:10]


def types_of(reach, names):
    code = np.array([names.get(address, 0) for address in reach.address.tolist()], np.uint32)
    known = [TypeName("unknown", "unknown"), TypeName("Session", "vtable"), TypeName("struct item", "debug info")]
    return BlockTypes(known, code, np.where(code > 0, HIGH, NO_CONFIDENCE).astype(np.uint8))


def test_everything_in_one_report():
    made, at = world()
    reach = made.reach()
    types = types_of(reach, {at[2]: 1, at[3]: 2, at[4]: 2, at[5]: 1})
    report = leaks(reach, types, listed=True, maybe=True)
    answer, document = data(report)
    assert exit_status(report) == Status.FINDINGS
    assert document["complete"] and answer["missing"] == []
    assert answer["totals"] == {
        "blocks": 11, "bytes": 7 * 56 + 4 * 120,
        "reached_blocks": 1, "reached_bytes": 56,
        "possibly_leaked_blocks": 1, "possibly_leaked_bytes": 56,
        "leaked_blocks": 9, "leaked_bytes": 5 * 56 + 4 * 120,
        "leak_root_blocks": 5, "leak_root_bytes": 2 * 56 + 3 * 120,
        "indirect_blocks": 4, "indirect_bytes": 3 * 56 + 120,
        "shared_blocks": 1, "shared_bytes": 120,
        "reached_by_offset_blocks": 0, "reached_by_offset_bytes": 0,
    }  # fmt: skip
    assert [(row["kind"], row["ranges"], row["pointers"]) for row in answer["roots"]] == [
        ("stack", 1, 0), ("global", 1, 1),
    ]  # fmt: skip
    first, second = answer["leak_roots"][:2]
    assert first == {
        "address": f"{at[2]:#x}", "size": 56, "kept_blocks": 3, "kept_bytes": 168, "cycle": 0,
        "type": "Session", "contents": f"-> test block {at[3]:#x}",
    }  # fmt: skip
    assert (second["address"], second["size"], second["kept_bytes"]) == (f"{at[7]:#x}", 120, 120)
    assert answer["by_size"] == [
        {"size": 120, "blocks": 4, "bytes": 480, "leak_roots": 3},
        {"size": 56, "blocks": 5, "bytes": 280, "leak_roots": 2},
    ]
    assert answer["by_type"] == [
        {"type": "unknown", "recognised_by": "unknown", "blocks": 5, "bytes": 536, "leak_roots": 3, "kept_bytes": 360},
        {"type": "Session", "recognised_by": "vtable", "blocks": 2, "bytes": 112, "leak_roots": 2, "kept_bytes": 280},
        {
            "type": "struct item", "recognised_by": "debug info", "blocks": 2, "bytes": 112,
            "leak_roots": 0, "kept_bytes": 0,
        },
    ]  # fmt: skip
    told = ("state", "leak_root", "type", "confidence")
    listed = {row["address"]: tuple(row[key] for key in told) for row in answer["leaked"]}
    assert listed[f"{at[4]:#x}"] == ("indirect", f"{at[2]:#x}", "struct item", "high")
    assert listed[f"{at[5]:#x}"] == ("leak root", f"{at[5]:#x}", "Session", "high")
    assert listed[f"{at[6]:#x}"] == ("cycle", f"{at[5]:#x}", "unknown", None)
    assert listed[f"{at[9]:#x}"] == ("indirect", None, "unknown", None)
    assert [(row["address"], row["size"]) for row in answer["possibly_leaked"]] == [(f"{at[1]:#x}", 56)]


def test_text_fits_and_has_the_lists_that_are_asked_for():
    made, at = world()
    reach = made.reach()
    page = shown(leaks(reach, types_of(reach, {at[2]: 1})))
    told = " ".join(page.split())
    assert "Leaked: 9 blocks, 760 B: 5 leak roots, and 4 blocks that only leaked blocks lead to." in told
    assert "1 block, 56 B, is possibly leaked: only interior pointers lead there." in told
    assert "several leak roots lead to 1 block, 120 B: counted as kept by none of them" in page
    assert "--list shows every leaked block" in page and "--possible shows the possibly leaked ones" in page
    assert "Leaked blocks:" not in page and "Possibly leaked blocks:" not in page
    full = shown(leaks(reach, None, listed=True, maybe=True))
    assert f"{at[9]:#x}   120  indirect   several" in full
    assert "Leaked blocks:" in full and "Possibly leaked blocks:" in full and "--list" not in full
    assert "Leaked by type, those whose leak roots keep most first: ?" in full
    assert "Leaked blocks:" in shown(leaks(reach, None, listed=True))
    assert "Possibly leaked blocks:" in shown(leaks(reach, None, maybe=True))
    assert max(map(len, (page + full).splitlines())) <= 100


def test_limit_bounds_tables_and_no_figure():
    reach = world()[0].reach()
    answer, _ = data(leaks(reach, None, listed=True), limit=1)
    assert len(answer["leaked"]) == len(answer["leak_roots"]) == 1
    assert answer["totals"]["leaked_blocks"] == 9
    assert answer["possibly_leaked"] is None
    assert answer["by_type"] is None


@pytest.mark.parametrize(
    "put, blocks, verdict",
    [
        ((), 0, "No block is in use."),
        ((0x100,), 1, "Nothing leaked of 1 block in use, 24 B."),
        ((), 1, "Leaked: 1 block, 24 B: nothing points at it."),
        ((), 2, "Leaked: 2 blocks, 48 B: nothing points at them."),
        (
            (0x108, 0x208),
            2,
            "Nothing leaked of 2 blocks in use, 48 B. "
            "2 blocks, 48 B, are possibly leaked: only interior pointers lead there.",
        ),
    ],
)
def test_verdicts(put, blocks, verdict):
    made = ReachWorld()
    for number in range(blocks):
        made.block(HEAP + 0x100 * (1 + number))
    for at, offset in enumerate(put):
        made.put(DATA + 8 * at, HEAP + offset)
    report = leaks(made.reach(), None)
    assert report.data.verdict == verdict
    assert report.complete and "Missing, so that blocks may look leaked that are not: none" in shown(report)


def test_where_nothing_leaked_the_page_is_the_verdict():
    made = ReachWorld()
    made.put(DATA, made.block(HEAP + 0x100))
    report = leaks(made.reach(), None, listed=True)
    lines = shown(report).split("evidence:")[0].splitlines()
    assert [line for line in lines if line] == [
        "verdict: Nothing leaked of 1 block in use, 24 B.",
        "Missing, so that blocks may look leaked that are not: none",
    ]
    answer, _ = data(report)
    assert exit_status(report) == Status.CLEAN
    assert answer["totals"]["blocks"] == 1 and answer["roots"] and answer["leak_roots"] == []
    assert "Possibly leaked blocks: none" in shown(leaks(made.reach(), None, maybe=True))


def test_a_missing_root_is_told_first():
    made = ReachWorld()
    made.block(HEAP + 0x100)
    made.thread(stack_pointer=None)
    report = leaks(made.reach(), None)
    assert exit_status(report) == Status.PARTIAL
    lines = shown(report).splitlines()
    assert lines[0].startswith("not complete: ")
    verdict = (
        "INCONCLUSIVE, since registers and stack of thread 1 could not be examined. "
        "Leaked: 1 block, 24 B: nothing points at it."
    )
    assert report.data.verdict == verdict
    assert next(line for line in lines if line.endswith(":") and "Missing" in line) == (
        "Missing, so that blocks may look leaked that are not:"
    )
    assert "pointers there are not known" in shown(report)


def test_what_is_absent_from_the_core_is_a_missing_root():
    made = ReachWorld()
    made.block(HEAP + 0x100)
    made.problems = [Problem("truncated-core", None, "cut")]
    made.map(Region(0x300000, 0x302000, name="/usr/lib/libx.so", source="absent"))
    report = leaks(made.reach(), None)
    answer, document = data(report)
    assert not document["complete"]
    assert "/usr/lib/libx.so" in answer["missing"][0]["what"]
    assert report.data.verdict.startswith("INCONCLUSIVE, since libx.so")
    assert [(row["bytes"], row["start"]) for row in answer["missing"]] == [(0x2000, "0x300000")]


def test_nothing_leaked_although_something_is_missing():
    made = ReachWorld()
    made.put(DATA, made.block(HEAP + 0x100))
    made.threads = []
    report = leaks(made.reach(), None)
    assert report.data.verdict == (
        "Nothing leaked of what is known; registers and stacks of all threads could not be examined."
    )
    assert exit_status(report) == Status.PARTIAL


def test_no_block_is_known_of_a_heap_that_was_not_read_whole():
    made = ReachWorld()
    report = leaks(read_reach(made.target(), [replace(made.heap(), complete=False)], PLAIN, SILENT), None)
    assert report.data.verdict == "No block in use is known; a part of the test heap could not be examined."


def of_heap(**changes):
    made = ReachWorld()
    made.block(HEAP + 0x100)
    heap = replace(made.heap(), **changes)
    return read_reach(made.target(), [heap], PLAIN, SILENT)


@pytest.mark.parametrize(
    "changes, what, effect",
    [
        ({"complete": False}, "a part of the test heap", "blocks there, and pointers in them, are not known"),
        (
            {"problems": [Problem("chunk-size", 0x1, "bad", True), Problem("x", None, "no damage")]},
            "blocks beside damage of the test heap (1 place)",
            "they, and pointers in them, may not be known",
        ),
        ({"caches_known": False}, "the thread caches of the test heap", "freed blocks in them count as in use"),
    ],
)
def test_heaps_that_are_not_known_whole(changes, what, effect):
    reach = of_heap(**changes)
    (doubt,) = find_doubts(reach)
    assert doubt.what == what and effect in doubt.effect
    report = leaks(reach, None)
    assert exit_status(report) == Status.PARTIAL  # nor is it an answer that nothing leaked
    assert report.data.verdict.startswith("INCONCLUSIVE")


def test_problems_of_heap_search_and_types_are_told():
    reach = of_heap(problems=[Problem("x", None, "of the heap")])
    marked = replace(reach.marked, problems=[Problem("overlapping-blocks", None, "of the search")])
    again = Reach(reach.target, reach.heaps, marked, reach.rules, SILENT)
    report = leaks(again, None, problems=[Problem("interrupted", None, "of types")])
    assert [problem.message for problem in report.problems] == ["of the heap", "of the search", "of types"]
    assert not report.complete and exit_status(report) == Status.FINDINGS  # which beat what was not examined
    assert leaks(reach, None).complete


def test_many_doubts_in_one_line():
    made = ReachWorld()
    made.block(HEAP + 0x100)
    made.threads = [replace(made.threads[0], number=at, stack_pointer=None) for at in range(1, 6)]
    assert doubts_text(find_doubts(made.reach())) == (
        "registers and stack of thread 1, registers and stack of thread 2, registers and stack of thread 3 and 2 more"
    )


def test_tags_registers_and_other_words_are_told():
    made = ReachWorld()
    made.put(DATA, made.block(HEAP + 0x100) | 1)
    made.thread(registers={"rax": STACK, "rbx": HEAP + 0x100})
    report = leaks(made.reach(clear=0x7), None)
    (evidence,) = [one.message for one in report.evidence if one.subject == "roots"]
    assert "bits 0x7 cleared, and 2 registers and other words" in evidence
    mangled = leaks(made.reach(clear=0x7, mangled=True), None)
    (evidence,) = [one.message for one in mangled.evidence if one.subject == "roots"]
    assert "bits 0x7 cleared, as it stands or else XORed with its own address >> 12, and 2" in evidence
    answer, _ = data(report)
    assert answer["roots"][0] == {"kind": "register", "ranges": 0, "bytes": 0, "words": 2, "pointers": 1}
    assert answer["roots"][-1]["pointers"] == 1


def test_contents_are_looked_at_for_the_first_rows_only(monkeypatch):
    monkeypatch.setattr("gdbext.analysis.leaks.tables._HINTS", 2)
    reach = world()[0].reach()
    answer, _ = data(leaks(reach, None))
    assert [row["contents"] is None for row in answer["leak_roots"]] == [False, False, True, True, True]

import json
import mmap
import os
from dataclasses import dataclass, replace

import pytest

from gdbext.analysis.beyond import Beyond
from gdbext.analysis.footprint.ledger import ledger
from gdbext.analysis.missing import Unexamined
from gdbext.analysis.page import (
    _LEADS_ON,
    _OF_JEMALLOC,
    death_text,
    find_corruption,
    leads_on,
    make_page,
    ranked,
    target_text,
)
from gdbext.analysis.thresholds import thresholds
from gdbext.grammar.catalogue import find_command
from gdbext.heap.model import State
from gdbext.memory import Region
from gdbext.memory.live.procmem import ProcessMemory
from gdbext.process import Identity, Thread
from gdbext.render import json_pieces, text
from gdbext.report import Confidence, Finding, Problem, Severity

MB = 1 << 20
START = 0x10000000


def finding(kind="growth", severity=Severity.WARNING, size=None, waiters=None):
    return Finding(kind, severity, Confidence.HIGH, "summary", size, waiters)


def healthy(maker):
    maker.span(START, [(1000, State.IN_USE)] * 10 + [(64 << 20, State.TOP)])


def test_healthy_target(maker):
    healthy(maker)
    target, heap = maker.target(), maker.heap()
    report = make_page(target, [heap], {})
    assert not report.findings
    shown = "".join(text(report, exact=False, limit=None))
    assert "No findings." in shown
    assert "memory          in core  share" in shown
    assert shown.endswith("next: rss · blocks retained\n")
    assert "residency unknown" not in shown  # of a core it always is
    data = json.loads("".join(json_pieces(report, schema="x/1", target=None, limit=None)))["data"]
    assert data["findings"] == []
    alone = json.loads(
        "".join(json_pieces(make_page(target, [heap], {}), schema="x/1", target=None, limit=None))
    )["data"]["ledger"]
    assert data["ledger"] == alone
    assert report.data.ledger == ledger(target, [heap])[0]


def test_without_a_heap_there_is_no_all_clear(maker):
    healthy(maker)
    report = make_page(maker.target(), [], {})
    assert report.data.verdict == "No heap was found, so there is nothing to judge but the ledger."
    assert not report.findings


def test_a_search_that_was_stopped_gives_no_all_clear(maker):
    healthy(maker)
    leaks = Unexamined("leaks", "stopped after 20 million blocks", "triage --leaks")
    left = [leaks, Unexamined("locks", "interrupted")]
    report = make_page(maker.target(), [maker.heap()], {}, beyond=Beyond(unexamined=left))
    assert report.data.verdict == (
        "No findings in what was examined; not examined: leaks (stopped after 20 million blocks); locks (interrupted)"
    )
    assert not report.complete
    assert [(one.kind, one.message, one.corruption) for one in report.problems] == [
        ("not-examined", "leaks (stopped after 20 million blocks); next: triage --leaks", False),
        ("not-examined", "locks (interrupted)", False),
    ]
    found = make_page(maker.target(), [maker.heap()], {}, beyond=Beyond([finding()], unexamined=left[1:]))
    assert found.data.verdict == "1 finding; not examined: locks (interrupted)" and not found.complete


def test_findings_of_all_sources_ranked(maker):
    maker.span(START, [(100 * MB, State.LARGE)] + [(1000, State.IN_USE)] * 1000 + [(1000, State.TOP)])
    own = (finding("decay-stalled", size=500 * MB), finding("growth", size=1 * MB))
    damage = [Problem("chunk-size", 0x100 * at, f"bad {at}", True) for at in range(1, 8)]
    heap = maker.heap(findings=own, problems=[*damage, Problem("absent", None, "x")], largest_block=1000)
    report = make_page(maker.target(), [heap], {})
    assert report.findings
    assert [each.kind for each in report.data.findings] == ["corruption", "decay-stalled", "fragmentation"]
    shown = "".join(text(report, exact=False, limit=None))
    assert "3 findings." in shown
    (document,) = ["".join(json_pieces(report, schema="x/1", target=None, limit=None))]
    first = json.loads(document)["data"]["findings"][0]
    assert set(first) == {
        "kind", "severity", "bytes", "waiters", "confidence", "summary", "evidence", "remedy",
        "threads", "details",
    }  # fmt: skip
    assert (first["kind"], first["severity"], first["bytes"]) == ("corruption", "critical", None)


def test_one_finding_for_all_corruption(maker):
    damage = [Problem("chunk-size", 0x100 * at, f"bad {at}", True) for at in range(1, 8)]
    (found,) = find_corruption(maker.heap(problems=damage))
    assert found.summary == "the test heap is damaged in 7 places"
    assert found.evidence[0] == "0x100: bad 1"
    assert found.evidence[5:] == ("2 more",)
    assert find_corruption(maker.heap(problems=[Problem("absent", None, "not there")])) == ()


@dataclass(frozen=True)
class Died:
    summary: str
    trail: str


def test_why_it_died_comes_before_the_findings(maker):
    healthy(maker)
    died = Died('SIGABRT in thread 1: "free(): invalid pointer"', "main.c:212 flush_batch ← start_thread")
    report = make_page(maker.target(), [maker.heap(findings=[finding(size=500 * MB)])], {}, died=died)
    lines = "".join(text(report, exact=False, limit=None, plain=False)).splitlines()
    at = lines.index('died  SIGABRT in thread 1: "free(): invalid pointer"')
    assert lines[at + 1] == "      main.c:212 flush_batch ← start_thread"
    assert lines.index("1 finding.") < at < lines.index("1  WARNING   growth  500 MiB")
    assert death_text(Died("SIGSEGV", "")) == ["SIGSEGV"] and death_text(None) == ()


def test_the_page_leads_on(maker):
    healthy(maker)
    glibc, jemalloc = (replace(maker.heap(), allocator=name) for name in ("glibc", "jemalloc"))
    assert leads_on((), [glibc]) == ["rss", "blocks retained"] and leads_on((), []) == ["rss"]
    assert leads_on([finding("leak")], [glibc]) == ["blocks leaks", "blocks retained"]
    assert leads_on([finding("deadlock"), finding("leak")], [glibc]) == ["lockwait", "blocks leaks"]
    assert leads_on([finding("corruption")], [glibc])[0] == "glibc check"
    assert leads_on([finding("corruption")], [jemalloc])[0] == "gx jemalloc check"
    assert leads_on([finding("leak")], [glibc], ["triage --leaks"]) == ["triage --leaks", "blocks leaks"]
    known = {name for names in (_LEADS_ON, _OF_JEMALLOC) for commands in names.values() for name in commands}
    for name in known:
        spec = find_command(name.removeprefix("gx "))
        assert spec is not None and spec.title == name


def test_remarks_say_what_leaked_and_what_would_go_back(maker):
    maker.span(START, [(60 * MB, State.IN_USE), (40 * MB, State.TOP)])
    heap = maker.heap(findings=[finding("leak", size=50 * MB)], trimmable=lambda: (99 * MB, "glibc trim"))
    rows = {row.owner: row.remark for row in make_page(maker.target(), [heap], {}).data.memory}
    assert rows["test in use"] == "50 MiB of it leaked"
    assert rows["test free"] == "40 MiB would go back: glibc trim"  # no more than there is


def test_much_memory_of_nobody_is_explained(maker):
    maker.span(START, [(60 * MB, State.IN_USE)])
    region = Region(0x70000000, 0x70000000 + 100 * MB)
    rows = {row.owner: row.remark for row in make_page(maker.target(region), [maker.heap()], {}).data.memory}
    assert rows["anonymous rest"].startswith("of no allocator that is known")


def test_arena_proliferation_is_not_told_twice(maker):
    maker.span(START, [(1000, State.IN_USE), (1000, State.TOP)])
    chunks = [(100, State.IN_USE), (30 * MB, State.LARGE), (100, State.IN_USE), (1000, State.TOP)]
    maker.span(0x7F0000000000, chunks, "heap", 1)
    alone = make_page(maker.target(), [maker.heap(largest_block=1000)], {})
    assert [each.kind for each in alone.data.findings] == ["fragmentation"]
    own = (finding("arena-proliferation", size=30 * MB),)
    both = make_page(maker.target(), [maker.heap(largest_block=1000, findings=own)], {})
    assert [each.kind for each in both.data.findings] == ["arena-proliferation"]


def test_ranking_by_severity_then_bytes_then_waiters():
    order = [
        finding(severity=Severity.CRITICAL),
        finding(size=5),
        finding(size=4, waiters=2),
        finding(waiters=9),
        finding(waiters=3),
        finding(severity=Severity.INFO, size=99),
    ]
    assert ranked(order[::-1]) == order


@pytest.mark.parametrize(
    "cost, settings, told",
    [
        (16 * MB, {}, True),
        (16 * MB - 1, {}, False),  # below both
        (5 * MB, {"min-finding-share": 4}, True),  # 4 % of 100 MiB
        (4 * MB - 1, {"min-finding-share": 1}, False),  # below the floor
        (2 * MB, {"min-finding-bytes": MB, "min-finding-floor": MB}, True),
    ],
)
def test_thresholds(maker, cost, settings, told):
    target = maker.target(Region(0x1000, 0x1000 + 100 * MB), Region(0x70000000, 0x7F000000, "r--", "/file"))
    limits = thresholds(settings, target)
    assert limits.whole == 100 * MB
    assert limits.reached(cost) is told
    assert limits.keep(finding(size=cost)) is told
    assert limits.keep(finding("corruption", size=1))
    assert limits.keep(finding("deadlock", waiters=2))


def test_a_reservation_is_no_measure_for_findings(maker):
    memory = maker.target(Region(0x1000, 0x1000 + 100 * MB)).memory
    memory.for_each_written = lambda start, end: [(start, start + MB)]
    assert thresholds({}, replace(maker.target(Region(0, 1)), memory=memory)).whole == MB
    live = ProcessMemory(os.getpid())
    area = mmap.mmap(-1, 1 << 36, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
    after = ProcessMemory(os.getpid())
    for known in (live, after):
        limits = thresholds({}, replace(maker.target(Region(0, 1)), memory=known, live=True))
        assert 0 < limits.whole < 1 << 34
    area.close()


def test_no_heap_at_all(maker):
    report = make_page(maker.target(Region(0x1000, 0x2000)), [], {})
    assert not report.findings
    assert report.data.ledger.total == 0x1000
    assert report.notes[0].startswith("no heap of an allocator that gdbext knows was found")


def test_target_line(maker):
    target = replace(
        maker.target(),
        identity=Identity("/bin/x", None, 12, "core.12", 0.0),
        threads=[Thread(1, 12, None)],
    )
    assert target_text(target) == "x · pid 12 · 1 thread · core.12, 1970-01-01 00:00 UTC"
    assert target_text(maker.target()) == "test · pid 7 · 0 threads"

"""What heaps say of themselves, in one list."""

import pytest

from gdbext.analysis.blocks.summary import report_on, summary
from gdbext.analysis.footprint.ledger import rss
from gdbext.heap.model import Arena, Blocks, Heap
from gdbext.heap.reading import evidence_of, problems_of
from gdbext.render.textual import text
from gdbext.report import Evidence, Problem, ThreadRef
from tests.support.jeworld import laid


def heap(name, **more):
    family = name.split()[0]
    said = (Evidence(family, "found by symbols"), Evidence("layout", "table"), Evidence("ring", "ring of 2 closes"))
    return Heap(name, Blocks.empty(), (), evidence=said, problems=[Problem("tcache", 16, "lost")], **more)


def lines(heaps):
    return "".join(text(report_on(heaps, None), exact=False, limit=None, evidence=True))


def test_one_of_each_allocator_speaks_for_itself():
    heaps = [heap("glibc"), heap("jemalloc")]
    assert [one.subject for one in evidence_of(heaps)] == ["glibc", "layout", "ring", "jemalloc", "layout", "ring"]
    assert problems_of(heaps) == [*heaps[0].problems, *heaps[1].problems]


def test_several_of_one_allocator_are_named():
    heaps = [heap("glibc"), heap("jemalloc 5.1.0"), heap("jemalloc libtwo.so.2")]
    names = [one.subject for one in evidence_of(heaps)][3:]
    assert names[:3] == ["jemalloc 5.1.0", "jemalloc 5.1.0, layout", "jemalloc 5.1.0"]
    messages = [one.message for one in problems_of(heaps)]
    assert messages == ["lost", "jemalloc 5.1.0: lost", "jemalloc libtwo.so.2: lost"]
    page = lines(heaps)
    for line in ("jemalloc 5.1.0: found by symbols", "jemalloc libtwo.so.2, layout: table", "tcache at 0x10: lost"):
        assert line in page
    assert "jemalloc 5.1.0: ring of 2 closes" in page
    (other,) = [one for one in problems_of(heaps) if "libtwo" in one.message]
    for report in (report_on(heaps, None), rss(laid().target(), heaps)):
        assert other in report.problems


def test_problems_may_be_told_in_brief():
    one = heap("jemalloc", brief=[Problem("in-flux", None, "busy")])
    assert [problem.kind for problem in problems_of([one], brief=True)] == ["in-flux"]
    assert problems_of([one]) == one.problems
    assert problems_of([heap("glibc")], brief=True) == one.problems


@pytest.mark.parametrize(("kind", "interrupted"), [("interrupted", True), ("absent-memory", False)])
def test_only_an_interrupted_walk_may_tell_more_the_next_time(kind, interrupted):
    one = Heap("glibc", Blocks.empty(), (), problems=[Problem(kind, None, "x")], complete=False)
    assert one.interrupted == interrupted


def test_names_of_heaps_and_threads_are_not_cut_in_the_summary():
    threads = tuple(ThreadRef(number, None, None) for number in range(101, 150))
    names = ("glibc", "jemalloc 5.3.0", "jemalloc libtwo.so.2")
    arenas = [Arena(0, 0x7FEDE6400980, "thread", 0, threads)]
    heaps = [Heap(name, Blocks.empty(), arenas) for name in names]
    page = "".join(text(summary(heaps), exact=False, limit=None, width=100))
    assert all(name in page for name in names) and page.count("101, 102") == 3 and "…" not in page
    assert "tcached blocks" in "".join(text(summary(heaps[:1]), exact=False, limit=None, width=200))

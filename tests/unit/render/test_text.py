"""The text of reports: goldens for the whole, properties for tables, streams that must stay streams."""

from __future__ import annotations

import dataclasses
import os
import re
import weakref
from dataclasses import make_dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext import render
from gdbext.heap.glibc.report.reports import ArenaRow
from gdbext.render.style import Style
from gdbext.render.tables import columns_of, table_lines
from gdbext.report import Bar, Finding, Kind, Problem, Report, Rows, ThreadRef, column
from gdbext.wording import grouped
from tests.support.examples import examples

from . import samples

GOLDEN = Path(__file__).parents[2] / "golden"
# GDBEXT_REGENERATE=1 writes them anew.
CASES = {
    "arenas": (samples.arenas, {"exact": False, "limit": None}),
    "arenas-exact": (samples.arenas, {"exact": True, "limit": 2}),
    "chunks-limited": (lambda: samples.chunks(1_000_000), {"exact": False, "limit": 3}),
    "triage": (samples.triage, {"exact": False, "limit": None}),
    "page": (samples.page, {"exact": False, "limit": None}),
    "page-80": (samples.page, {"exact": False, "limit": None, "width": 80}),
    "page-color": (samples.page, {"exact": False, "limit": None, "color": True}),
    "page-evidence-ascii": (samples.page, {"exact": True, "limit": None, "evidence": True, "plain": True}),
    "equal-rows": (lambda: samples.workers(9), {"exact": False, "limit": None}),
    "many-problems": (samples.many_problems, {"exact": False, "limit": None}),
}


def text_of(report, exact=False, limit=None, width=100, plain=False, **how):
    return "".join(render.text(report, exact=exact, limit=limit, width=width, plain=plain, **how))


def without_colour(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    make, how = CASES[name]
    path = GOLDEN / f"render-{name}.txt"
    if os.environ.get("GDBEXT_REGENERATE"):
        path.write_text(text_of(make(), **how), encoding="utf-8")
    assert text_of(make(), **how) == path.read_text(encoding="utf-8")


def test_pieces_are_whole_lines():
    pieces = list(render.text(samples.arenas(), exact=False, limit=None))
    assert all(piece.endswith("\n") and piece.count("\n") == 1 for piece in pieces)


def test_default_limit_is_a_hundred_and_zero_is_all():
    assert text_of(samples.chunks(250)).count(" in use") == 100
    assert "… 150 more (--limit 0 shows all)" in text_of(samples.chunks(250))
    assert text_of(samples.chunks(250), limit=0).count(" in use") == 250
    assert "more" not in text_of(samples.chunks(100))


def test_more_of_unknown_number():
    rows = samples.chunk_rows(5)
    rows.total = None
    assert "… more (--limit 0 shows all)" in text_of(Report(samples.Chunks(rows, 5)), limit=2)
    assert "more" not in text_of(Report(samples.Chunks(rows, 5)), limit=5)


def test_nothing_is_said_to_be_none():
    assert "Chunks: none" in text_of(samples.chunks(0))
    assert "Findings: none" in text_of(Report(samples.Triage((), samples.Ledger((), 0))))


def test_what_is_not_complete_comes_first_with_its_reason():
    shown = text_of(samples.arenas())
    assert shown.startswith("not complete: 132 KiB of the heap are not in the core; figures hold for what was read\n")
    assert text_of(Report(None, complete=False)).startswith("not complete: not everything was read; ")
    both = [Problem("absent-memory", 1, word) for word in ("this", "that")]
    more = Report(None, problems=[Problem("wrong-debug-info", None, "builds"), *both], complete=False)
    assert text_of(more).startswith("not complete: this, and 1 more reason below; ")
    unknown = Report(None, problems=[Problem("unknown-allocator", None, "28 MiB of memory")], complete=False)
    assert text_of(unknown).startswith("not complete: 28 MiB of memory; ")
    damage = Report(None, problems=[Problem("chunk-size", None, "bad size", True)], complete=False)
    assert text_of(damage).startswith("not complete: not everything was read; ")


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("make", [samples.page, samples.arenas, samples.triage, lambda: samples.workers(9)])
def test_colour_changes_nothing_but_colour(make, width):
    plain = text_of(make(), width=width)
    painted = text_of(make(), width=width, color=True)
    assert "\x1b[" in painted and without_colour(painted) == plain
    assert max(map(len, plain.splitlines())) <= width
    for line in painted.splitlines():  # a line that is cut off leaves no colour behind
        assert len(re.findall(r"\x1b\[0m", line)) * 2 == len(re.findall(r"\x1b\[", line))


def test_ascii_has_the_same_layout():
    plain, rich = text_of(samples.page(), plain=True), text_of(samples.page())
    assert plain.isascii() and list(map(len, plain.splitlines())) == list(map(len, rich.splitlines()))
    assert "#####" in plain and "-> set MALLOC_ARENA_MAX" not in plain and "> set MALLOC_ARENA_MAX" in plain


def test_evidence_is_a_line_and_problems_are_not():
    short, whole = text_of(samples.page()), text_of(samples.page(), evidence=True)
    assert "evidence: 2 checks held (--evidence shows them)" in short and "0x7f0000000340" not in short
    assert "mp_: at 0x7f0000000340, 16 votes" in whole and "--evidence" not in whole
    assert "absent-memory at 0x7f0004000000" in short and "absent-memory at 0x7f0004000000" in whole
    assert short.splitlines()[-1] == whole.splitlines()[-1] == "next: glibc trim · blocks summary"


def test_a_finding_shows_two_lines_of_evidence():
    finding = dataclasses.replace(samples.triage().data.findings[0], evidence=("one", "two", "three", "four"))
    report = Report(samples.Triage((finding,), samples.Ledger((), 0)))
    shown = text_of(report)
    assert "· two\n" in shown and "three" not in shown and "… 2 more (--evidence)" in shown
    assert "· four\n" in text_of(report, evidence=True)


def test_amounts_are_not_parted_from_their_units():
    for width in range(20, 100):
        report = Report(None, notes=["there are 20 001 blocks, 233 MiB in all, and 86 % of them leaked in 12 arenas"])
        lines = text_of(report, width=width).splitlines()
        assert all(any(whole in line for line in lines) for whole in ("20 001 blocks", "233 MiB", "86 %", "12 arenas"))


def test_equal_rows_share_a_line():
    shown = text_of(samples.workers(9))
    lines = [line.split() for line in shown.splitlines()]
    assert ["0x77", "1", "main", "1", "MiB", "50", "%", "-", "no", "1"] in lines
    (joined,) = [line for line in lines if line[:3] == ["0x0", "9", "thread"]]
    assert "worker-1," in joined and "+7" in joined  # threads are those of all rows
    assert "×: rows equal but for address; the first is shown (--limit 0: each)" in shown
    every = text_of(samples.workers(9), limit=0)
    assert every.count("thread ") == 9 and "×" not in every
    assert "×" not in text_of(samples.workers(2))  # too few
    assert text_of(samples.workers(9), limit=1).count("more (--limit 0 shows all)") == 1
    assert "… 9 more" in text_of(samples.workers(9), limit=1)


def test_a_source_may_know_its_runs():
    rows = Rows(lambda: iter(()), samples.ArenaRow, 12, lambda: [(samples.arenas().data.arenas[0], 12)])
    shown = text_of(Report(samples.EqualArenas(rows)))
    assert "0x7f0000000020  12  main" in shown and "more" not in shown


def test_hostile_names_do_not_reach_the_terminal():
    row = samples.ArenaRow(1, "\x1b[31m\nred", 1, 0.5, (ThreadRef(1, 1, "a\x07b\u2028"),), True)
    shown = text_of(Report(samples.Arenas((row,), None, None), problems=[Problem("x", None, "\x1b]0;t\x07")]))
    assert not set("\x1b\x07\u2028") & set(shown)
    assert "\\x1b[31m\\nred" in shown
    problem = Problem("x", None, "\x1b]0;t\x07 0x12345\x1b[31m")
    painted = text_of(Report(samples.Arenas((row,), None, None), problems=[problem]), color=True)
    assert without_colour(painted) == text_of(Report(samples.Arenas((row,), None, None), problems=[problem]))
    assert not set("\x1b\x07") & set(without_colour(painted))


def test_problems_are_counted_not_dropped():
    kinds = [Problem(f"kind-{at}", None, "m") for at in range(50)]
    shown = text_of(Report(None, problems=kinds))
    assert shown.count("kind-") == 20
    assert "… 30 more problems, see --json" in shown


def test_interrupt_while_rows_are_made_keeps_what_was_made():
    def make():
        yield from samples.chunk_rows(3)
        raise KeyboardInterrupt

    shown = text_of(Report(samples.Chunks(Rows(make, samples.Chunk, 9), 9)))
    assert shown.count(" in use") == 3
    assert "not complete: stopped after 3 rows" in shown


def test_rows_are_not_held():
    alive = weakref.WeakSet()
    most = 0

    def make():
        nonlocal most
        for at in range(5000):
            row = samples.Chunk(at, at, "in use")
            alive.add(row)
            most = max(most, len(alive))
            yield row

    samples.Chunk.__hash__ = object.__hash__
    report = Report(samples.Chunks(Rows(make, samples.Chunk, 5000), 1))
    assert sum(1 for _ in render.text(report, exact=False, limit=0)) > 5000
    assert most < 1100


def test_later_rows_are_laid_out_as_the_first():
    lines = text_of(samples.chunks(1200), limit=0).splitlines()[1:1201]
    assert len({len(line) for line in lines if line.endswith("in use")}) == 1


def test_later_text_may_be_longer():
    def make():
        yield from samples.chunk_rows(500)
        yield samples.Chunk(0x7F0000000000, 1 << 40, "s" * 60)

    last = text_of(Report(samples.Chunks(Rows(make, samples.Chunk, 501), 501)), limit=0).splitlines()[-3]
    assert last == "0x7f0000000000       1 TiB  " + "s" * 60


def test_numbers_are_never_shortened_and_paths_keep_their_ends():
    row_type = make_dataclass("Row", [("path", str, column("path")), ("n", int, column("n", Kind.COUNT))])
    row = row_type("/very/long/directory/of/some/library/libsomething.so.6", 10**30)
    lines = list(table_lines([row], columns_of(row_type), exact=False, width=60))
    assert grouped(10**30) in lines[-1]
    assert lines[-1].startswith("/very") and "…" in lines[-1] and ".so.6" in lines[-1]
    assert max(map(len, lines)) <= 60


def test_sentences_in_the_last_column_are_wrapped():
    row_type = make_dataclass("Row", [("n", int, column("n", Kind.COUNT)), ("says", str, column("says"))])
    row = row_type(7, "one two three four five six seven eight nine ten")
    lines = list(table_lines([row] * 499, columns_of(row_type), exact=False, width=30))
    assert lines[1:3] == ["7  one two three four five six", "   seven eight nine ten"]
    streamed = list(table_lines([row] * 501, columns_of(row_type), exact=False, width=40))
    assert streamed[-2:] == streamed[1:3]
    assert streamed[-1] == "   eight nine ten"


def test_text_of_whole_cells_goes_below_and_is_never_cut():
    fields = [("n", int, column("n", Kind.COUNT)), *((name, str, column(name)) for name in ("a", "b", "c"))]
    row_type = make_dataclass("Whole", fields, namespace={"whole_cells": True})
    long = " ".join(f"word{at}" for at in range(20))
    row = row_type(7, "x" * 40, long, "y" * 40)
    lines = list(table_lines([row], columns_of(row_type), exact=False, width=60))
    assert max(map(len, lines)) <= 60 and not any("…" in line for line in lines)
    told = " ".join(lines).split()
    assert "x" * 40 in told and "y" * 40 in told and [word for word in told if word.startswith("word")] == long.split()
    assert sum(line.split()[:1] == ["7"] for line in lines) == 3
    # What fits beside the others stays beside them: the last column is wrapped where it stands.
    beside = list(table_lines([row_type(7, "x" * 8, "y" * 8, long)], columns_of(row_type), exact=False, width=80))
    assert sum(line.split()[:1] == ["7"] for line in beside) == 1 and not any("…" in line for line in beside)


def test_names_that_must_be_whole_and_one_thread_at_least():
    fields = [
        ("at", int, column("at", Kind.COUNT)),
        ("heap", str, column("heap", whole=True)),
        ("note", str, column("note")),
        ("threads", tuple, column("threads", Kind.THREADS)),
    ]
    row_type = make_dataclass("Row", fields)
    threads = tuple(ThreadRef(number, None, None) for number in range(101, 120))
    row = row_type(1, "jemalloc 5.3.0", "n" * 40, threads)
    lines = list(table_lines([row], columns_of(row_type), exact=False, width=50))
    assert max(map(len, lines)) <= 50 and len(lines) == 2
    assert "jemalloc 5.3.0" in lines[1] and lines[1].endswith("101 +18 more") and "nn…" in lines[1]
    below = list(table_lines([row], columns_of(row_type), exact=False, width=28))
    assert max(map(len, below)) <= 28
    assert any("jemalloc 5.3.0" in line for line in below)
    assert any("101, 102" in line and "more" in line for line in below)


def test_runs_that_read_the_target_are_made_with_the_rows():
    holding = [True]

    def runs():
        for number in range(9):
            assert holding, "the target has been let go"
            yield dataclasses.replace(samples.arenas().data.arenas[0], address=number), 100

    rows = Rows(lambda: iter(()), samples.ArenaRow, 900, runs, reads=9)
    rows.keep(9)
    holding.clear()
    assert text_of(Report(samples.EqualArenas(rows))).count("  100  main") == 9


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_last_column_is_wrapped_between_words_or_goes_below(width):
    fields = [("address", int, column("leak root", Kind.ADDRESS))]
    fields += [(f"c{at}", int, column(f"count {at}", Kind.COUNT)) for at in range(4)]
    fields += [("type", str, column("type")), ("contents", str, column("contents"))]
    row_type = make_dataclass("Root", fields)
    contents = "+0x8 -> glibc block 0x55991d456720, +0x10 -> glibc block 0x55991d456ab0"
    row = row_type(0x55991D4566D0, 19799, 72, 3, 1024, "like struct request", contents)
    lines = list(table_lines([row], columns_of(row_type), exact=False, width=width))
    assert max(map(len, lines)) <= width
    assert set(contents.split()) <= set(" ".join(lines).split())


def test_too_many_columns_go_below_under_the_first():
    fields = [("address", int, column("address", Kind.ADDRESS))]
    fields += [(f"c{at}", int, column(f"c{at}", Kind.COUNT)) for at in range(20)]
    row_type = make_dataclass("Wide", fields)
    lines = list(table_lines([row_type(16, *[10**8] * 20)], columns_of(row_type), exact=False, width=100))
    assert max(map(len, lines)) <= 100
    assert sum(line.count("0x10") for line in lines) == 3
    assert sum(line.count(grouped(10**8)) for line in lines) == 20


VALUES = {
    Kind.ADDRESS: st.integers(0, 2**64 - 1),
    Kind.BYTES: st.integers(0, 2**60),
    Kind.COUNT: st.integers(0, 2**48),
    Kind.SHARE: st.floats(0, 1),
    Kind.TEXT: st.text(max_size=200),
    Kind.FLAG: st.booleans(),
    Kind.THREADS: st.lists(
        st.builds(ThreadRef, st.integers(0, 10**6), st.integers(0, 10**6), st.none() | st.text(max_size=15)),
        max_size=70,
    ),
}


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=12))
    labels = st.text("abc -", min_size=1, max_size=14).filter(str.strip)
    fields = [(f"c{at}", object, column(draw(labels), kind)) for at, kind in enumerate(kinds)]
    row_type = make_dataclass("Row", fields, namespace={"whole_cells": draw(st.booleans())})
    row = st.builds(row_type, *[st.none() | VALUES[kind] for kind in kinds])
    return row_type, draw(st.lists(row, min_size=1, max_size=5))


@given(tables(), st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_tables_fit_a_hundred_columns(made, exact):
    row_type, rows = made
    lines = list(table_lines(rows, columns_of(row_type), exact=exact, width=100))
    assert max(map(len, lines)) <= 100
    assert all(line.isprintable() for line in lines)


@given(tables(), st.sampled_from([30, 80, 200]))
@settings(max_examples=50, deadline=None)
def test_colour_is_put_on_what_was_laid_out(made, width):
    row_type, rows = made
    plain, painted = (
        list(table_lines(rows, columns_of(row_type), exact=False, width=width, style=Style(color, plain=False)))
        for color in (False, True)
    )
    assert [without_colour(line) for line in painted] == plain


@given(tables())
@settings(max_examples=50, deadline=None)
def test_later_rows_are_laid_out_as_the_first_of_any_table(made):
    row_type, rows = made
    number = 500  # more than settle the widths
    lines = list(table_lines(rows * (number + 1), columns_of(row_type), exact=False, width=3000))
    headers = len(lines) - len(rows) * (number + 1)
    assert lines[headers : headers + len(rows)] == lines[-len(rows) :]


def test_findings_are_never_limited():
    finding = samples.triage().data.findings[0]
    shown = text_of(Report(samples.Triage((finding,) * 3, samples.Ledger((), 0))), limit=1)
    assert "3  WARNING   fragmentation" in shown
    assert isinstance(finding, Finding)


def arena_row(share):
    """A row of ``glibc arenas`` in which every cell has its usual length."""
    values = {
        "address": 0x7F4590000030, "kind": "thread", "system_mem": 132 << 20,
        "in_use_bytes": round(share * (132 << 20)), "tcache_bytes": 7000, "bins_bytes": 1000 << 10,
        "top_bytes": 119 << 10, "trimmable_bytes": 932 << 10, "in_use_share": share, "bar": Bar(share), "heaps": 1,
        "attached": 1, "in_flux": False, "state": "in flux",
        "threads": tuple(ThreadRef(number, 1, None) for number in range(1, 30)),
    }  # fmt: skip
    return ArenaRow(**{field.name: values.get(field.name, 1) for field in dataclasses.fields(ArenaRow)})


@pytest.mark.parametrize("share", [0.95, 0.5])
@pytest.mark.parametrize("width", [80, 100, 160])
def test_bars_of_arenas_stand_where_they_take_no_line(width, share):
    columns, row = columns_of(ArenaRow), arena_row(share)
    lines = list(table_lines([row], columns, exact=False, width=width))
    without = [column for column in columns if column.name != "bar"]
    bare = list(table_lines([row], without, exact=False, width=width))
    assert max(map(len, lines)) <= width and len(lines) == len(bare)
    if width == 80:
        assert lines == bare
        return
    (drawn,) = [line for line in lines if "█" in line]
    assert drawn.count("█") == int(18 * share) and re.search(r" % +█", drawn)  # beside the share that it shows

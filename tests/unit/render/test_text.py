"""The text of reports: goldens for the whole, properties for tables, streams that must stay streams."""

from __future__ import annotations

import os
import weakref
from dataclasses import make_dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdbext import render
from gdbext.render.tables import columns_of, table_lines
from gdbext.report import Finding, Kind, Problem, Report, Rows, ThreadRef, column

from . import samples

GOLDEN = Path(__file__).parents[2] / "golden"
# GDBEXT_REGENERATE=1 writes them anew.
CASES = {
    "arenas": (samples.arenas, {"exact": False, "limit": None}),
    "arenas-exact": (samples.arenas, {"exact": True, "limit": 2}),
    "chunks-limited": (lambda: samples.chunks(1_000_000), {"exact": False, "limit": 3}),
    "triage": (samples.triage, {"exact": False, "limit": None}),
    "many-problems": (samples.many_problems, {"exact": False, "limit": None}),
}


def text_of(report, exact=False, limit=None, width=100):
    return "".join(render.text(report, exact=exact, limit=limit, width=width))


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


def test_incomplete_comes_first():
    assert text_of(samples.arenas()).startswith("INCOMPLETE: ")


def test_hostile_names_do_not_reach_the_terminal():
    row = samples.ArenaRow(1, "\x1b[31m\nred", 1, 0.5, (ThreadRef(1, 1, "a\x07b\u2028"),), True)
    shown = text_of(Report(samples.Arenas((row,), None, None), problems=[Problem("x", None, "\x1b]0;t\x07")]))
    assert not set("\x1b\x07\u2028") & set(shown)
    assert "\\x1b[31m\\nred" in shown


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
    assert "INCOMPLETE: stopped after 3 rows" in shown


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
    lines = text_of(samples.chunks(1200), limit=0).splitlines()[1:1202]
    assert len({len(line) for line in lines if line.endswith("in use")}) == 1


def test_later_text_may_be_longer():
    def make():
        yield from samples.chunk_rows(500)
        yield samples.Chunk(0x7F0000000000, 1 << 40, "s" * 60)

    last = text_of(Report(samples.Chunks(Rows(make, samples.Chunk, 501), 501)), limit=0).splitlines()[-3]
    assert last == "0x7f0000000000     1.0 TiB  " + "s" * 60


def test_numbers_are_never_shortened_and_paths_keep_their_ends():
    row_type = make_dataclass("Row", [("path", str, column("path")), ("n", int, column("n", Kind.COUNT))])
    row = row_type("/very/long/directory/of/some/library/libsomething.so.6", 10**30)
    lines = list(table_lines([row], columns_of(row_type), exact=False, width=60))
    assert str(10**30) in lines[-1]
    assert lines[-1].startswith("/very") and "…" in lines[-1] and ".so.6" in lines[-1]
    assert max(map(len, lines)) <= 60


def test_sentences_in_the_last_column_are_wrapped():
    row_type = make_dataclass("Row", [("n", int, column("n", Kind.COUNT)), ("says", str, column("says"))])
    row = row_type(7, "one two three four five six seven eight nine ten")
    lines = list(table_lines([row] * 499, columns_of(row_type), exact=False, width=30))
    assert lines[2:4] == ["7  one two three four five six", "   seven eight nine ten"]
    streamed = list(table_lines([row] * 501, columns_of(row_type), exact=False, width=40))
    assert streamed[-2:] == streamed[2:4]
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
    assert max(map(len, lines)) <= 50 and len(lines) == 3
    assert "jemalloc 5.3.0" in lines[2] and lines[2].endswith("101 +18 more") and "nn…" in lines[2]
    below = list(table_lines([row], columns_of(row_type), exact=False, width=28))
    assert max(map(len, below)) <= 28
    assert any("jemalloc 5.3.0" in line for line in below)
    assert any("101, 102" in line and "more" in line for line in below)


def test_too_many_columns_go_below_under_the_first():
    fields = [("address", int, column("address", Kind.ADDRESS))]
    fields += [(f"c{at}", int, column(f"c{at}", Kind.COUNT)) for at in range(20)]
    row_type = make_dataclass("Wide", fields)
    lines = list(table_lines([row_type(16, *[10**8] * 20)], columns_of(row_type), exact=False, width=100))
    assert max(map(len, lines)) <= 100
    assert sum(line.count("0x10") for line in lines) == 3
    assert sum(line.count(str(10**8)) for line in lines) == 20


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
@settings(max_examples=100, deadline=None)
def test_tables_fit_a_hundred_columns(made, exact):
    row_type, rows = made
    lines = list(table_lines(rows, columns_of(row_type), exact=exact, width=100))
    assert max(map(len, lines)) <= 100
    assert all(line.isprintable() for line in lines)


@given(tables())
@settings(max_examples=50, deadline=None)
def test_the_fast_layout_is_tabulates(made):
    row_type, rows = made
    number = 500  # more than tabulate lays out
    lines = list(table_lines(rows * (number + 1), columns_of(row_type), exact=False, width=3000))
    headers = len(lines) - len(rows) * (number + 1)
    assert lines[headers : headers + len(rows)] == lines[-len(rows) :]


def test_findings_are_never_limited():
    finding = samples.triage().data.findings[0]
    shown = text_of(Report(samples.Triage((finding,) * 3, samples.Ledger((), 0))), limit=1)
    assert "3. [warning] fragmentation" in shown
    assert isinstance(finding, Finding)

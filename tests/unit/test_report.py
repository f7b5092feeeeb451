"""What a report amounts to, and rows that are made before they are printed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from gdbext import render
from gdbext.grammar.exchange import (
    Question,
    Trailer,
    answer_path,
    find_trailer,
    read_question,
    write_question,
    write_trailer,
)
from gdbext.report import Kind, Report, Rows, Status, column, exit_status, hidden, rendered, rows_of, table


@dataclass(frozen=True)
class Row:
    number: int = column("number", Kind.COUNT)


@dataclass(frozen=True)
class Inner:
    rows: Rows = table("Inner")


@dataclass(frozen=True)
class Data:
    rows: Rows = table("Rows")
    inner: Inner = table("In")


@pytest.mark.parametrize(
    ("findings", "complete", "status"),
    [
        (False, True, Status.CLEAN),
        (True, True, Status.FINDINGS),
        (True, False, Status.FINDINGS),
        (False, False, Status.PARTIAL),
    ],
)
def test_findings_beat_what_was_not_examined(findings, complete, status):
    report = Report(None, findings=findings, complete=complete)
    assert exit_status(report) == status
    document = "".join(render.json_pieces(report, schema="x/2", target=None, limit=None))
    assert document.endswith(f'"status": {int(status)}}}\n')


class Source:
    """Rows that are counted while they are made."""

    def __init__(self, count, stop=None):
        self.made = 0
        self.rows = Rows(lambda: self._make(count, stop), Row, count)

    def _make(self, count, stop):
        for number in range(count):
            if number == stop:
                raise KeyboardInterrupt
            self.made += 1
            yield Row(number)


def test_kept_rows_are_made_once_and_the_others_later():
    source = Source(10)
    assert source.rows.keep(4) and source.made == 4
    assert [row.number for row in source.rows] == list(range(10)) and source.made == 10


@pytest.mark.parametrize("most", [10, 11])
def test_nothing_is_left_to_make(most):
    source = Source(10)
    assert not source.rows.keep(most)
    assert [row.number for row in source.rows] == list(range(10)) and source.made == 10


def shown(report):
    return "".join(render.text(report, exact=False, limit=0))


@pytest.mark.parametrize("keep", [None, 2, 20])
def test_rows_that_were_stopped_make_a_report_partial(keep):
    source, whole = Source(10, stop=3), Source(2)
    report = Report(Data(source.rows, Inner(whole.rows)))
    if keep is not None:
        source.rows.keep(keep)
    page = shown(report)
    assert "not complete: stopped after 3 rows" in page and page.count("\n") > 10
    assert exit_status(report) == Status.CLEAN and exit_status(rendered(report)) == Status.PARTIAL
    assert [problem.kind for problem in rendered(report).problems] == ["interrupted"]
    assert list(rows_of(report.data)) == [source.rows, whole.rows]


def test_an_interrupt_is_heard_between_two_rows():
    source = Source(10)

    def check():
        if source.made == 5:
            raise KeyboardInterrupt

    source.rows.check = check
    report = Report(Data(source.rows, Inner(Source(0).rows)))
    assert "not complete: stopped after 4 rows" in shown(report)
    assert not rendered(report).complete


def test_a_process_is_let_go_before_a_document_ends():
    source, gone = Source(3), []
    report = Report(Data(source.rows, Inner(Source(0).rows)))

    def let_go():
        gone.append(source.made)
        return 0.5

    document = "".join(render.json_pieces(report, schema="x/2", target=None, limit=None, let_go=let_go))
    assert gone == [3] and '"held_seconds": 0.5, "complete": true' in document


def test_what_one_answer_shows_otherwise_is_no_matter_of_the_data():
    report = Report(Data([Row(1)], Inner([Row(2)])))
    labels = {(Row, "number"): "figure", **hidden(Data, ["rows"])}
    other = dataclasses.replace(report, labels=labels)
    assert shown(report) == "Rows:\nnumber\n     1\n\nIn:\nInner:\nnumber\n     2\n"
    assert shown(other) == "In:\nInner:\nfigure\n     2\n"
    pieces = [render.json_pieces(each, schema="x/2", target=None, limit=None) for each in (report, other)]
    assert len({"".join(each) for each in pieces}) == 1


def test_an_answer_without_its_whole_length_is_none(tmp_path):
    folder = str(tmp_path)
    write_question(folder, Question("blocks leaks", {"list": True}, pid=7))
    assert read_question(folder) == Question("blocks leaks", {"list": True}, pid=7)
    assert read_question(folder).schema == "gdbext/blocks-leaks/2"
    trailer = Trailer(0, True, False, 6)
    assert find_trailer(folder) is None
    write_trailer(folder, trailer)
    assert find_trailer(folder) is None
    (tmp_path / "answer").write_text("answe")
    assert find_trailer(folder) is None
    (tmp_path / "answer").write_text("answer")
    assert answer_path(folder) == str(tmp_path / "answer") and find_trailer(folder) == trailer

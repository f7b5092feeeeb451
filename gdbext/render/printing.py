"""The shell program's answers, as its question asks for them: the same whether gdb had a part in them or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Iterable, Iterator, Optional

from gdbext.errors import GdbextError
from gdbext.grammar.arguments import Arguments
from gdbext.grammar.catalogue import CommandSpec
from gdbext.grammar.exchange import Question, Trailer
from gdbext.report import Report, Status, exit_status, rows_of

if TYPE_CHECKING:
    from gdbext.target import Target


class Stop:
    """An interrupt that is heard between two rows, so that what is printed stays whole."""

    def __init__(self) -> None:
        self.asked = False

    def note(self, number: int, frame: object) -> None:
        """Take the signal."""
        self.asked = True

    def check(self) -> None:
        """Raise KeyboardInterrupt where it has come."""
        if self.asked:
            raise KeyboardInterrupt

    def heed(self, report: Report) -> None:
        """Have the report's rows heard."""
        for rows in rows_of(report.data):
            rows.check = self.check


def find_limit(question: Question, spec: CommandSpec, arguments: Arguments, report: Report) -> Optional[int]:
    """Return how many rows of a table are wanted at most, None for all."""
    from gdbext.render.textual import DEFAULT_LIMIT

    asked: Optional[int] = arguments.value("limit")
    if asked is not None or question.json or report.bare:
        return asked or None
    return (DEFAULT_LIMIT if spec.shown is None else spec.shown) or None


def json_pieces(
    spec: CommandSpec,
    arguments: Arguments,
    report: Report,
    target: Optional[Target],
    let_go: Optional[Callable[[], Optional[float]]] = None,
) -> Iterable[str]:
    """Return the document in pieces.

    :param let_go: lets a process go on when its memory is no longer needed.
    """
    from gdbext import render

    more = {} if let_go is None else {"let_go": let_go}
    return render.json_pieces(report, schema=spec.schema, target=target, limit=arguments.value("limit"), **more)


def text_pieces(question: Question, arguments: Arguments, report: Report, limit: Optional[int]) -> Iterator[str]:
    """Return the page in pieces."""
    from gdbext import render

    exact, evidence = arguments.flag("bytes"), arguments.flag("evidence")
    return render.text(
        report,
        exact=exact,
        limit=limit or 0,
        width=question.width,
        color=question.color,
        evidence=evidence,
        plain=question.plain,
    )


def error_text(question: Question, target: Optional[Target], fault: GdbextError) -> str:
    """Return what is in the place of an answer."""
    if not question.json:
        return ""
    from gdbext import render

    return render.error_json(question.schema, target, fault)


def make_trailer(report: Optional[Report], fault: Optional[GdbextError], size: int) -> Trailer:
    """Return what the exit status is made of.

    :param report: as it was printed.
    :param size: bytes of the answer.
    """
    if fault is not None:
        error = {"kind": fault.kind, "message": fault.message, "hint": fault.hint}
        return Trailer(int(Status.FAILED), False, False, size, error)
    assert report is not None
    return Trailer(int(exit_status(report)), bool(report.complete), bool(report.findings), size)

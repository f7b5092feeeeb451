"""What a session answers: a report with its forms, and tables as rows, columns, Arrow and pandas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NoReturn, Optional, Sequence

from gdbext.report import Evidence, Finding, Problem, Report, Rows, Status, exit_status

if TYPE_CHECKING:
    import pyarrow

    from gdbext.columns import Batch
    from gdbext.target import Target

_WIDTH = 100


class Answer:
    """One answer; ``str`` of it is the page that the command prints.

    :param report: plain data with evidence and problems; ``report.data`` is the dataclass that ``docs/json.md`` lists.
    :param schema: name and version of its JSON, ``"gdbext/triage/2"``.
    :param target: what it is about.
    """

    def __init__(self, report: Report, schema: str, target: Optional[Target]) -> None:
        self.report = report
        self.schema = schema
        self.target = target

    def __reduce__(self) -> NoReturn:
        raise TypeError("an answer cannot be copied or pickled: its to_json(), to_dict() and to_arrow() can")

    @property
    def data(self) -> Any:
        """The command's dataclass."""
        return self.report.data

    @property
    def findings(self) -> Sequence[Finding]:
        """What is wrong, worst first; none where the command has no list of findings."""
        return tuple(getattr(self.report.data, "findings", ()))

    @property
    def problems(self) -> Sequence[Problem]:
        """What could not be read or believed, and what was not examined."""
        return self.report.problems

    @property
    def evidence(self) -> Sequence[Evidence]:
        """Why the answer is to be believed."""
        return self.report.evidence

    @property
    def complete(self) -> bool:
        """Whether everything was examined."""
        return self.report.complete

    @property
    def status(self) -> Status:
        """The exit status that the program would have."""
        return exit_status(self.report)

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = _WIDTH, limit: Optional[int] = None, color: bool = False, exact: bool = False) -> str:
        """Return the page.

        :param width: characters of a line.
        :param limit: rows of each table at most; 0 is all, None the usual number.
        :param exact: sizes as plain digits.
        """
        from gdbext import render

        return "".join(render.text(self.report, exact=exact, limit=limit, width=width, color=color))

    def to_json(self) -> str:
        """Return the document that ``--json`` writes."""
        from gdbext import render

        return "".join(render.json_pieces(self.report, schema=self.schema, target=self.target, limit=None))

    def to_dict(self) -> Mapping[str, Any]:
        """Return that document as Python objects."""
        document: Mapping[str, Any] = json.loads(self.to_json())
        return document

    def to_arrow(self, table: Optional[str] = None) -> pyarrow.Table:
        """Return one table.

        :param table: its name in the JSON; None where there is only one.
        :raises UsageError: there is no such table, or several and none was named.
        :raises MissingDependencyError: pyarrow is not installed.
        """
        from gdbext import render

        return render.to_arrow(self.report, table)


class Table:
    """Rows of one table, which may be millions: one by one, as columns, as Arrow.

    :param answer: that it is a part of, with what could not be read.
    """

    def __init__(self, rows: Rows[Any], answer: Answer) -> None:
        self._rows = rows
        self.answer = answer

    def __reduce__(self) -> NoReturn:
        raise TypeError("a table cannot be copied or pickled: its rows and its to_arrow() can")

    @property
    def complete(self) -> bool:
        """Whether everything was examined."""
        return self.answer.complete

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def __len__(self) -> int:
        return sum(1 for _ in self._rows) if self._rows.total is None else self._rows.total

    def batches(self) -> Iterator[Batch]:
        """Iterate over many rows at a time: by name, a column each."""
        return self._rows.batches()

    def to_arrow(self) -> pyarrow.Table:
        """Return all of it.

        :raises MissingDependencyError: pyarrow is not installed.
        """
        from gdbext import render

        return render.rows_to_arrow(self._rows)

    def to_pandas(self) -> Any:
        """Return all of it as a DataFrame, by way of Arrow; errors as :meth:`to_arrow`."""
        return self.to_arrow().to_pandas()

"""What every answer about reachability says beside its data."""

from __future__ import annotations

from typing import Iterator, Sequence

from gdbext.analysis.reach.graph import Reach
from gdbext.heap.reading import evidence_of, problems_of
from gdbext.report import Evidence, Problem, Report
from gdbext.wording import count_text, grouped


def report_on_reach(
    reach: Reach,
    data: object,
    problems: Sequence[Problem] = (),
    notes: Sequence[str] = (),
    evidence: Sequence[Evidence] = (),
) -> Report:
    """Return a report with all that is to be said about how heaps and roots were read.

    It is incomplete where anything is missing that could point at a block, or something was stopped. Damage is told,
    and leaves it complete.

    :param problems: besides those of the heaps and of the search.
    :param evidence: likewise.
    """
    every = [*problems_of(reach.heaps, brief=True), *reach.marked.problems, *problems]
    stopped = any(problem.kind == "interrupted" for problem in problems)
    shown = [*evidence_of(reach.heaps), *evidence, *_headers(reach)]
    return Report(data, shown, every, reach.whole and not stopped, notes)


def _headers(reach: Reach) -> Iterator[Evidence]:
    """Iterate over what shows that pointers behind headers are start pointers."""
    for number, header in enumerate(reach.marked.headers.found if reach.marked.headers else ()):
        which = "the blocks left" if number else "the possibly leaked blocks that interior pointers lead to"
        figures = f"{grouped(header.blocks)} of {grouped(header.of)}; chance would give {header.chance:.1%}"
        where = f"1/{header.part} into them" if header.part else f"{count_text(header.offset, 'byte')} into them"
        yield Evidence("headers", f"{header.share:.1%} of {which} have one {where} ({figures}): it is a start pointer")

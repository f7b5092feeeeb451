"""What a core lacks, and what that means for an answer: one rule for all commands.

A core that was truncated, or filtered so that it lacks what a program wrote, gives answers that are not
complete. One that only lacks pages of unchanged files (the usual ``coredump_filter``) is complete.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, NamedTuple, Optional

from gdbext.errors import NoHeapError
from gdbext.memory import check_reads
from gdbext.report import Problem, Report
from gdbext.target import Target
from gdbext.wording import size_text

# Problems that say that memory is missing in which an answer, or a part of it, may have been.
MISSING = frozenset(
    (
        "truncated-core", "filtered-core", "damaged-core", "no-mappings", "absent-memory", "no-main-arena",
        "swapped-memory", "not-searched", "unreadable-memory",
        "changed-core", "not-copied", "not-dumped",
        "arena-ring", "top-address",
    )
)


class Unexamined(NamedTuple):
    """A part of the question that nothing was found out about, so that the answer is not complete.

    :param what: as the verdict names it ("leaks").
    :param why: and how far it came ("stopped after 10 s of CPU time").
    :param next: the command, or the setting, that goes further; "" where none does.
    :param kind: of the problem.
    """

    what: str
    why: str
    next: str = ""
    kind: str = "not-examined"

    def __str__(self) -> str:
        return f"{self.what} ({self.why})"

    @property
    def problem(self) -> Problem:
        """The same for the list of problems."""
        return Problem(self.kind, None, f"{self}{f'; next: {self.next}' if self.next else ''}")


def is_whole(problems: Iterable[Problem]) -> bool:
    """Whether none of the problems says that memory is missing."""
    return not any(problem.kind in MISSING for problem in problems)


def with_target(report: Report, target: Target) -> Report:
    """Return a report that begins with the target's own problems, and is complete only if nothing is missing."""
    own = [*target.problems, *check_reads(target.memory)]
    problems = [*own, *(problem for problem in report.problems if problem not in own)]
    return replace(report, problems=problems, complete=report.complete and is_whole(problems))


def with_clock(report: Report, seconds: int) -> Report:
    """Return a report that says that a clock has cut it short, since another run may come to another answer.

    :param seconds: after which that was; 0: it was not.
    """
    if not seconds:
        return report
    message = f"set gx time-budget ended this after {seconds} s: another run may come to another answer"
    return replace(report, problems=[*report.problems, Problem("time-limit", None, message)], complete=False)


def find_gap(target: Target) -> Optional[str]:
    """Return in words what of what the program could write is not in the core; None when nothing is missing."""
    if is_whole(target.problems):
        return None
    if target.live:
        return next((one.message for one in target.problems if one.kind == "swapped-memory"), "much cannot be read")
    absent = sum(region.size for region in target.index.regions if region.writable and region.source == "absent")
    return f"{size_text(absent) if absent else 'much'} of its writable memory"


def explained(error: NoHeapError, target: Target) -> NoHeapError:
    """Return the error with the reason, where the heap may be in what the core lacks."""
    gap = find_gap(target)
    if gap is None:
        return error
    return NoHeapError(error.message, f"{gap} is not in the core, and the heap may be there: take the core again")

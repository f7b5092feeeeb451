"""What a core lacks, and what that means for an answer: one rule for all commands.

A core that was truncated, or filtered so that it lacks what a program wrote, gives answers that are not
complete. One that only lacks pages of unchanged files (the usual ``coredump_filter``) is complete.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Optional

from gdbext.errors import NoHeapError
from gdbext.report import Problem, Report
from gdbext.target import Target
from gdbext.wording import size_text

# Problems that say that memory is missing in which an answer, or a part of it, may have been.
MISSING = frozenset(
    (
        "truncated-core", "filtered-core", "damaged-core", "no-mappings", "absent-memory", "no-main-arena",
        "swapped-memory", "not-searched",
    )
)


def is_whole(problems: Iterable[Problem]) -> bool:
    """Whether none of the problems says that memory is missing."""
    return not any(problem.kind in MISSING for problem in problems)


def with_target(report: Report, target: Target) -> Report:
    """Return a report that begins with the target's own problems, and is complete only if nothing is missing."""
    own = list(target.problems)
    problems = [*own, *(problem for problem in report.problems if problem not in own)]
    return replace(report, problems=problems, complete=report.complete and is_whole(problems))


def find_gap(target: Target) -> Optional[str]:
    """Return in words how much of what the program could write is not in the core; None when nothing is missing."""
    if is_whole(target.problems):
        return None
    if target.live:
        return next((one.message for one in target.problems if one.kind == "swapped-memory"), "much cannot be read")
    absent = sum(region.size for region in target.index.regions if region.writable and region.source == "absent")
    return f"{size_text(absent) if absent else 'much'} of its writable memory is not in the core"


def explained(error: NoHeapError, target: Target) -> NoHeapError:
    """Return the error with the reason, where the heap may be in what the core lacks."""
    gap = find_gap(target)
    if gap is None:
        return error
    return NoHeapError(error.message, f"{gap}, and the heap may be there: take the core again")

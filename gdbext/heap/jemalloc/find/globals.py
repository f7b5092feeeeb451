"""Finds every jemalloc in a target: where its globals are, and by which layout.

Order of evidence: names and types from files whose build-id is the target's own; the shipped table of builds, by
build-id; structure alone. All are held to the same invariants, and what breaks them is refused in one line.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Iterator, Sequence

from gdbext.heap.jemalloc.find.builds import find_builds
from gdbext.heap.jemalloc.find.named import Globals, find_named
from gdbext.heap.jemalloc.find.versions import may_hold_jemalloc
from gdbext.process import Module
from gdbext.progress import Progress
from gdbext.report import Problem
from gdbext.target import Target

if TYPE_CHECKING:
    from gdbext.heap.jemalloc.model import Location


@dataclass(frozen=True)
class Found:
    """What was found: jemallocs that hold, and why others do not."""

    locations: tuple[Location, ...]
    problems: tuple[Problem, ...] = ()


def find_jemallocs(target: Target, progress: Progress) -> Found:
    """Return every jemalloc of a target; none is an answer.

    A module that a better route has answered for is not looked at by the next.
    """
    if target.abi.pointer_size != 8:
        return Found(())
    named, problems = find_named(target)
    located = _locate_all(target, named, problems)
    located += _locate_all(target, find_builds(target, _modules(located)), problems)
    structural, unknown = _find_structural(target, _modules(located), progress)
    located += _locate_all(target, structural, unknown)
    problems += [one for one in unknown if not _is_told(target, problems, one)]
    return Found(tuple(located), tuple(problems))


def heap_names(locations: Sequence[Location]) -> list[str]:
    """Return what to call each jemalloc: "jemalloc", and where there are several what tells them apart.

    That is the prefix of their names, else the file, else the version, else the address of the arenas.
    """
    if len(locations) < 2:
        return ["jemalloc" for _ in locations]
    for marks in (
        [location.prefix or "" for location in locations],
        [os.path.basename(location.module.path) if location.module else "" for location in locations],
        [location.version for location in locations],
    ):
        if len(set(marks)) == len(marks) and all(marks):
            return [f"jemalloc {mark}" for mark in marks]
    return [f"jemalloc {location.arenas:#x}" for location in locations]


def _is_told(target: Target, problems: Sequence[Problem], other: Problem) -> bool:
    """Whether there is a problem already of the module that another is about."""
    module = target.find_module(other.address or 0)
    return any(module and module.base <= (one.address or 0) < module.end for one in problems)


def _modules(located: Sequence[Location]) -> set[int]:
    return {location.module.base for location in located if location.module is not None}


def _locate_all(target: Target, candidates: Sequence[Globals], problems: list[Problem]) -> list[Location]:
    if not candidates:
        return []
    from gdbext.heap.jemalloc.find.locate import locate_all  # most processes have none, and pay for none

    return locate_all(target, candidates, problems)


def _find_structural(target: Target, known: set[int], progress: Progress) -> tuple[list[Globals], list[Problem]]:
    modules = list(_for_each_suspect(target, known, progress))
    if not modules:
        return [], []
    from gdbext.heap.jemalloc.find.structural import find_structural

    return find_structural(target, modules, progress)


def _for_each_suspect(target: Target, known: set[int], progress: Progress) -> Iterator[Module]:
    for done, module in enumerate(target.modules):
        progress.at("jemalloc by structure", done, len(target.modules))
        if module.base not in known and may_hold_jemalloc(target, module):
            yield module

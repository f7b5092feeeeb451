"""``compare``: what grew and what shrank since earlier samples."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Iterable, Iterator, List, Optional, Sequence

import numpy as np

import gdbext
from gdbext.analysis.growth import report
from gdbext.analysis.growth.census import (
    Ageing,
    Census,
    count_blocks,
    count_typed,
    find_census,
    write_census,
)
from gdbext.analysis.growth.measure import Depth, measure_sample
from gdbext.analysis.growth.sample import TYPE, Sample, is_same_program
from gdbext.analysis.growth.sampletext import MOST_BYTES, is_sample, read_sample, sample_text
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.pins.path import paths
from gdbext.analysis.reach.model import PLAIN
from gdbext.errors import UsageError
from gdbext.files import private
from gdbext.grammar.exchange import SAMPLE_START, is_recording
from gdbext.heap.model import USED_STATES
from gdbext.kernels import NOT_REACHED
from gdbext.recording.reading import Recorded, read_recording
from gdbext.recording.story import story_of
from gdbext.report import Report
from gdbext.session import FEW_BLOCKS, Session

_SAMPLE = "sample.json"  # in a folder of ours
_MOST_SAMPLES = 200  # of a file or a recording
_PATHS = 3  # that are searched for
_HINT = "name a core, a recording, or a file with a sample"


@dataclass(frozen=True)
class Taken:
    """A sample, and the blocks where they are known.

    :param source: what it was taken of, in words.
    """

    sample: Sample
    census: Optional[Census]
    source: str


def compare(session: Any, arguments: Any) -> Report:
    """Return what grew; for the program, which asks for one sample after another, keep one instead."""
    given = arguments.given
    if "keep" in given:
        return _keep(_take(session, arguments.flag("types")), given["keep"])
    named = [os.path.expanduser(name) for name in given.get("earlier") or arguments.words]
    recorded = {name: read_recording(name, _MOST_SAMPLES) for name in named if is_recording(name)}
    every = [_of(recorded[name]) if name in recorded else list(_read(name, arguments)) for name in named]
    earlier = [one for taken, held in zip_longest(every, given.get("held", ())) for one in _held(taken, held)]
    selected = None if given.get("sampled") else session
    if selected is not None:
        earlier.append(_take(selected, arguments.flag("types")))
    if len(earlier) < 2:
        raise UsageError("there is one sample: nothing to compare it with" if earlier else "nothing to compare", _HINT)
    return _with_story(_compared(selected, earlier, arguments.value("memory-limit") or 0), recorded.values())


def _with_story(report: Report, recorded: Iterable[Recorded]) -> Report:
    """Return a report that also says what recordings say beside their samples."""
    notes = [line for one in recorded for line in story_of(one)]
    problems = [problem for one in recorded for problem in one.problems]
    return replace(report, notes=[*report.notes, *notes], problems=[*report.problems, *problems])


def _take(session: Session, typed: bool) -> Taken:
    heaps = session.heaps()
    used = sum(int(np.count_nonzero(heap.blocks.having(USED_STATES))) for heap in heaps)
    depth = Depth.TYPES if typed or used <= FEW_BLOCKS else Depth.SIZES
    sample = measure_sample(session, depth)
    identity = session.target.identity
    source = os.path.basename(identity.core) if identity.core else report.source_text(sample.process)
    return Taken(sample, _count(session, TYPE in sample.rows), source)


def _count(session: Session, typed: bool) -> Census:
    if not typed:
        return count_blocks(session.heaps())
    reach = session.reach(PLAIN)
    return count_typed(reach, session.block_types(reach))


def _keep(taken: Taken, folder: str) -> Report:
    if taken.census is not None:
        write_census(taken.census, folder)
    with open(os.path.join(folder, _SAMPLE), "x", encoding="ascii", opener=private) as stream:
        stream.write(f"{sample_text(taken.sample)}\n{json.dumps(taken.source)}")
    return Report(report.kept(taken.sample))


def _held(taken: Sequence[Taken], seconds: Optional[float]) -> Sequence[Taken]:
    """Return samples for which a process stood still so long; None where it is not known."""
    if seconds is None:
        return taken
    return [replace(one, sample=replace(one.sample, held_seconds=seconds)) for one in taken]


def _of(recorded: Recorded) -> Sequence[Taken]:
    return [Taken(sample, None, report.source_text(sample.process)) for sample in recorded.samples]


def _read(name: str, arguments: Any) -> Iterator[Taken]:
    """Iterate over earlier samples: of a folder of ours, of a file with some, or of a core, closed again at once."""
    if os.path.isdir(name):
        yield _read_kept(name)
    elif (lines := _find_lines(name)) is not None:
        source = os.path.basename(name)
        for number, text in enumerate(lines, 1):
            yield Taken(read_sample(text), None, source if len(lines) == 1 else f"{source}:{number}")
    else:
        with gdbext.open_core(name) as session:
            yield _take(session, arguments.flag("types"))


def _read_kept(folder: str) -> Taken:
    with open(os.path.join(folder, _SAMPLE), encoding="ascii") as stream:
        text, _, source = stream.read().partition("\n")
    return Taken(read_sample(text), find_census(folder), json.loads(source))


def _find_lines(path: str) -> Optional[Sequence[str]]:
    """Return the lines of a file that holds samples, of many some that are equally far apart; None of any other.

    :raises UsageError: it cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            if not is_sample(stream.readline(len(SAMPLE_START)).decode("ascii", "replace")):
                return None
            stream.seek(0)
            lines = list(iter(lambda: stream.readline(MOST_BYTES + 1).decode("ascii", "replace"), ""))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", _HINT) from None
    step = (len(lines) - 1) // (_MOST_SAMPLES - 1) + 1
    return lines[(len(lines) - 1) % step :: step]


def _compared(session: Optional[Session], taken: List[Taken], limit: int) -> Report:
    samples, now = [one.sample for one in taken], taken[-1]
    for one in taken:
        if not is_same_program(one.sample.process, now.sample.process):
            other = f"{one.source} is of {one.sample.process.program}"
            raise UsageError(f"these are different programs: {other}, {now.source} of {now.sample.process.program}")
    followed = _followed(taken)
    ageing = Ageing(followed) if followed else None
    known = report.Of(limit=limit)
    if session is not None and TYPE in now.sample.rows and now.census is not None:
        known = replace(known, find_path=_PathFinder(session, ageing).find)
    if ageing is not None:
        known = replace(known, exchange=ageing.exchange(), ages=ageing.ages())
    return report.compare(samples, [one.source for one in taken], known)


def _followed(taken: Sequence[Taken]) -> Sequence[Census]:
    """Return the blocks of each sample, or nothing where they cannot be followed from the first to the last."""
    found = [one.census for one in taken if one.census is not None]
    if len(found) < len(taken) or not report.may_age([one.sample for one in taken]):
        return ()
    return found


class _PathFinder:
    """Says how the newest blocks of a type or size are kept."""

    def __init__(self, session: Session, ageing: Optional[Ageing]) -> None:
        self._session = session
        self._ageing = ageing
        self._left = _PATHS

    def find(self, kind: str, key: str, sure: bool) -> Optional[str]:
        """Return what keeps one of them, in words; None where none is reached, or it is not worth the search."""
        reach = self._session.reach(PLAIN)
        self._left -= 1
        if self._left < 0 or (not sure and len(reach) > FEW_BLOCKS):
            return None
        types = self._session.block_types(reach)
        codes = [code for code, one in enumerate(types.types) if one.name == key]
        mine = np.isin(types.code, codes) if kind == TYPE else reach.size == np.uint64(int(key))
        rows = np.flatnonzero(mine & (reach.states != NOT_REACHED))
        if not len(rows):
            return None
        if self._ageing is not None:
            born = self._ageing.born[rows]
            rows = rows[born == born.max()]
        address = int(reach.address[rows[len(rows) // 2]])
        places = Places(reach, self._session.root_names, lambda: types)
        return str(paths(reach, places, address).data.kept_by)

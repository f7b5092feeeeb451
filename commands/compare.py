"""``compare``: what grew and what shrank since earlier samples."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any, List, Optional, Sequence

import numpy as np

import gdbext
from gdbext.analysis.growth import report
from gdbext.analysis.growth.census import (
    Ageing,
    Census,
    count_blocks,
    count_typed,
    exchange,
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
from gdbext.heap.model import USED_STATES
from gdbext.kernels import NOT_REACHED
from gdbext.report import Report
from gdbext.session import FEW_BLOCKS, Session

_SAMPLE = "sample.json"  # in a folder of ours
_HINT = "name a core, or a file with a sample"


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
    earlier = [_read(name, arguments) for name in given.get("earlier") or arguments.words]
    if not earlier:
        raise UsageError("nothing to compare with", _HINT)
    if not given.get("sampled"):
        earlier.append(_take(session, arguments.flag("types")))
    return _compared(session, earlier, arguments.value("memory-limit") or 0)


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


def _read(name: str, arguments: Any) -> Taken:
    """Return an earlier sample: a folder of ours, a file with one, or a core, which is read now and closed again."""
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return _read_kept(path)
    text = _find_line(path)
    if text is not None:
        return Taken(read_sample(text), None, os.path.basename(path))
    with gdbext.open_core(path) as session:
        return _take(session, arguments.flag("types"))


def _read_kept(folder: str) -> Taken:
    with open(os.path.join(folder, _SAMPLE), encoding="ascii") as stream:
        text, _, source = stream.read().partition("\n")
    return Taken(read_sample(text), find_census(folder), json.loads(source))


def _find_line(path: str) -> Optional[str]:
    """Return the line of a file that holds a sample, None of any other.

    :raises UsageError: it cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            line = stream.readline(MOST_BYTES + 1).decode("ascii", "replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", _HINT) from None
    return line if is_sample(line) else None


def _compared(session: Session, taken: List[Taken], limit: int) -> Report:
    samples, now = [one.sample for one in taken], taken[-1]
    for one in taken:
        if not is_same_program(one.sample.process, now.sample.process):
            other = f"{one.source} is of {one.sample.process.program}"
            raise UsageError(f"these are different programs: {other}, {now.source} of {now.sample.process.program}")
    followed = _followed(taken)
    ageing = Ageing(followed) if followed else None
    known = report.Of(limit=limit)
    if TYPE in now.sample.rows and now.census is not None:
        known = replace(known, find_path=_PathFinder(session, ageing).find)
    if ageing is not None:
        known = replace(known, exchange=exchange(followed[0], followed[-1]), ages=ageing.ages())
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

    def find(self, kind: str, key: str) -> Optional[str]:
        """Return what keeps one of them, in words; None where none is reached."""
        reach = self._session.reach(PLAIN)
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

"""Leaks for ``triage``: looked for within a bound of time and memory, told where there is no doubt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Optional, Sequence, TypeVar

import numpy as np

from gdbext.analysis.blocktypes.model import BlockTypes
from gdbext.analysis.leakdoubts import doubts_text, find_doubts
from gdbext.analysis.leakfindings import make_finding
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import Reading
from gdbext.analysis.thresholds import Thresholds, thresholds
from gdbext.analysis.triage import NOTHING, Beyond
from gdbext.errors import NoHeapError, TooLargeError
from gdbext.heap.model import Heap
from gdbext.kernels import MAYBE_REACHED, NOT_REACHED
from gdbext.progress import Deadline, Progress, checked
from gdbext.report import Evidence, Settings
from gdbext.target import Target
from gdbext.wording import count_text, size_text

SECONDS = "leak-search-seconds"
COPY = "copied-memory"

Result = TypeVar("Result")

_REMOTE = 32  # of a process behind a wire that part may be copied of what may be of one on this machine
_TAGS = 0xFFFF << 48  # addresses of user space have no bits there


@dataclass(frozen=True)
class Ports:
    """What does the work.

    :param reach: reads a target's reachability, given how many bytes may be copied (0: any number); it raises as
        :func:`gdbext.analysis.reach.mark.read_reach`.
    :param tagged: the same with bits cleared, however much is copied; nobody keeps it.
    :param types: what the blocks are; None where that cannot be known; raises KeyboardInterrupt.
    """

    reach: Callable[[Progress, int], Reach]
    tagged: Callable[[Reading, Progress], Reach]
    types: Callable[[Reach, Progress], Optional[BlockTypes]]


def search(
    target: Target,
    heaps: Sequence[Heap],
    settings: Settings,
    ports: Ports,
    progress: Progress,
    asked: bool = False,
) -> Beyond:
    """Return the finding ``leak``, if there is one, and what was looked at.

    :param asked: whether the user wants it whatever it costs, and where roots are missing, too.
    """
    if not heaps or any(heap.interrupted for heap in heaps) or not (asked or settings.get(SECONDS, 0)):
        return NOTHING
    limits = thresholds(settings, target)
    deadline = Deadline(progress, None if asked else settings[SECONDS])
    most = 0 if asked else _bound(target, settings)
    try:
        with checked(deadline.check):
            return _judged(ports.reach(deadline, most), ports, limits, deadline, asked)
    except NoHeapError:
        return NOTHING
    except TooLargeError as error:
        return _told(f"not looked for: {error.message}; triage --leaks does it")
    except KeyboardInterrupt:
        if not deadline.over:
            return replace(_told("not judged: interrupted"), complete=False)
        return _told(f"not judged: not done in {deadline.seconds} s; set gx {SECONDS} N gives it more")
    finally:
        deadline.lift()


def _bound(target: Target, settings: Settings) -> int:
    """Return how many bytes of a process may be copied; 0 is any number."""
    most = settings.get(COPY, 0)
    return max(most // _REMOTE, 1) if most and target.live and target.local_pid is None else most


def _told(message: str) -> Beyond:
    return Beyond(evidence=[Evidence("leaks", message)])


def _judged(reach: Reach, ports: Ports, limits: Thresholds, deadline: Deadline, asked: bool) -> Beyond:
    leaked = int(reach.size[reach.states == NOT_REACHED].sum())
    if not leaked:
        return _told(_looked_text(reach))
    if not limits.reached(leaked):
        small = f"{size_text(leaked)} leaked, too little for a finding; blocks leaks tells which"
        return _told(f"{_looked_text(reach)}: {small}")
    doubts = find_doubts(reach)
    if doubts and not asked:
        what = f"{_looked_text(reach)}; not judged, since {doubts_text(doubts)} cannot be looked at"
        return _told(f"{what}: triage --leaks judges nevertheless")
    tagged = _leaked_without_tags(reach, ports, deadline)
    if tagged is not None and not limits.reached(tagged) and not asked:
        hidden = f"pointers with tags in their high bits lead to all but {size_text(tagged)} of it"
        return _told(f"{_looked_text(reach)}; but {hidden}: blocks leaks --clear {_TAGS:#x}")
    sure = tagged is not None and limits.reached(tagged)
    types = _in_time(lambda: ports.types(reach, deadline), deadline)
    return Beyond([make_finding(reach, types, sure)], [Evidence("leaks", _looked_text(reach))])


def _looked_text(reach: Reach) -> str:
    leaked, maybe = (int(np.count_nonzero(reach.states == state)) for state in (NOT_REACHED, MAYBE_REACHED))
    return f"of {count_text(len(reach), 'block')} in use {leaked} leaked, {maybe} maybe leaked"


def _leaked_without_tags(reach: Reach, ports: Ports, deadline: Deadline) -> Optional[int]:
    """Return the bytes that stay leaked when high bits of pointers are cleared; None where there was no time for it.

    Mangled pointers are not tried: revealed, pointers to anything near lead into blocks by chance, and hide leaks.
    """
    if reach.rules.word < 8:
        return int(reach.size[reach.states == NOT_REACHED].sum())
    other = _in_time(lambda: ports.tagged(Reading(_TAGS), deadline), deadline)
    return None if other is None else int(other.size[other.states == NOT_REACHED].sum())


def _in_time(work: Callable[[], Optional[Result]], deadline: Deadline) -> Optional[Result]:
    """Return what comes of some work; None where there was no time for it."""
    try:
        return work()
    except KeyboardInterrupt:
        if not deadline.over:
            raise
        return None

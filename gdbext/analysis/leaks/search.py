"""Leaks for ``triage``: searched for within bounds, reported where there is no doubt; else why nobody knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Iterator, Optional, Sequence, TypeVar

import numpy as np

from gdbext.analysis.beyond import NOTHING, Beyond
from gdbext.analysis.blocks.sums import MMAPPED, USED, tally
from gdbext.analysis.leaks.doubts import doubts_text, find_doubts
from gdbext.analysis.missing import Unexamined
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import Reading
from gdbext.analysis.thresholds import Thresholds, thresholds
from gdbext.analysis.types.model import BlockTypes
from gdbext.errors import NoHeapError, TooLargeError
from gdbext.heap.model import Heap
from gdbext.kernels import MAYBE_REACHED, NOT_REACHED
from gdbext.progress import Deadline, Progress, checked
from gdbext.report import Evidence, Settings
from gdbext.target import Target
from gdbext.wording import count_text, grouped, size_text

SECONDS = "leak-search-seconds"
BLOCKS = "leak-search-blocks"
COPY = "copied-memory"
DEFAULT_SECONDS = 10

Result = TypeVar("Result")

_LEAKS = "leaks"
_ASK = "triage --leaks"
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
    """Return the finding ``leak``, if there is one, what was examined, and what kept it from an answer.

    A core is searched to its end, unless more blocks are in use than the user allows: no clock has a part in it. A
    process is held meanwhile, so that there the search has a limit of CPU time.

    :param asked: whether the user wants it whatever it costs, and where roots are missing, too.
    """
    if not heaps:
        return NOTHING
    limits = thresholds(settings, target)
    tallies = [tally(heap) for heap in heaps]
    blocks = sum(one.count(USED, MMAPPED) for one in tallies)
    found = _refused(target, heaps, settings, blocks, asked)
    if found is None:
        found = _examined(target, settings, ports, limits, progress, asked)
    if any(heap.interrupted for heap in heaps) or limits.reached(sum(one.size(USED, MMAPPED) for one in tallies)):
        return found
    # So little in use cannot hide a finding.
    why = [Evidence(_LEAKS, f"not examined: {one.why}") for one in found.unexamined]
    return replace(found, evidence=[*found.evidence, *why], unexamined=())


def _refused(
    target: Target, heaps: Sequence[Heap], settings: Settings, blocks: int, asked: bool
) -> Optional[Beyond]:
    """Return why there is no search, or None: there is one."""
    interrupted = [heap.allocator for heap in heaps if heap.interrupted]
    if interrupted:
        return _unexamined(f"reading the {interrupted[0]} heap was interrupted", _ASK)
    if asked:
        return None
    most = settings.get(BLOCKS, 0)
    if most and blocks > most:
        return _unexamined(f"{grouped(blocks)} blocks in use, set gx {BLOCKS} is {grouped(most)}", _ASK)
    if target.live and target.presence is None and not settings.get(SECONDS, DEFAULT_SECONDS):
        return _unexamined(f"set gx {SECONDS} is 0", _ASK)
    return None


def _examined(
    target: Target, settings: Settings, ports: Ports, limits: Thresholds, progress: Progress, asked: bool
) -> Beyond:
    held = target.live and target.presence is None and not asked  # nobody stands still for a copy
    deadline = Deadline(progress, settings.get(SECONDS, DEFAULT_SECONDS) if held else None)
    try:
        with checked(deadline.check):
            reach = ports.reach(deadline, 0 if asked else _bound(target, settings))
            return _judged(reach, ports, limits, deadline, asked)
    except (NoHeapError, TooLargeError) as error:
        return _unexamined(error.message, _ASK)
    except KeyboardInterrupt:
        if not deadline.over:
            return _unexamined("interrupted", _ASK)
        return _unexamined(f"stopped after {deadline.seconds} s of CPU time", _ASK)
    finally:
        deadline.lift()


def _bound(target: Target, settings: Settings) -> int:
    """Return how many bytes of a process may be copied; 0 is any number."""
    most = settings.get(COPY, 0)
    return max(most // _REMOTE, 1) if most and target.live and target.local_pid is None else most


def _said(message: str, reach: Reach, limits: Thresholds) -> Beyond:
    return Beyond(evidence=[Evidence(_LEAKS, message)], notes=list(_notes(reach, limits)))


def _notes(reach: Reach, limits: Thresholds) -> Iterator[str]:
    """Iterate over what is no finding, and much."""
    possibly = reach.states == MAYBE_REACHED
    size = int(reach.size[possibly].sum())
    if limits.reached(size):
        blocks = count_text(int(np.count_nonzero(possibly)), "block")
        why = "interior pointers alone lead there, as from containers, headers before objects, or by chance"
        yield f"{size_text(size)} in {blocks} possibly leaked: {why}. blocks leaks --possible lists them"


def _unexamined(why: str, next: str, evidence: Sequence[Evidence] = ()) -> Beyond:
    return Beyond(evidence=evidence, unexamined=[Unexamined(_LEAKS, why, next)])


def _judged(reach: Reach, ports: Ports, limits: Thresholds, deadline: Deadline, asked: bool) -> Beyond:
    leaked = int(reach.size[reach.states == NOT_REACHED].sum())
    if not leaked:
        return _said(_looked_text(reach), reach, limits)
    if not limits.reached(leaked):
        small = f"{size_text(leaked)} leaked, too little for a finding; blocks leaks shows which"
        return _said(f"{_looked_text(reach)}: {small}", reach, limits)
    counted = [Evidence(_LEAKS, _looked_text(reach))]
    doubts = find_doubts(reach)
    if doubts and not asked:
        why = f"{size_text(leaked)} look leaked, but {doubts_text(doubts)} cannot be read"
        return _unexamined(why, _ASK, counted)
    tagged = _leaked_without_tags(reach, ports, deadline)
    if tagged is not None and not limits.reached(tagged) and not asked:
        hidden = f"pointers with tags in their high bits lead to all but {size_text(tagged)} of it"
        why = f"{size_text(leaked)} look leaked, but {hidden}"
        return _unexamined(why, f"blocks leaks --clear {_TAGS:#x}", counted)
    from gdbext.analysis.leaks.findings import make_finding  # a healthy target needs none of it

    sure = tagged is not None and limits.reached(tagged)
    types = _in_time(lambda: ports.types(reach, deadline), deadline)
    return Beyond([make_finding(reach, types, sure)], counted)


def _looked_text(reach: Reach) -> str:
    leaked, maybe = (int(np.count_nonzero(reach.states == state)) for state in (NOT_REACHED, MAYBE_REACHED))
    return f"of {count_text(len(reach), 'block')} in use {grouped(leaked)} leaked, {grouped(maybe)} possibly leaked"


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

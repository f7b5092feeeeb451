"""``triage``: everything that may be wrong, searched for and put on one page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Optional

from gdbext.analysis.beyond import Beyond, joined
from gdbext.analysis.crash.death import find_death
from gdbext.analysis.footprint.ledger import take_account
from gdbext.analysis.footprint.residency import residency_of
from gdbext.analysis.footprint.unattributed import find_unattributed
from gdbext.analysis.leaks import search
from gdbext.analysis.locks.findings import find_lock_findings, find_notable_waits
from gdbext.analysis.locks.knowledge import read_knowledge, wants_tables
from gdbext.analysis.locks.report import Knowledge
from gdbext.analysis.missing import Unexamined
from gdbext.analysis.page import make_page
from gdbext.analysis.reach.mark import read_reach
from gdbext.analysis.reach.model import PLAIN
from gdbext.analysis.sources import Sources
from gdbext.analysis.tables.search import Looked
from gdbext.analysis.tables.variables import judge_tables
from gdbext.analysis.thresholds import thresholds
from gdbext.report import Report
from gdbext.structures.locks.census import take_census
from gdbext.structures.locks.model import Census


@dataclass
class Seen:
    """What was examined besides the heaps, for whoever has more to say of it.

    :param each: is given each hash table.
    :ivar census: None where it was interrupted, like ``known``.
    """

    each: Callable[[Looked], None] = lambda looked: None
    census: Optional[Census] = None
    known: Optional[Knowledge] = None


def triage(sources: Sources, leaks: bool = False, seen: Optional[Seen] = None) -> Report:
    """Return what is wrong with the target's memory and threads, and where the memory is.

    :param leaks: whether leaks are searched for whatever that costs, and where roots are missing, too.
    :param seen: is filled in.
    :return: its data is a :class:`gdbext.analysis.page.Triage`.
    """
    target, settings = sources.target, sources.settings
    known = residency_of(target)
    heaps = sources.heaps()
    # First: it takes as much as reachability does, and keeps nothing of it.
    account = take_account(target, heaps, known.residency)
    leaked = _search_leaks(sources, leaks)
    rest = find_unattributed(target, heaps, account, thresholds(settings, target), known.residency)
    beyond = joined(_examine_threads(sources, seen or Seen()), leaked, rest)
    died = find_death(target, heaps, sources.debug.stacks)
    return make_page(target, heaps, settings, known, beyond, died, account)


def _search_leaks(sources: Sources, asked: bool) -> Beyond:
    heaps = sources.heaps()
    ports = search.Ports(
        lambda progress, most: sources.reach(PLAIN, progress, most),
        lambda reading, progress: read_reach(sources.target, heaps, reading, progress),
        sources.leaked_types,
    )
    return search.search(sources.target, heaps, sources.settings, ports, sources.progress, asked)


def _examine_threads(sources: Sources, seen: Seen) -> Beyond:
    """Return what is wrong with locks, and with the hash tables that the program's variables lead to."""
    stacks = sources.debug.stacks
    try:
        census = take_census(sources.target, stacks, sources.progress)
    except KeyboardInterrupt:
        return Beyond(unexamined=[Unexamined("locks and hash tables", "interrupted", "lockwait")])
    # The holders of locks are looked for in these tables, so each is walked once; the walks of all may be large.
    kept: List[Looked] = []
    wanted = wants_tables(sources, census)

    def take(looked: Looked) -> None:
        seen.each(looked)
        if wanted:
            kept.append(looked)

    tables = judge_tables(sources, take)
    known = read_knowledge(sources, census, stacks, tables=kept)
    seen.census, seen.known = census, known
    found = find_lock_findings(census, known, sources.settings)
    return joined(tables, Beyond(found, waits=find_notable_waits(known, sources.settings)))

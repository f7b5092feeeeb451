"""What commands about reachability share: the tags, the reach, the types of blocks as far as there is time for them."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

from gdbext.analysis.blocks.dump import NOTHING_KNOWN, Knowledge
from gdbext.analysis.blocks.livefacts import Live
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.model import Reading
from gdbext.analysis.types.model import BlockTypes
from gdbext.errors import TooLargeError, UsageError
from gdbext.heap.model import Heap
from gdbext.report import Problem
from gdbext.session import FEW_BLOCKS

_NO_TAGS = 0xFFF000  # bits 12 to 23: no machine has tags there, and blocks differ in them
_SLOW = "take a while in so large a heap: --reach works them out"

SomeTypes = Tuple[Optional[BlockTypes], Sequence[Problem]]


def read_reading(session: Any, arguments: Any) -> Reading:
    """Return what counts as a pointer.

    :raises UsageError: when the tags are no number, or bits without which no pointer would be left.
    """
    return Reading(_read_clear(session, arguments), arguments.flag("mangled"))


def _read_clear(session: Any, arguments: Any) -> int:
    asked = arguments.value("clear")
    if not asked:
        return 0
    try:
        clear = int(session.evaluate(asked))
    except UsageError as error:
        raise UsageError(f"--clear: {error.message}", error.hint) from error
    if clear & _NO_TAGS:
        raise UsageError(
            f"--clear: {clear:#x} would clear bits that distinguish blocks",
            "name the tags alone: 0x7 in low bits, 0xff00000000000000 in the top byte",
        )
    return clear


def read_reach(session: Any, arguments: Any) -> Reach:
    """Return what can be reached by what counts as a pointer, as was asked."""
    reach: Reach = session.reach(read_reading(session, arguments))
    return reach


def find_types(session: Any, reach: Reach, leaked: bool = False) -> SomeTypes:
    """Return the types of all blocks, or of the leaked ones, and what is missing of them.

    None where that was stopped, or there is not enough memory.

    An answer about reachability holds without them.
    """
    try:
        types: BlockTypes = session.leaked_types(reach, alike=True) if leaked else session.block_types(reach)
    except KeyboardInterrupt:
        return None, [Problem("interrupted", None, "stopped while types were looked for: they are left out")]
    except TooLargeError as error:
        return None, [Problem("not-examined", None, f"types: {error.message}")]
    return types, types.problems


def read_places(session: Any, arguments: Any, reach: Reach) -> Tuple[Places, Sequence[Problem]]:
    """Return what names places, with types of blocks where they are known, asked for, or soon found; and why not."""
    types: Optional[BlockTypes] = session.known_block_types(reach)
    problems: Sequence[Problem] = ()
    if types is None and (arguments.flag("types") or len(reach) <= FEW_BLOCKS):
        types, problems = find_types(session, reach)
    return Places(reach, session.root_names, lambda: types), problems


def read_known(session: Any, arguments: Any, heaps: Sequence[Heap]) -> Tuple[Knowledge, Sequence[str]]:
    """Return reachability where it is asked for, or at hand, or soon worked out; else nothing and a note.

    A core need not be copied, so reachability is soon worked out there; types are where blocks are few.
    """
    reading, blocks = read_reading(session, arguments), sum(len(heap.blocks) for heap in heaps)
    asked, few = arguments.flag("reach"), blocks <= FEW_BLOCKS
    if not asked and session.known_reach(reading) is None:
        if not blocks:
            return NOTHING_KNOWN, ()
        if session.target.live and not few:
            return NOTHING_KNOWN, [f"reachability, type and pointers {_SLOW}"]
    try:
        reach = session.reach(reading)
    except TooLargeError as error:
        if asked:
            raise
        return NOTHING_KNOWN, [f"no reachability, type and pointers: {error}"]
    types, notes = _typed(session, reach) if asked or few else (None, [f"types {_SLOW}"])
    names = Places(reach, session.root_names, lambda: types)
    return Knowledge(Live(reach, types), names), notes


def _typed(session: Any, reach: Reach) -> Tuple[Optional[BlockTypes], Sequence[str]]:
    types, problems = find_types(session, reach)
    return types, [problem.message for problem in problems] if types is None else ()

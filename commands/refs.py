"""``blocks refs`` and ``blocks path``: who points at a block, and what way leads there from a root."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

from gdbext.commands.blocks import read_clear

from gdbext.analysis import path, refs
from gdbext.analysis.blocktypes.model import BlockTypes
from gdbext.analysis.reach.graph import Reach
from gdbext.analysis.reach.naming import Places
from gdbext.errors import UsageError
from gdbext.report import Problem, Report

_FEW_BLOCKS = 1 << 20


def find_pointers(context: Any, arguments: Any) -> Report:
    """Return who points at an address."""
    address = read_address(context, arguments, "blocks refs")
    reach = read_reach(context, arguments)
    places, problems = read_places(context, arguments, reach)
    return refs.refs(reach, places, address, arguments.flag("interior"), arguments.value("depth"), problems)


def find_path(context: Any, arguments: Any) -> Report:
    """Return what keeps the block at an address alive."""
    address = read_address(context, arguments, "blocks path")
    reach = read_reach(context, arguments)
    places, problems = read_places(context, arguments, reach)
    return path.paths(reach, places, address, arguments.value("roots") or path.ALL, problems)


def read_address(context: Any, arguments: Any, command: str) -> int:
    """Return the address that is asked about.

    :raises UsageError: when there is none.
    """
    if not arguments.expression:
        raise UsageError("an address is missing", f"{command} ADDRESS")
    return int(context.evaluate(arguments.expression))


def read_reach(context: Any, arguments: Any) -> Reach:
    """Return what can be reached, tags cleared as was asked."""
    reach: Reach = context.reach(read_clear(context, arguments))
    return reach


def read_places(context: Any, arguments: Any, reach: Reach) -> Tuple[Places, Sequence[Problem]]:
    """Return what names places, with types of blocks where they are known, asked for, or soon found; and why not."""
    types: Optional[BlockTypes] = context.known_block_types(reach)
    problems: Sequence[Problem] = ()
    if types is None and (arguments.flag("types") or len(reach) <= _FEW_BLOCKS):
        types, problems = find_types(context, reach)
    return Places(reach, context.root_names, lambda: types), problems


def find_types(context: Any, reach: Reach) -> Tuple[Optional[BlockTypes], Sequence[Problem]]:
    """Return the types of all blocks, and what is missing of them; None where that was stopped."""
    try:
        types: BlockTypes = context.block_types(reach)
    except KeyboardInterrupt:
        return None, [Problem("interrupted", None, "stopped while types were looked for: they are left out")]
    return types, types.problems

"""Objects whose type a shape fits, for functions and printers: opened without reading all of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

import gdb

from gdbext.bridge.stops import session
from gdbext.errors import UsageError
from gdbext.starting import dependencies
from gdbext.structures.walk.counting import NODE_LIMIT

if TYPE_CHECKING:  # numpy is loaded when a table is asked for, not at start-up
    from gdbext.layout.types import Located
    from gdbext.structures.shapes.resolve import Opened
    from gdbext.structures.walk.model import BinsWalk, ListWalk, ProbeTable, Table
    from gdbext.structures.walk.trees import TreeWalk
    from gdbext.target import Target

# Convenience variables that tell which bin is the longest: number, table, first entry, offset of its link.
BIN, BIN_TABLE, BIN_FIRST, BIN_LINK = "gx_bin", "gx_bin_table", "gx_bin_first", "gx_bin_link"

_bare: "Optional[tuple[session.GdbSession, Target]]" = None


def read_target() -> Target:
    """Return the target as far as walkers need it: a live one is its memory and ABI, kept for one stop.

    :raises NoTargetError: when there is neither a process nor a core.
    """
    global _bare
    dependencies.load()
    from gdbext.bridge.ports.target import read_bare_target, read_strata

    now = session.current()
    if now.known_target is not None or "core" in read_strata():
        return now.target
    if _bare is None or _bare[0] is not now:
        _bare = now, read_bare_target()
    return _bare[1]


def open_value(value: gdb.Value, text: str) -> Opened:
    """Open the object that a value is or points to, by the shape that fits its type.

    :param text: how it is named in errors.
    :raises UsageError: when no shape fits, or it is in no memory.
    :raises ShapeError: when it is none of what its type says.
    :raises FaultError: when it cannot be read.
    """
    from gdbext.bridge.expressions.values import located

    return open_found(located(value, text))


def open_found(found: Located) -> Opened:
    """Open an object by the shape that fits its type; errors as :func:`open_value`."""
    target = read_target()
    from gdbext.bridge.stops.session import read_shapes
    from gdbext.structures.shapes.resolve import Overrides, open_located

    try:
        return open_located(target, session.current().types, read_shapes(), found, Overrides())
    except UsageError as error:
        raise UsageError(error.message) from None  # the hint is about options of commands


def list_length(head: gdb.Value, most: int, seconds: int) -> "tuple[int, Optional[str]]":
    """Return how many nodes a list or tree has, and why that is not the whole truth.

    :param head: of a type that a shape fits.
    :raises UsageError: when it is a table; else as :func:`open_value`.
    """
    opened = open_value(head, "HEAD")
    from gdbext.bridge.stops.progress import TerminalProgress
    from gdbext.structures.walk.lists import walk_list
    from gdbext.structures.walk.model import ListHead, TreeRoot
    from gdbext.structures.walk.trees import walk_tree

    progress = TerminalProgress(seconds, visible=False)
    if isinstance(opened.structure, ListHead):
        return _judged(walk_list(read_target(), opened.structure, most, progress), most)
    if isinstance(opened.structure, TreeRoot):
        return _judged(walk_tree(read_target(), opened.structure, most, progress), most)
    raise UsageError(f"{opened.described} is no list", "$gx_maxbin is for tables")


def _judged(walk: Union[ListWalk, TreeWalk], most: int) -> "tuple[int, Optional[str]]":
    from gdbext.structures.walk.model import End

    reason, nodes = walk.end.reason, len(walk.nodes)
    if reason.sound:
        return nodes, None
    if reason in (End.CYCLE, End.LIMIT):
        return most, f"{reason.word} after {nodes} nodes"
    if reason is End.INTERRUPTED:
        return nodes, f"stopped by the time budget after {nodes} nodes"
    return 0, f"{reason.word} {walk.end.address or 0:#x} after {nodes} nodes"


def longest_bin(table: Located, seconds: int) -> "tuple[int, Optional[str]]":
    """Return the length of the longest bin of a table or group, and why that is not the whole truth.

    :raises UsageError: when it is no table; else as :func:`open_value`.
    """
    for name in (BIN, BIN_TABLE, BIN_FIRST, BIN_LINK):
        gdb.set_convenience_variable(name, None)
    opened = open_found(table)
    from gdbext.bridge.stops.progress import TerminalProgress
    from gdbext.structures.walk.model import Group, ProbeTable, Table

    structure = opened.structure
    progress = TerminalProgress(seconds, visible=False)
    tables = structure.tables if isinstance(structure, Group) else (structure,)
    longest, why = 0, next((problem.message for problem in opened.problems), None)
    for one in tables:
        if not isinstance(one, (Table, ProbeTable)):
            raise UsageError(f"{opened.described} is no table", "$gx_listlen is for lists")
        walk = _walk(one, progress)
        length, fault = _longest(one, walk, longest)
        longest, why = max(longest, length), why or fault
    return longest, why


def _walk(table: Union[Table, ProbeTable], progress: object) -> BinsWalk:
    from gdbext.structures.walk.bins import walk_bins
    from gdbext.structures.walk.model import Table as Chained
    from gdbext.structures.walk.probes import walk_probes

    if isinstance(table, Chained):
        return walk_bins(read_target(), table, NODE_LIMIT, progress)  # type: ignore[arg-type]
    return walk_probes(read_target(), table, progress)  # type: ignore[arg-type]


def _longest(table: Union[Table, ProbeTable], walk: BinsWalk, least: int) -> "tuple[int, Optional[str]]":
    """Return the longest bin's length; note which it is when it is longer than ``least``."""
    import numpy as np

    from gdbext.structures.walk.model import End

    endless = np.isin(walk.reasons, (int(End.CYCLE), int(End.LIMIT)))
    broken = (walk.reasons > End.COUNT) & ~endless & (walk.reasons != End.INTERRUPTED)
    lengths = np.where(endless, np.uint64(NODE_LIMIT), np.where(broken, np.uint64(0), walk.lengths))
    if not len(lengths):
        return 0, None
    at = int(lengths.argmax())
    if lengths[at] > least:
        _note_bin(table, walk, at)
    why = None
    if endless.any():
        why = f"bin {int(endless.argmax())} is a cycle, or longer than {NODE_LIMIT} nodes"
    elif broken.any():
        why = f"bin {int(broken.argmax())} cannot be followed to its end"
    elif not walk.complete:
        why = "stopped by the time budget"
    return int(lengths[at]), why


def _note_bin(table: Union[Table, ProbeTable], walk: BinsWalk, at: int) -> None:
    gdb.set_convenience_variable(BIN, at)
    gdb.set_convenience_variable(BIN_TABLE, table.address)
    before = int(walk.lengths[:at].sum())
    first = int(walk.nodes[before]) if before < len(walk.nodes) else 0
    gdb.set_convenience_variable(BIN_FIRST, _typed(table, first))
    node = getattr(table, "node", None)
    gdb.set_convenience_variable(BIN_LINK, None if node is None else node.links.next)


def _typed(table: Union[Table, ProbeTable], address: int) -> gdb.Value:
    """Return a pointer to an entry, of its type where that is known."""
    node = getattr(table, "node", None)
    name = node.type if node is not None else getattr(table, "element_type", None)
    try:
        kind = gdb.lookup_type(name) if name else gdb.lookup_type("void")
    except gdb.error:
        kind = gdb.lookup_type("char")
    return gdb.Value(address).cast(kind.pointer())

"""List heads whose type a shape names exactly: ``struct list_head``, ``GList``, ``ngx_queue_t`` and so on."""

from __future__ import annotations

from typing import Any, Iterator, Optional

import gdb
from gdbext.printers import chains
from gdbext.printers.guarded import Child, GuardedPrinter

from gdbext.bridge.functions import shaped


def find_printer(value: gdb.Value, tag: str) -> Optional[GuardedPrinter]:
    """Return the printer of a list's head; None where the type only has such a name."""
    bound = chains.find_bound(value.type, ("list",))
    return None if bound is None else ListPrinter(value, bound)


class ListPrinter(GuardedPrinter):
    """The head of a list, or a node that is a list by itself.

    :param bound: the shape that fits its type.
    """

    def __init__(self, value: gdb.Value, bound: Any) -> None:
        super().__init__(value)
        self._bound = bound

    def line(self) -> str:
        """Return its shape and how many nodes it has."""
        head: Any = shaped.open_value(self.value, "it").structure
        return f"{head.shape}: {chains.describe(chains.walk_head(head), 'node', 'nodes')}"

    def parts(self) -> Iterator[Child]:
        """Iterate over the members of a node, or over the nodes of a head."""
        if self._bound.raw.list.first is None:
            return chains.members(self.value)
        head: Any = shaped.open_value(self.value, "it").structure
        return chains.nodes(chains.walk_head(head), self._bound.node_type)

"""What pwndbg's users reach for in scripts of their own, on gdbext's ports, in plain gdb.

``memory``, ``vmmap``, ``symbol`` and ``arch`` have pwndbg's names and meanings; :class:`Command` makes a gdb
command from a function and an ``argparse`` parser. pwndbg itself is neither needed nor imported.
Everything speaks of the selected inferior at its present stop. See ``docs/helpers.md``.
"""

from gdbext.helpers import arch, memory, symbol, vmmap
from gdbext.helpers.command import Command

__all__ = ["Command", "arch", "memory", "symbol", "vmmap"]

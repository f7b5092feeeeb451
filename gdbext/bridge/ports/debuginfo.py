"""What gdb knows of the selected inferior, as the one port :class:`gdbext.debuginfo.DebugInfo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional

from gdbext.bridge.ports.types import GdbTypes

if TYPE_CHECKING:
    from gdbext.bridge.ports.discover import Discovery
    from gdbext.bridge.ports.rootnames import GdbRootNames
    from gdbext.bridge.ports.stacks import GdbStacks
    from gdbext.bridge.ports.typeclues import GdbClues
    from gdbext.layout.types import Located, Type
    from gdbext.target import Target


class GdbDebugInfo:
    """It, at one stop.

    :param read_target: makes the target, which types alone do not need.
    """

    def __init__(self, read_target: "Callable[[], Target]") -> None:
        self.types = GdbTypes()
        self._read_target = read_target
        self._stacks: Optional[GdbStacks] = None

    @property
    def names(self) -> GdbRootNames:
        """What roots are called."""
        from gdbext.bridge.ports.rootnames import GdbRootNames

        return GdbRootNames(self._read_target(), self.types)

    @property
    def stacks(self) -> GdbStacks:
        """Unwound stacks, kept while this lives."""
        if self._stacks is None:
            from gdbext.bridge.ports.stacks import GdbStacks

            self._stacks = GdbStacks(self._read_target())
        return self._stacks

    def clues(self, most: Optional[int] = None) -> GdbClues:
        """Return typed places; None examines as many as ``set gx type-search-variables`` says."""
        from gdbext.bridge.ports.typeclues import read_clues

        return read_clues(self._read_target(), self.types, self.stacks, most)

    def find_variables(
        self, matches: Callable[[Type], bool], limit: int, most: int, wanted: str = ""
    ) -> Discovery:
        """Iterate over the variables whose type is wanted."""
        from gdbext.bridge.ports.discover import find_variables

        return find_variables(self._read_target().reader, matches, limit, most, self._stacks, wanted)

    def evaluate(self, expression: str, word_mask: int) -> int:
        """Return an expression's value as an unsigned word."""
        from gdbext.bridge.expressions.evaluate import evaluate

        return evaluate(expression, word_mask)

    def locate(self, expression: str) -> Located:
        """Return what an expression means, wherever in the program its names are found."""
        from gdbext.bridge.expressions.locate import locate

        return locate(expression)

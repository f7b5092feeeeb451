"""What a command's function is given: the target, its heaps, the settings, and the user's expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

from gdbext.bridge import session, settings
from gdbext.bridge.evaluate import evaluate
from gdbext.bridge.progress import TerminalProgress
from gdbext.errors import NoHeapError

if TYPE_CHECKING:
    from gdbext.target import Target


class Context:
    """One run of one command."""

    def __init__(self) -> None:
        self.settings: Mapping[str, int] = settings.current()
        self.progress = TerminalProgress(self.settings.get("time-budget", 0))
        self._session: Optional[session.Session] = None

    @property
    def session(self) -> session.Session:
        """The selected inferior's session."""
        if self._session is None:
            self._session = session.current()
        return self._session

    @property
    def known_target(self) -> Optional[Target]:
        """The target if anything has asked for it, for an error's envelope."""
        return self._session.known_target if self._session else None

    @property
    def target(self) -> Target:
        """What is being looked at.

        :raises NoTargetError: when there is nothing, or it runs.
        """
        return self.session.target()

    def heaps(self) -> Sequence[Any]:
        """Return every heap of the target, as ``gdbext.heap.model.Heap``; it may be none."""
        return self.session.heaps(self.progress)

    def heap(self, allocator: str) -> Any:
        """Return the heap of one allocator ("glibc").

        :raises NoHeapError: when the target has none.
        """
        heaps = self.heaps()
        for heap in heaps:
            if heap.allocator == allocator:
                return heap
        others = ", ".join(sorted({heap.allocator for heap in heaps}))
        raise NoHeapError(
            f"no {allocator} heap in this target",
            f"it has: {others}" if others else "no heap of an allocator that gdbext knows was found",
        )

    def evaluate(self, expression: str) -> int:
        """Return an expression's value as an unsigned word.

        :raises UsageError: when it has none, or would write to the target or run it.
        """
        return evaluate(expression, self.target.abi.word_mask)

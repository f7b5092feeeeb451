"""The faults that a user can meet: each is told in one line, with what to do.

Anything else that is raised is a defect of gdbext and shows as a traceback.
"""

from __future__ import annotations

from typing import Optional

_NO_MEMORY = ("failed to map segment from shared object", "cannot allocate memory", "virtual memory exhausted")


class GdbextError(Exception):
    """A fault of the user's input or of the target, never of gdbext.

    :param message: what is wrong, in one line.
    :param hint: what the user can do about it, or None.
    """

    kind = "error"

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(GdbextError):
    """The command line is wrong."""

    kind = "usage"


class NoTargetError(GdbextError):
    """There is neither a process nor a core to examine."""

    kind = "no-target"


class NoHeapError(GdbextError):
    """The target has no heap that gdbext knows, or not the one that was asked for."""

    kind = "no-heap"


class TooLargeError(GdbextError):
    """An answer would take more memory than the user's settings allow."""

    kind = "too-large"


def out_of_memory() -> TooLargeError:
    """Return what Python's MemoryError is to the user."""
    return TooLargeError("there is not enough memory for an answer", "the machine, a cgroup or ulimit -v bounds it")


def is_memory_short(text: str) -> bool:
    """Whether what a program says as it ends is that the kernel gave it no memory: the loader has no MemoryError."""
    return any(said in text.lower() for said in _NO_MEMORY)


class DebuggerError(GdbextError):
    """The debugger refused something, or the kernel refused to let us be one."""

    kind = "debugger"


class StoppedError(GdbextError):
    """The user, another thread or the time budget stopped something before there was an answer."""

    kind = "interrupted"


class BadCoreError(GdbextError):
    """A file is not a core, or not one that can be read."""

    kind = "bad-core"


class MissingDependencyError(GdbextError):
    """A Python package that is needed is not there."""

    kind = "dependency"


class LayoutError(GdbextError):
    """A structure has no member of that name, or no layout fits the target."""

    kind = "layout"


class ShapeError(GdbextError):
    """A shape file is wrong, or a shape does not fit what it is used on."""

    kind = "shape"


class FaultError(GdbextError):
    """Target memory that cannot be read.

    :param address: first byte that was asked for.
    :param size: bytes that were asked for.
    :param reading: what was being read, in the subject's words ("arena", "tcache entry").
    """

    kind = "fault"

    def __init__(self, address: int, size: int, reading: str = "memory") -> None:
        super().__init__(f"cannot read {size} bytes of {reading} at {address:#x}")
        self.address = address
        self.size = size
        self.reading = reading

    def __reduce__(self) -> "tuple[type[FaultError], tuple[int, int, str]]":
        """Return how it is made: its message alone would not do."""
        return FaultError, (self.address, self.size, self.reading)

"""Which frame of a waiting thread is worth showing: the first that is neither libc's nor a lock's wrapper."""

from __future__ import annotations

from typing import Optional, Sequence

from gdbext.debuginfo import HANDLER, Frame

_LIBRARIES = ("libc.so", "libc-2", "libpthread", "ld-linux", "ld-musl", "libstdc++", "linux-vdso")
_WRAPPERS = ("pthread_", "__", "std::", "g_mutex_", "g_cond_", "g_rec_mutex_", "psi_cond_", "psi_mutex_", "psi_rwlock_")
_WRAPPER = ("syscall", "abort", "raise", HANDLER)


def find_telling(frames: Sequence[Frame]) -> Optional[Frame]:
    """Return the innermost frame of the program itself, or None when no stack shows one."""
    for frame in frames:
        if not frame.pc:
            return None  # where a debugger that lost its way ends: no frame from here on is one
        name = frame.function or ""
        if not (is_library(frame) or name.startswith(_WRAPPERS) or name in _WRAPPER):
            return frame
    return None


def is_library(frame: Frame) -> bool:
    """Return whether a frame is in libc, the loader, or the run-time library of C++."""
    return (frame.module or "").startswith(_LIBRARIES)


def name_of(frame: Frame) -> str:
    """Return a frame's function, else module and address."""
    return frame.function or f"{frame.module or '?'}@{frame.pc:#x}"


def label_of(frame: Frame) -> str:
    """Return how a frame is shown: "flush_batch (main.c:212)", without debug info as :func:`name_of`."""
    return f"{name_of(frame)} ({frame.line})" if frame.line else name_of(frame)

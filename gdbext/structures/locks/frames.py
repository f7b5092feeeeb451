"""Which frame of a waiting thread is worth showing: the first that is neither libc's nor a lock's wrapper."""

from __future__ import annotations

from typing import Optional, Sequence

from gdbext.structures.locks.model import Frame

_LIBRARIES = ("libc.so", "libc-", "libpthread", "ld-linux", "ld-musl", "libstdc++", "linux-vdso")
_WRAPPERS = ("pthread_", "__", "std::", "__gthread", "syscall", "g_mutex_", "g_cond_", "g_rec_mutex_", "abort", "raise")


def find_telling(frames: Sequence[Frame]) -> Optional[Frame]:
    """Return the innermost frame of the program itself, or None when no stack shows one."""
    for frame in frames:
        if (frame.module or "").startswith(_LIBRARIES):
            continue
        if frame.function is None or not frame.function.startswith(_WRAPPERS):
            return frame
    return None


def label_of(frame: Frame) -> str:
    """Return how a frame is written: its function, else module and address."""
    return frame.function or f"{frame.module or '?'}@{frame.pc:#x}"

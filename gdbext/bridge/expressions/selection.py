"""The user's selection: kept while a command looks at other threads.

gdb.Frame objects survive a change of thread by their frame id; the restored selection is therefore
equal, frame number included. The language follows the frame by itself.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, Optional

import gdb


def find_thread() -> Optional[gdb.InferiorThread]:
    """Return the selected thread, or None where there is none.

    Nor is there one in a core whose notes give two threads one id: gdb lists the second instead of the first, and has
    the first selected.
    """
    try:
        return gdb.selected_thread()
    except SystemError:  # "could not find gdb thread object"
        return None


def find_frame() -> Optional[gdb.Frame]:
    """Return the selected frame, or None where there is none (no process, or no registers)."""
    try:
        return gdb.selected_frame()
    except gdb.error:
        return None


@contextmanager
def kept() -> Iterator[None]:
    """Give back the selected thread and frame, whatever happens inside."""
    thread, frame = find_thread(), find_frame()
    try:
        yield
    finally:
        _restore(thread, frame)


def _restore(thread: Optional[gdb.InferiorThread], frame: Optional[gdb.Frame]) -> None:
    if thread is None or not thread.is_valid():  # the process is gone, or was let go
        return
    if thread != find_thread():
        thread.switch()
    if frame is not None and frame.is_valid() and frame != find_frame():
        frame.select()

"""Work of one thread that another one may end, within 0.2 s."""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from typing import Iterator, Optional

from gdbext.errors import StoppedError
from gdbext.progress import checked


class Stops:
    """Progress that nobody watches, and that ends when it is stopped.

    Loops ask :meth:`at`, and kernels between two of their steps; what does neither is interrupted where it is, as
    Ctrl-C does it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: Optional[int] = None
        self._stopped = False

    def stop(self) -> None:
        """End what works now; nothing where nothing does."""
        with self._lock:
            if self._worker is not None:
                self._stopped = True
                _interrupt(self._worker, KeyboardInterrupt)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let what is done inside be stopped.

        :raises StoppedError: it was, and had nothing to say.
        """
        with self._lock:
            self._worker, self._stopped = threading.get_ident(), False
        try:
            try:
                with checked(self._check):
                    yield
            finally:
                self._end()
        except KeyboardInterrupt:
            self._end()
            if not self._stopped:
                raise
            raise StoppedError("stopped") from None

    def at(self, doing: str, done: int, total: Optional[int]) -> None:
        """Go on, or raise KeyboardInterrupt."""
        self._check()

    def _check(self) -> None:
        if self._stopped:
            raise KeyboardInterrupt

    def _end(self) -> None:
        with self._lock:
            if self._worker is not None:
                _interrupt(self._worker, None)  # one that has not come yet would hit whatever follows
                self._worker = None


def _interrupt(thread: int, error: Optional[type]) -> None:
    """Have an exception raised in a thread, or one that was not raised yet forgotten."""
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)

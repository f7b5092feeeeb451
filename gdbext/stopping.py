"""Work of one thread that another one may end, within 0.2 s."""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager, suppress
from typing import Iterator, Optional

from gdbext.errors import StoppedError
from gdbext.progress import checked

_ROUNDS = 16  # of a loop: Python asks in each


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
                _interrupt(self._worker)

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
            self._worker = None
        if self._stopped:
            with suppress(KeyboardInterrupt):  # one that has not come yet comes here, not in whatever follows
                for _ in range(_ROUNDS):
                    pass


def _interrupt(thread: int) -> None:
    """Have KeyboardInterrupt raised in a thread of Python's, when it next asks for such."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))

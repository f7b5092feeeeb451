"""Work of one thread that another one may end, within 0.2 s."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Callable, Optional, TypeVar

from gdbext.errors import StoppedError, UsageError, out_of_memory
from gdbext.progress import own_checks

Result = TypeVar("Result")

_ROUNDS = 16  # of a loop: Python asks in each
_GRACE = 0.08  # seconds that what was stopped has to say what it has found
_AGAIN = 0.02  # seconds between interrupts thereafter


class Stops:
    """Progress that nobody watches, and that ends when it is stopped.

    Loops ask :meth:`at`, and kernels between two of their steps; what does neither is interrupted where it is, as
    Ctrl-C does it. What goes on after that to make a page of what there is, has a grace; then it is interrupted until
    it ends.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may stop what it interrupts
        self._worker: Optional[int] = None
        self._stopped = False
        self._runs = 0

    def stop(self) -> None:
        """End what works now; nothing where nothing does."""
        with self._lock:
            if self._worker is None:
                return
            if not self._stopped:
                self._stopped = True
                threading.Thread(target=self._insist, args=(self._runs,), daemon=True).start()
            _interrupt(self._worker)

    def run(self, work: Callable[[], Result]) -> Result:
        """Do what may be stopped; return what it returns.

        No context manager of Python's own code has a part in it: an interrupt may come between its lines.

        :raises StoppedError: it was stopped, and had nothing to say in time.
        :raises TooLargeError: there was not enough memory for it.
        :raises UsageError: something is at work already.
        """
        if self._worker is not None:
            raise UsageError("the session is at work already", "one question at a time, or a session for each thread")
        checks = own_checks()
        before = len(checks)
        try:
            try:
                with self._lock:
                    self._worker, self._stopped = threading.get_ident(), False
                    self._runs += 1
                checks.append(self._check)
                return work()
            finally:
                self._end()
        except KeyboardInterrupt:
            self._end()
            if not self._stopped:
                raise
            raise StoppedError("stopped") from None
        except MemoryError:
            raise out_of_memory() from None
        finally:
            del checks[before:]

    def at(self, doing: str, done: int, total: Optional[int]) -> None:
        """Go on, or raise KeyboardInterrupt."""
        self._check()

    def _check(self) -> None:
        if self._stopped:
            raise KeyboardInterrupt

    def _insist(self, run: int) -> None:
        time.sleep(_GRACE)
        while self._interrupt_again(run):
            time.sleep(_AGAIN)

    def _interrupt_again(self, run: int) -> bool:
        """Interrupt a run once more; return whether it is still going."""
        with self._lock:
            if self._worker is None or self._runs != run:
                return False
            _interrupt(self._worker)
            return True

    def _end(self) -> None:
        with self._lock:
            self._worker = None
        if self._stopped:
            try:  # one that has not come yet comes here, not in whatever follows
                for _ in range(_ROUNDS):
                    pass
            except KeyboardInterrupt:
                pass


def _interrupt(thread: int) -> None:
    """Have KeyboardInterrupt raised in a thread of Python's, when it next asks for such."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))

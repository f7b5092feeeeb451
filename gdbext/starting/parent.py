"""A process that ends with the one that has started it, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import contextmanager
from typing import Iterable, Iterator

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_FIND_DEATH_SIGNAL = 2  # PR_GET_PDEATHSIG
_LIBC = ctypes.CDLL(None)  # now, and not between fork and exec


def end_with_parent(number: int) -> None:
    """Have the kernel send us a signal, 0 for none, when the thread that has started us ends."""
    _LIBC.prctl(DEATH_SIGNAL, number)


@contextmanager
def outliving_parent() -> Iterator[None]:
    """End, if we are to end with the parent, after the block at the earliest."""
    parent, number = os.getppid(), ctypes.c_int()
    _LIBC.prctl(_FIND_DEATH_SIGNAL, ctypes.byref(number))
    end_with_parent(0)
    try:
        yield
    finally:
        end_with_parent(number.value)
        if number.value and os.getppid() != parent:
            os.kill(os.getpid(), number.value)


def begin_child(parent: int, number: int, mask: Iterable[int]) -> None:
    """Prepare a child between fork and exec; for parents of one thread, as a fork copies the locks of all others.

    :param parent: its process id; when that is gone already, the child ends.
    :param number: of the signal that the child gets when the parent ends.
    :param mask: the signals that the child is to have blocked.
    """
    end_with_parent(number)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)

"""How the program ends by a signal: nothing of it is left, and whoever waits for it learns of the signal.

What must not outlast the program is noted together with what undoes it, while signals are blocked, so that none comes
between. The first SIGINT or SIGTERM raises KeyboardInterrupt while an answer is made, so that what there is of it is
given. Whatever comes else is undone from within the handler: no code that runs then has to bear it.
"""

from __future__ import annotations

import math
import os
import select
import signal
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, TypeVar

_T = TypeVar("_T")

SIGNALS = tuple(
    getattr(signal, f"SIG{name}") for name in ("HUP", "INT", "QUIT", "USR1", "USR2", "PIPE", "ALRM", "TERM", "XCPU")
)
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_ENDING = (*_INTERRUPTS, signal.SIGHUP)
_ASKING = signal.SIGUSR1


class _State:
    def __init__(self) -> None:
        self.undoing: List[Callable[[], object]] = []
        self.before: Dict[int, Any] = {}
        self.answering = False  # whether an interrupt may be raised
        self.interrupt: Optional[int] = None
        self.noted: Optional[Noted] = None


class Noted:
    """Signals that are noted while :func:`noting` lasts.

    :ivar stopped: whether one has come that asks for the end.
    :ivar asked: whether SIGUSR1 has come; whoever heeds that takes it back.
    """

    def __init__(self) -> None:
        self.stopped = self.asked = False
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def wait(self, seconds: float, descriptor: Optional[int] = None) -> None:
        """Wait until a signal comes or a descriptor has something to read, or for a time; not once it is stopped."""
        if self.stopped:
            return
        poll = select.poll()
        for one in (self._read, *(() if descriptor is None else (descriptor,))):
            poll.register(one, select.POLLIN)
        poll.poll(math.ceil(seconds * 1000))
        with suppress(BlockingIOError):
            os.read(self._read, 64)

    def close(self) -> None:
        """Let go of what wakes it."""
        os.close(self._read)
        os.close(self._write)

    def take(self, number: int) -> bool:
        """Take note of a signal; return whether that is all that is to be done about it."""
        if number != _ASKING and (self.stopped or number not in _ENDING):
            return False
        self.asked, self.stopped = self.asked or number == _ASKING, self.stopped or number != _ASKING
        with suppress(BlockingIOError):
            os.write(self._write, b"!")
        return True


_state = _State()


def heed() -> None:
    """Heed signals from now on, those excepted that whoever started us has had ignored, as nohup does."""
    global _state
    _state = _State()
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if handler != signal.SIG_IGN or number == signal.SIGPIPE:  # that one Python itself ignores
            _state.before[number] = handler
            signal.signal(number, _handle)


def forget() -> None:
    """Have signals do what they do by default, and nothing to undo: for a fork that is to go its own way."""
    global _state
    _state = _State()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGPIPE else signal.SIG_DFL)


@contextmanager
def interruptible() -> Iterator[None]:
    """Have the first interrupt be a KeyboardInterrupt."""
    _state.answering = True
    try:
        yield
    finally:
        _state.answering = False


@contextmanager
def noting() -> Iterator[Noted]:
    """Have SIGUSR1, and the first signal that asks for the end, be noted, where nothing is to be cut short by them."""
    with closing(Noted()) as noted:
        _state.noted = noted
        try:
            yield noted
        finally:
            _state.noted = None


def finish(failed: bool) -> None:
    """Undo what is left, heed signals no longer, and end by the interrupt that came, if any.

    :param failed: whether there was no answer; one that is given in part is an answer.
    """
    with _blocked():
        _undo_all()
        for number, handler in _state.before.items():
            signal.signal(number, handler or signal.SIG_DFL)
    if failed and _state.interrupt is not None:
        _end_by(_state.interrupt)


@contextmanager
def owned(make: Callable[[], _T], undo: Callable[[_T], object]) -> Iterator[_T]:
    """Have something until the end of the block, or of the program.

    :param undo: may be called from within a handler of signals.
    """
    undoing = None
    try:
        with _blocked():  # at the end of which a signal that came meanwhile is raised
            one = make()
            undoing = partial(undo, one)
            _state.undoing.append(undoing)
        yield one
    finally:
        with _blocked():
            if undoing is not None and undoing in _state.undoing:
                _undo_all(_state.undoing.index(undoing) + 1)  # what an interrupt kept from being undone by its owner
                _state.undoing.pop()()


@contextmanager
def without_sigpipe() -> Iterator[None]:
    """Have no reader be missed: what is written then is an OSError alone."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


@contextmanager
def _blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # which may raise what came before, with the signals blocked
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _handle(number: int, frame: Any) -> None:
    if _state.noted is not None and _state.noted.take(number):
        return
    if number in _INTERRUPTS and _state.answering and _state.interrupt is None:
        _state.interrupt = number
        raise KeyboardInterrupt
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    _undo_all()
    _end_by(number)


def _undo_all(but: int = 0) -> None:
    while len(_state.undoing) > but:
        with suppress(OSError):  # the rest is undone all the same
            _state.undoing.pop()()


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container: the kernel keeps it from ending itself by a signal

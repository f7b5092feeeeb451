"""gdb's side of a borrowed gdb: what gdb knows, answered call by call until the other end is closed."""

from __future__ import annotations

import itertools
import signal
import socket
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Dict, List, Mapping, Optional, Sequence

import gdb

from gdbext.borrowing.wire import ANSWER, ASK, CALL, DONE, FAIL, PORT, Callback, Part, Wire
from gdbext.bridge.expressions import language
from gdbext.bridge.stops.holding import Hold
from gdbext.debuginfo import NO_DEBUG_INFO, DebugInfo, Symbols
from gdbext.errors import DebuggerError, GdbextError, StoppedError, out_of_memory
from gdbext.layout.types import Type
from gdbext.starting import dependencies
from gdbext.starting.parent import end_with_parent

# What the answers of these are stays here.
_PARTS = ("debug", "symbols", "types", "names", "stacks", "clues", "places", "find_variables")
_AT_ONCE = 16  # of an iteration


class Host:
    """What there is beside the port: how it all begins."""

    def __init__(self) -> None:
        self._session: Any = None

    def start(self, pid: Optional[int], settings: Mapping[str, int]) -> Any:
        """Return gdb's target without memory, which the caller reads by itself; a process is stopped from then on.

        :param settings: of the caller, by name.
        :raises GdbextError: there is no such target, or gdb may not have it.
        """
        for name, value in settings.items():
            gdb.execute(f"set gx {name} {value}", to_string=True)
        dependencies.load(*dependencies.NEEDED)
        if pid is not None:
            Hold(pid).attach()
        from gdbext.bridge.stops.session import current
        from gdbext.memory.fake import FakeMemory

        self._session = current()
        target = self._session.target
        return replace(target, memory=FakeMemory([]), symbols=NO_DEBUG_INFO)

    def debug(self) -> DebugInfo:
        """Return the port."""
        debug: DebugInfo = self._session.debug
        return debug

    def symbols(self) -> Symbols:
        """Return what it knows by name."""
        symbols: Symbols = self._session.target.symbols
        return symbols


def serve(descriptor: int) -> None:
    """Answer until the other end is closed.

    :param descriptor: of this end.
    """
    end_with_parent(signal.SIGKILL)  # a closed wire ends gdb too, but only where it waits for that
    with socket.socket(fileno=descriptor) as end, language.like_c(), suppress(BrokenPipeError, _Closed):
        server = _Server(end)
        while server.answer_one():
            pass


class _Closed(BaseException):
    """The other end is closed, in the midst of a call."""


class _Server:
    def __init__(self, end: socket.socket) -> None:
        self._wire = Wire(end, self._name, None)
        self._parts: List[Any] = [Host()]
        self._types: Dict[Type, int] = {}
        self._calls: List[int] = []

    def answer_one(self) -> bool:
        """Answer a call; return False where there are no more."""
        message = self._wire.receive()
        if message is not None and message.kind == CALL:
            self._answer(message.number, *message.contents)
        return message is not None

    def _answer(self, number: int, part: int, name: str, arguments: Sequence[Any]) -> None:
        self._calls.append(number)
        try:
            kind, result = DONE, self._call(part, name, arguments)
        except GdbextError as error:
            kind, result = FAIL, error
        except gdb.error as error:
            kind, result = FAIL, DebuggerError(" ".join(str(error).split()).rstrip("."))
        except KeyboardInterrupt:
            kind, result = FAIL, StoppedError("stopped")
        except MemoryError:
            kind, result = FAIL, out_of_memory()
        finally:
            self._calls.pop()
        self._wire.send(kind, number, result)

    def _call(self, part: int, name: str, arguments: Sequence[Any]) -> Any:
        one = self._parts[part]
        if name == "next":
            found = list(itertools.islice(one, _AT_ONCE))
            return found, len(found) < _AT_ONCE
        if name in ("target", "fields") and isinstance(one, Type):
            return getattr(one, name)
        found = getattr(one, name)
        if not PORT.get(name):
            known = [partial(self._ask, one.number) if isinstance(one, Callback) else one for one in arguments]
            found = found(*known)
        return self._kept(found) if name in _PARTS else found

    def _kept(self, part: Any) -> Part:
        self._parts.append(part)
        return Part(len(self._parts) - 1)

    def _name(self, one: Any) -> Any:
        """Return what a type is called on the other side, with what it is when it goes there first; else None."""
        if not isinstance(one, Type):
            return None
        if one in self._types:
            return self._types[one], None
        self._types[one] = self._kept(one).number
        return self._types[one], (one.name, one.code, one.size, one.tag, one.signed, one.length)

    def _ask(self, callback: int, type: Type) -> Any:
        """Ask the other side, and answer what it asks before it knows.

        :raises KeyboardInterrupt: it has given up the call meanwhile.
        """
        number = self._calls[-1]
        self._wire.send(ASK, number, (callback, type))
        while True:
            message = self._wire.receive()
            if message is None:
                raise _Closed
            if message.kind == CALL:
                self._answer(message.number, *message.contents)
            elif message.kind == ANSWER and message.number == number:
                if message.contents is None:
                    raise KeyboardInterrupt
                return message.contents

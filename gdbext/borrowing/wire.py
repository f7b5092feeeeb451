"""What passes between a process that uses the library and the gdb that it has borrowed, over a pair of sockets.

It is pickled, which runs whatever the sender says. That is safe: both ends are our own code, in two processes of one
user of which one has started the other, and nobody else has the sockets. What comes of the target are numbers and
texts.

Types refer to themselves and are made as they are asked for; so each travels as a number, and is one object on either
side. So do the parts of the port, and what the library's side is asked about types.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
from dataclasses import dataclass
from typing import Any, Callable, Dict, NamedTuple, Optional

from gdbext import debuginfo

_Naming = Callable[[Any], Any]

_PROTOCOL = 4
_LENGTH = struct.Struct("<Q")

CALL, DONE, FAIL, ASK, ANSWER = "call", "done", "fail", "ask", "answer"


class Message(NamedTuple):
    """One message.

    :param number: of the call that it belongs to.
    """

    kind: str
    number: int
    contents: Any


@dataclass(frozen=True)
class Part:
    """A part of the port, or something to iterate over, on gdb's side."""

    number: int


@dataclass(frozen=True)
class Callback:
    """A function of a type, on the library's side."""

    number: int


def _port() -> Dict[str, bool]:
    """Return the members of the port by name, and whether each is read and not called."""
    parts = (debuginfo.DebugInfo, debuginfo.Types, debuginfo.RootNames, debuginfo.Stacks, debuginfo.Clues)
    found: Dict[str, bool] = {"complete": True}  # of FoundVariables
    for part in (*parts, debuginfo.Symbols):
        found.update({name: isinstance(one, property) for name, one in vars(part).items() if name[0] != "_"})
    return found


PORT = _port()


class Wire:
    """One end.

    :param name: returns what a type is called, None for what is none.
    :param find: returns the type that is called so by the other side.
    """

    def __init__(self, end: socket.socket, name: Optional[_Naming], find: Optional[_Naming]) -> None:
        self._end = end
        self._name = name
        self._find = find

    def send(self, kind: str, number: int, contents: Any) -> None:
        """Send a message, in one call of the kernel where it is short.

        :raises OSError: the other end is closed.
        """
        stream = io.BytesIO()
        _Pickler(stream, self._name).dump((kind, number, contents))
        data = stream.getvalue()
        self._end.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self) -> Optional[Message]:
        """Wait for a message; None where the other end is closed."""
        head = self._read(_LENGTH.size)
        data = None if head is None else self._read(*_LENGTH.unpack(head))
        return None if data is None else Message(*_Unpickler(data, self._find).load())

    def _read(self, size: int) -> Optional[bytes]:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._end.recv(min(size - len(data), 1 << 20))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, name: Optional[_Naming]) -> None:
        super().__init__(stream, _PROTOCOL)
        self._name = name

    def persistent_id(self, one: Any) -> Any:
        """Return what a type is called."""
        return self._name(one) if self._name else None

    def reducer_override(self, one: Any) -> Any:
        """Have what is mapped travel as bytes."""
        return (bytes, (bytes(one),)) if isinstance(one, memoryview) else NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, find: Optional[_Naming]) -> None:
        super().__init__(io.BytesIO(data))
        self._find = find

    def persistent_load(self, name: Any) -> Any:
        """Return the type that is called so."""
        if self._find is None:
            raise pickle.UnpicklingError("types are made on gdb's side alone")
        return self._find(name)

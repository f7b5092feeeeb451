"""ptrace(2) as far as holding a process needs it. Calls for one tracee come from the thread that seized it alone."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from contextlib import suppress
from typing import Any, Optional

_DETACH, _GETSIGINFO, _GETREGSET, _SEIZE, _INTERRUPT = 17, 0x4202, 0x4204, 0x4206, 0x4207
_EVENT_STOP = 128  # PTRACE_EVENT_STOP
_ALL = 0x40000000  # __WALL: threads too
_SIGINFO = 128  # bytes of a siginfo_t
_MOST = 1 << 14  # bytes of a register set; AMX has tiles of 8 KiB


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _find_ptrace() -> Any:
    function = ctypes.CDLL(None, use_errno=True).ptrace
    function.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    function.restype = ctypes.c_long
    return function


_ptrace = _find_ptrace()


def _call(request: int, tid: int, address: int = 0, data: Any = None) -> None:
    if _ptrace(request, tid, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def seize(tid: int) -> None:
    """Become a thread's tracer, and have it stop soon. It goes on when we end, however we do: no option says otherwise.

    :raises OSError: as ptrace(2).
    """
    _call(_SEIZE, tid)
    interrupt(tid)


def interrupt(tid: int) -> None:
    """Have a thread stop soon that is traced; nothing where it is gone."""
    with suppress(ProcessLookupError):
        _call(_INTERRUPT, tid)


def detach(tid: int, signal: int) -> None:
    """Let a thread go on that is stopped; nothing where it is gone.

    :param signal: at which :func:`find_stop` found it, which is delivered now; 0 for none.
    """
    with suppress(ProcessLookupError):
        _call(_DETACH, tid, 0, signal)


def find_stop(tid: int) -> Optional[int]:
    """Return at which signal a thread is stopped, 0 where none was on its way to it; None while it is not stopped.

    A signal is not collected by wait(2), so that the kernel delivers it where we end before :func:`detach`. Other stops
    are: else a wait of this process for whatever child would meet them.
    """
    info = ctypes.create_string_buffer(_SIGINFO)
    try:
        _call(_GETSIGINFO, tid, 0, ctypes.addressof(info))
    except ProcessLookupError:
        return None
    signal, _, code = struct.unpack_from("3i", info)
    if code >> 8 != _EVENT_STOP:
        return int(signal)
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, tid, os.WSTOPPED | os.WNOHANG | _ALL)
    return 0


def read_registers(tid: int, kind: int) -> bytes:
    """Return a register set of a stopped thread; empty where it is gone, or its machine has no such set.

    :param kind: as the notes of cores number them (``NT_PRSTATUS``).
    """
    data = ctypes.create_string_buffer(_MOST)
    vector = _Iovec(ctypes.addressof(data), _MOST)
    try:
        _call(_GETREGSET, tid, kind, ctypes.addressof(vector))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENODEV, errno.ESRCH, errno.EIO):
            raise
        return b""
    return data.raw[: vector.size]

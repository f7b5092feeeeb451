"""Layouts of thread states, frames, code and the global lock, as data; for 64-bit builds with that lock.

Include/cpython/{pystate,frameobject,code}.h, Include/internal/pycore_{frame,gil,interp,runtime}.h of the tags v3.9.18,
v3.10.13, v3.11.7, v3.12.1, v3.13.0 and v3.14.0; offsets in bytes, as the debug info of such builds has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from gdbext.heap.cpython.layouts import Version

# struct _gil_runtime_state, all versions.
GIL_LAST_HOLDER, GIL_LOCKED, GIL_COND, GIL_SWITCH_COND = 8, 16, 32, 120
COND_SIZE = 48  # sizeof(pthread_cond_t)

# How a code object's table of lines is written: pairs of changes, pairs of ranges (PEP 626), locations (PEP 657).
LNOTAB, RANGES, LOCATIONS = "co_lnotab", "co_linetable of ranges", "co_linetable of locations"
SHIM = 3  # frames of this owner and above stand between C and Python


@dataclass(frozen=True)
class ThreadLayout:
    """Where one version has what.

    :param thread_id: ``pthread_self`` in ``PyThreadState``, as the next.
    :param frame: the innermost frame, or the ``_PyCFrame`` that has it.
    :param through: in that ``_PyCFrame``; None: there is none.
    :param back: the caller in a frame, as the next three.
    :param instruction: a pointer into the code since 3.11, a number before.
    :param owner: of one byte; None before 3.11.
    :param first_line: in a code object, as the next four.
    :param code: the instructions; None: instructions are numbers.
    :param unit: bytes of what an instruction's number counts.
    :param gil: from ``_PyRuntime``, or where ``gil_of_interpreter`` a pointer in ``PyInterpreterState``.
    """

    thread_id: int
    frame: int
    through: Optional[int]
    back: int
    executable: int
    instruction: int
    owner: Optional[int]
    first_line: int
    file: int
    name: int
    lines: int
    code: Optional[int]
    table: str
    unit: int
    gil: int
    gil_of_interpreter: bool


THREADS: Mapping[Version, ThreadLayout] = {
    (3, 9): ThreadLayout(176, 24, None, 24, 32, 104, None, 40, 104, 112, 120, None, LNOTAB, 1, 352, False),
    (3, 10): ThreadLayout(176, 24, None, 24, 32, 96, None, 40, 104, 112, 120, None, RANGES, 2, 352, False),
    (3, 11): ThreadLayout(152, 56, 8, 48, 32, 56, 69, 72, 112, 128, 136, 184, LOCATIONS, 2, 360, False),
    (3, 12): ThreadLayout(136, 56, 0, 8, 0, 56, 70, 68, 112, 128, 136, 192, LOCATIONS, 2, 384, True),
    (3, 13): ThreadLayout(152, 72, None, 8, 0, 56, 70, 68, 112, 128, 136, 200, LOCATIONS, 2, 16, True),
    (3, 14): ThreadLayout(152, 72, None, 8, 0, 56, 74, 68, 112, 128, 136, 208, LOCATIONS, 2, 16, True),
}


@dataclass(frozen=True)
class FrameLayout:
    """What the words of one version's frames are, in bytes.

    :param locals: of the first local variable; cells, free variables and the evaluation stack follow.
    :param names: of the tuples in a code object that have the names of these, in their order.
    :param words: of what else a frame refers to, by offset.
    :param generator: of the frame in a generator, a coroutine, an asynchronous generator; None: frames are objects.
    :param top: of the top of the evaluation stack, which is there while others run: words of ``locals`` up to it, or
        -1; with a size of 8 a pointer, or null. None: it is not known.
    :param room: of the numbers in a code object whose sum is the words of ``locals``: ``co_stacksize``,
        ``co_nlocalsplus``.
    """

    locals: int
    names: Tuple[int, ...]
    words: Mapping[int, str]
    generator: Optional[int] = None
    top: Optional[int] = None
    top_size: int = 4
    room: Tuple[int, ...] = (64, 72)


FRAME_OF_OBJECT = 24  # f_frame of a frame object, since 3.11

_VARNAMES = (72, 88, 80)  # co_varnames, co_cellvars, co_freevars
_LOCALSPLUSNAMES = (96,)
_EARLY = {0: "f_func", 8: "f_globals", 16: "f_builtins", 24: "f_locals", 32: "f_code", 40: "frame_obj"}
_LATE = {0: "f_executable", 16: "f_funcobj", 24: "f_globals", 32: "f_builtins", 40: "f_locals", 48: "frame_obj"}
FRAMES: Mapping[Version, FrameLayout] = {
    (3, 9): FrameLayout(360, _VARNAMES, {}),
    (3, 10): FrameLayout(352, _VARNAMES, {}),
    (3, 11): FrameLayout(72, _LOCALSPLUSNAMES, _EARLY, 80, 64, room=(68, 76)),
    (3, 12): FrameLayout(72, _LOCALSPLUSNAMES, _LATE, 72, 64),
    (3, 13): FrameLayout(72, _LOCALSPLUSNAMES, _LATE, 72, 64),
    (3, 14): FrameLayout(80, _LOCALSPLUSNAMES, _LATE, 72, 64, 8),
}

"""Where ``_PyRuntime`` is, by the threads of its first interpreter: without names, in versions without a cookie.

Its ``interpreters.head`` and ``main`` are two words that are equal while there are no others. They lead to an
interpreter whose thread states lead back to it, and have the thread pointers of threads of the target.
"""

from __future__ import annotations

from typing import Iterator, Optional, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.cpython.find.structural import module_words
from gdbext.heap.cpython.layouts import RUNTIMES, THREAD_INTERPRETER, THREAD_NEXT, Version
from gdbext.heap.cpython.threads.layouts import THREADS
from gdbext.memory.intervals import Coverage, columns
from gdbext.process import Module
from gdbext.target import Target

_MOST_PAIRS = 1 << 14
_MOST_THREADS = 64  # of which one must be known


def find_by_threads(target: Target, module: Module, version: Optional[Version]) -> Optional[Tuple[int, Version]]:
    """Return the address of ``_PyRuntime`` in a module and its version, or None.

    :param version: if it is known.
    """
    wanted = [one for one in THREADS if version in (None, one)]
    pairs = list(_pairs(target, module)) if wanted else []
    found = ((at - RUNTIMES[one].interpreters, one) for at, main in pairs for one in wanted if _fits(target, main, one))
    return next(found, None)


def _pairs(target: Target, module: Module) -> Iterator[Tuple[int, int]]:
    """Iterate over where two equal pointers are, and what they are."""
    mapped = Coverage(*columns((one.start, one.end) for one in target.index.regions if one.readable and one.writable))
    for start, words in module_words(target, module):
        at = np.flatnonzero((words[:-1] == words[1:]) & (words[:-1] != 0) & (words[:-1] % np.uint64(8) == 0))
        at = at[mapped.holds(words[at])][:_MOST_PAIRS]
        yield from zip((start + 8 * at).tolist(), words[at].tolist())


def _fits(target: Target, interpreter: int, version: Version) -> bool:
    """Whether an interpreter of a version is at an address: one of its threads is a thread of the target."""
    layout, pointers = THREADS[version], {thread.tls for thread in target.threads if thread.tls is not None}
    read = target.reader.word
    try:
        state = read(interpreter + RUNTIMES[version].threads)
        for _ in range(_MOST_THREADS):
            if not state or read(state + THREAD_INTERPRETER) != interpreter:
                return False
            if read(state + layout.thread_id) in pointers:
                return True
            state = read(state + THREAD_NEXT)
    except FaultError:
        return False
    return False

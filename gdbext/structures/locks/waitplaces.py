"""Functions in which threads wait for what no lock in memory names the owner of, and who knows it instead.

A row is a fact about one program or runtime, found in its source; a new one needs no code. Names are as debuggers write
them, without arguments and versions of symbols.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Optional, Sequence, Tuple

from gdbext.debuginfo import Frame


@dataclass(frozen=True)
class WaitPlace:
    """Where threads wait.

    :param functions: patterns of function names, as in a shell (``*``, ``?``).
    :param what: what is waited for there.
    :param advice: what to do next to learn the owner.
    :param idle: whether threads without work wait there too, so that many of them are nothing unusual.
    """

    functions: Tuple[str, ...]
    what: str
    advice: str
    idle: bool = False


# What compilers add to names: GCC's clones, Go's ABI, the hash of Rust's older mangling.
_DECORATION = re.compile(r"(\.abi0|\.(part|isra|constprop)\.\d+|\.cold|::h[0-9a-f]{16})+$")

_JAVA = "jcmd PID Thread.print names the owners (of a core: jhsdb jstack --exe JAVA --core CORE)"
_PYTHON = "py-spy dump --pid PID, or py-bt of python-gdb.py in the thread that runs, shows who holds it"
_GO = (
    "goroutines are no threads, and no lock of theirs is one of the kernel's: dlv attach PID (of a core: dlv core EXE "
    "CORE), then goroutines -t, lists where each waits"
)
_ROWS = "SELECT * FROM information_schema.INNODB_TRX and sys.innodb_lock_waits name the blocking transaction"

# MariaDB, MySQL: sql/mdl.cc, storage/innobase/lock/lock0wait.cc, row/row0mysql.cc. PostgreSQL: lmgr/{proc,lwlock}.c.
# HotSpot: runtime/objectMonitor.cpp, runtime/park.hpp. CPython: Python/{ceval_gil,thread_pthread,parking_lot,lock}.c.
# Go: runtime/{lock_futex,os_linux,proc}.go. Rust: std/src/sys/sync, parking_lot. Abseil: synchronization/mutex.cc.
WAIT_PLACES: Sequence[WaitPlace] = (
    WaitPlace(
        ("MDL_wait::timed_wait", "MDL_context::acquire_lock", "MDL_context::upgrade_shared_lock"),
        "a metadata lock",
        "SELECT * FROM performance_schema.metadata_locks; where that is empty (MariaDB): INSTALL SONAME "
        "'metadata_lock_info' and SELECT * FROM information_schema.METADATA_LOCK_INFO",
    ),
    WaitPlace(("lock_wait_suspend_thread", "row_mysql_handle_errors"), "a row lock of InnoDB", _ROWS),
    WaitPlace(("ProcSleep",), "a lock of PostgreSQL", "SELECT * FROM pg_locks; pg_blocking_pids(PID) names the holder"),
    WaitPlace(
        ("LWLockAcquire", "LWLockAcquireOrWait", "LWLockWaitForVar"),
        "a lightweight lock of PostgreSQL",
        "SELECT wait_event FROM pg_stat_activity names it; the holder is another process of the same server",
    ),
    WaitPlace(("ObjectMonitor::enter*", "ObjectMonitor::EnterI", "ObjectMonitor::ReenterI"), "a Java monitor", _JAVA),
    WaitPlace(("ObjectMonitor::wait",), "Object.wait() of Java", _JAVA, idle=True),
    WaitPlace(("Unsafe_Park", "Parker::park"), "LockSupport.park() of Java", _JAVA, idle=True),
    WaitPlace(("take_gil",), "Python's interpreter lock", _PYTHON),
    WaitPlace(("_PyMutex_LockTimed", "_PyMutex_LockSlow", "PyMutex_Lock"), "a mutex of CPython", _PYTHON),
    WaitPlace(("PyThread_acquire_lock_timed", "_PySemaphore_Wait"), "a lock of Python", _PYTHON, idle=True),
    WaitPlace(("runtime.lock2", "runtime.lock"), "a lock of Go's runtime", _GO),
    WaitPlace(("runtime.gopark", "runtime.futexsleep", "runtime.notesleep"), "Go's scheduler", _GO, idle=True),
    WaitPlace(
        ("std::sys::*Mutex::lock_contended", "*RawMutex::lock_slow", "*RwLock::*_contended", "*RawRwLock::*_slow"),
        "a lock of Rust",
        "it does not record its owner: look with lockwait --stacks for the thread that is inside what it guards",
    ),
    WaitPlace(
        ("absl::*Mutex::LockSlow*",),
        "a mutex of Abseil",
        "it does not record its owner: look with lockwait --stacks for the thread that is inside what it guards",
    ),
)


def find_wait_place(frames: Sequence[Frame]) -> "Optional[tuple[WaitPlace, Frame]]":
    """Return where a thread waits, and in which frame, by its innermost frame that is known; None when none is.

    A place in which idle threads wait gives way to one further out where they do not: runtime.lock2 sleeps as all do.
    """
    named = ((_find_by_name(frame.function), frame) for frame in frames if frame.function)
    known = [(place, frame) for place, frame in named if place is not None]
    return next((each for each in known if not each[0].idle), known[0] if known else None)


@lru_cache(maxsize=4096)
def _find_by_name(function: str) -> Optional[WaitPlace]:
    name = _DECORATION.sub("", function.partition("(")[0].partition("@")[0])
    return next((place for place in WAIT_PLACES if any(fnmatchcase(name, one) for one in place.functions)), None)

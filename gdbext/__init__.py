"""gdbext: heap and data-structure forensics, on live processes and cores, in gdb and as a library.

Without gdb a core is enough::

    with gdbext.open_core("core.2914") as session:
        print(session.triage())

``docs/library.md`` has more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Union

from gdbext.version import __version__

if TYPE_CHECKING:
    from os import PathLike

    from gdbext.session import Session

__all__ = ["__version__", "current", "open_core", "open_process", "open_snapshot"]


def open_core(
    path: Union[str, PathLike[str]],
    *,
    sysroot: Optional[str] = None,
    settings: Mapping[str, int] = {},
    shapes_folder: str = "",
    debugger: Optional[str] = None,
    cache: Optional[str] = None,
    debug_dir: Optional[str] = None,
    debuginfod: Optional[str] = None,
) -> Session:
    """Return a session over a core; no gdb is needed. Names and types, which a debugger knows, are not known then.

    :param sysroot: folder below which the files that the core names are looked for first.
    :param settings: by name, other values than those that ``show gx`` has where nothing was set.
    :param shapes_folder: containers of one's own, beside those of gdbext.
    :param debugger: a gdb that is borrowed for names and types until the session is closed: ``"gdb"``, or its path.
    :param cache: a folder of yours where what gdb reads of files is kept for later cores; None keeps nothing.
    :param debug_dir: where a borrowed gdb searches for separate debug info, instead of its own place.
    :param debuginfod: the URL of a server that a borrowed gdb's files are asked of where they are not here.
    :raises BadCoreError: it is no core that can be read.
    :raises TooLargeError: there is not enough memory for it; later answers may raise it too.
    :raises DebuggerError: that gdb could not be run, died, or is silent; later answers may raise it too.
    :raises UsageError: there is no setting of that name.
    """
    import os

    from gdbext._mount import mount
    from gdbext.grammar.catalogue import default_settings
    from gdbext.session import Session

    mount(os.path.dirname(__file__))
    known = default_settings(settings)
    if debugger is not None:
        from gdbext.borrowing import borrowed

        target, debug, let_go = borrowed.open_core(
            os.fspath(path), debugger, sysroot, settings, cache, debug_dir, debuginfod
        )
        return Session(lambda: target, debug, known, shapes_folder, let_go)
    from gdbext.coretarget import target_of
    from gdbext.errors import out_of_memory
    from gdbext.memory.elf.elfcore import ElfCore

    try:
        core = ElfCore(os.fspath(path), sysroot=sysroot)
        target = target_of(core)
    except MemoryError:
        raise out_of_memory() from None
    return Session(lambda: target, settings=known, shapes_folder=shapes_folder, let_go=core.close)


def open_process(
    pid: int, *, settings: Mapping[str, int] = {}, shapes_folder: str = "", debugger: Optional[str] = None
) -> Session:
    """Stop a process of this machine and return a session over it; no gdb is needed. Parameters as :func:`open_core`.

    The process stands still until the session is closed, or it and its answers are collected, or this process ends,
    however that is: use ``with``. As when gdb attaches, a few of its system calls (``epoll_wait``) return EINTR.

    :param pid: of the process, as this machine numbers it.
    :param debugger: as for a core; then gdb holds the process.
    :raises NoTargetError: there is no such process.
    :raises DebuggerError: it may not be traced, somebody traces it already, or it does not stop; or as for a core.
    :raises UsageError: there is no setting of that name.
    """
    import os

    from gdbext._mount import mount
    from gdbext.grammar.catalogue import default_settings
    from gdbext.session import Session

    mount(os.path.dirname(__file__))
    known = default_settings(settings)
    if debugger is not None:
        from gdbext.borrowing import borrowed

        target, debug, let_go = borrowed.open_process(pid, debugger, settings)
        return Session(lambda: target, debug, known, shapes_folder, let_go)
    from gdbext.tracing.processtarget import hold_process

    target, let_go = hold_process(pid, swapped=bool(known["swapped"]))
    return Session(lambda: target, settings=known, shapes_folder=shapes_folder, let_go=let_go)


def open_snapshot(
    pid: int,
    *,
    settings: Mapping[str, int] = {},
    shapes_folder: str = "",
    max_pause: Optional[float] = None,
) -> Session:
    """Copy a process of this machine and return a session over the copy; the process goes on as soon as it is copied.

    Parameters as :func:`open_process`. The copy takes as much memory as the process has in RAM.

    :param max_pause: seconds after which nothing more is copied; answers say what is missing then.
    :raises NoTargetError: there is no such process, or it ended meanwhile.
    :raises DebuggerError: it may not be traced, somebody traces it already, or it does not stop.
    :raises TooLargeError: there is not enough memory for a copy; the process was not stopped then.
    :raises UsageError: there is no setting of that name.
    """
    import os

    from gdbext._mount import mount
    from gdbext.grammar.catalogue import default_settings
    from gdbext.session import Session

    mount(os.path.dirname(__file__))
    known = default_settings(settings)
    from gdbext.snapshot.opening import open_copy
    from gdbext.snapshot.taking import Wishes

    target, let_go = open_copy(pid, Wishes(bool(known["swapped"]), max_pause))
    return Session(lambda: target, settings=known, shapes_folder=shapes_folder, let_go=let_go)


def current() -> Session:
    """Return the session of gdb's selected inferior at its present stop, with all that gdb knows.

    It ends with the stop: ask again after the program has run.

    :raises ImportError: this Python is not gdb's.
    """
    from gdbext.bridge.stops import session

    return session.current()

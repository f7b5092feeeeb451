"""A process that is stopped by us: as late as can be, and as briefly."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import time
from contextlib import suppress
from typing import Iterable, Optional

import gdb

from gdbext.bridge.decoded import ask

_WORKING = ("analysis", "bridge", "heap", "layout", "memory", "render", "structures", "tracing")  # packages
_MAPPED = re.compile(r"^\S+ r-xp \S+ \S+ \S+ +(/.*)$", re.MULTILINE)


class Hold:
    """A process, running until :meth:`attach`.

    :param pid: None where there is none: then nothing is done.
    """

    def __init__(self, pid: Optional[int]) -> None:
        self.pid = pid
        self._since: Optional[float] = None
        self._seconds: Optional[float] = None

    def attach(self) -> None:
        """Stop the process.

        :raises GdbextError: when gdb may not, or it has ended, or does not stop.
        """
        if self.pid is None:
            return
        # A core needs none of it.
        from gdbext.bridge.stops import attaching
        from gdbext.tracing.stalled import check_stoppable

        _import_all()
        loaded = _load_symbols(_mapped_files(self.pid))
        check_stoppable(self.pid)
        self._since = time.monotonic()
        try:
            attaching.attach(self.pid)
        except gdb.error as error:
            self.let_go()
            raise attaching.refusal(self.pid, str(error)) from None
        gdb.execute(f"remove-inferiors {loaded}", to_string=True)

    def let_go(self) -> Optional[float]:
        """Let the process go on, if it does not already; return for how many seconds it was stopped, None if never."""
        if self._since is not None and gdb.selected_inferior().pid:
            with suppress(gdb.error):  # its threads have ended, or are others since it made exec
                gdb.execute("detach", to_string=True)
            self._seconds = time.monotonic() - self._since
        self._since = None
        return self._seconds


class Held:
    """A process that stood still while it was copied; as :class:`Hold`, with nothing left to be done.

    :param seconds: for which it did.
    """

    pid = None

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def attach(self) -> None:
        """Do nothing."""

    def let_go(self) -> float:
        """Return for how many seconds it was stopped."""
        return self._seconds


def _import_all() -> None:
    """Import whatever a command may need: it takes longer than most analyses."""
    for name in _WORKING:
        package = importlib.import_module(f"gdbext.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"gdbext.{name}."):
            importlib.import_module(module.name)


def _mapped_files(pid: int) -> Iterable[str]:
    """Return the files that the process runs code of, as far as they can be seen here."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            found = dict.fromkeys(_MAPPED.findall(file.read()))
    except OSError:  # attaching says why
        return ()
    return [path for path in found if os.path.isfile(path)]


def _load_symbols(paths: Iterable[str]) -> int:
    """Have gdb read symbols, for an inferior of their own; return its number.

    gdb keeps what it has read of a file as long as anybody uses the file, so it need not read it when it attaches.
    """
    ours = gdb.selected_inferior().num
    gdb.execute("add-inferior -no-connection", to_string=True)
    number = max(inferior.num for inferior in gdb.inferiors())
    gdb.execute(f"inferior {number}", to_string=True)
    for path in paths:
        with suppress(gdb.error):  # not an object file
            ask(f"add-symbol-file {_escaped(path)}")
    gdb.execute(f"inferior {ours}", to_string=True)
    return number


def _escaped(path: str) -> str:
    return re.sub(r"([^\w./+-])", r"\\\1", path)

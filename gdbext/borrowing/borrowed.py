"""A gdb that the library borrows for names and types: our side of it.

gdb runs as a child, guarded, without a terminal; it answers calls of the ``DebugInfo`` port until we close the wire.
One thread starts it and takes its messages: the kernel ends gdb with the thread that has started it, and an interrupt
never comes in the midst of a message.
"""

from __future__ import annotations

import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import IO, Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, cast

from gdbext.borrowing.wire import ANSWER, ASK, CALL, FAIL, PORT, Callback, Message, Part, Wire
from gdbext.coretarget import target_of
from gdbext.debuginfo import DebugInfo
from gdbext.errors import DebuggerError
from gdbext.layout.types import Type
from gdbext.memory.elf.elfcore import ElfCore
from gdbext.memory.live.procmem import ProcessMemory
from gdbext.report import Problem
from gdbext.starting import process
from gdbext.starting.corefile import read_core
from gdbext.starting.executable import choose_exe, find_running
from gdbext.starting.gdbjob import GdbJob, Had, diagnostics, guarded_environment
from gdbext.starting.lockedfolder import LockedFolder, remove_left
from gdbext.starting.parent import DEATH_SIGNAL
from gdbext.starting.process import is_stopped, not_attached, wake
from gdbext.starting.specialfiles import choose_places
from gdbext.target import Target
from gdbext.tracing.tracer import find_process

PATIENCE = 120.0  # seconds for one call: reading the symbols of a large program takes most
_GRACE = 5.0  # seconds in which gdb lets go of its target and ends
_PAUSE = 0.1
# Before it reads symbols, which takes a while. Not between fork and exec: we may have other threads.
_ENDING_WITH_US = ("-iex", f"python __import__('ctypes').CDLL(None).prctl({DEATH_SIGNAL}, {signal.SIGKILL:d})")
_LEAVING_NO_CORE = (
    "-iex",
    "python import resource as r; r.setrlimit(r.RLIMIT_CORE, (0, r.getrlimit(r.RLIMIT_CORE)[1]))",
)
_SERVING = "__import__('gdbext.bridge.serving').bridge.serving.serve"

Opened = Tuple[Target, DebugInfo, Callable[[], None]]


def open_core(
    path: str,
    gdb: str,
    sysroot: Optional[str],
    settings: Mapping[str, int],
    cache: Optional[str] = None,
    debug_dir: Optional[str] = None,
    debuginfod: Optional[str] = None,
) -> Opened:
    """Return a core's target with what gdb knows of it, and what ends gdb.

    :param gdb: the program.
    :param settings: that are not as usual.
    :param cache: the folder where what gdb has read of files is kept, or None.
    :param debug_dir: where separate debug info is, or None for gdb's own place.
    :param debuginfod: a server to be asked for files that are not here, or None.
    :raises BadCoreError: it is no core that can be read.
    :raises DebuggerError: gdb could not be run, or died, or is silent.
    """
    core = ElfCore(path, sysroot=sysroot)
    with ExitStack() as stack:
        stack.callback(core.close)
        ours, facts = target_of(core), read_core(path)
        had = Had(choose_exe(facts, None, sysroot).exe, sysroot, debug_dir)
        if debuginfod is not None or debug_dir is not None:
            from gdbext.starting.downloads import find_files, open_server

            server = open_server(debuginfod, cache, again=False) if debuginfod is not None else None
            had = find_files(server, facts, had, partial(_make_folder, stack), _say)
        places = choose_places(facts, *had, partial(_make_folder, stack))
        job = GdbJob(gdb, path, places.exe, places.sysroot, places.debug_dir, cache=cache)
        if cache is not None:
            from gdbext.starting.indexcache import IndexCache

            index = IndexCache(cache, gdb, facts, places, _make_folder(stack))
            stack.callback(index.keep)
            job = replace(job, index=index.folder)
        borrowed = BorrowedGdb(job)
        stack.callback(borrowed.close)
        target = borrowed.start(None, settings)
        problems = [*target.problems, *(Problem("absent-file", None, remark) for remark in places.remarks)]
        target = replace(target, memory=ours.memory, identity=ours.identity, problems=problems)
        return replace(target, symbols=borrowed.symbols), borrowed.debug, stack.pop_all().close
    raise AssertionError  # the stack swallows nothing


def _say(line: str) -> None:
    if sys.stderr is not None:
        print(f"gdbext: {line}", file=sys.stderr)


def _make_folder(stack: ExitStack) -> str:
    """Make a folder that the stack removes."""
    remove_left()
    folder = LockedFolder()
    stack.callback(folder.remove)
    return folder.path


def open_process(pid: int, gdb: str, settings: Mapping[str, int]) -> Opened:
    """Return a process's target with what gdb knows of it, and what ends gdb, which holds the process.

    :param gdb: the program.
    :param settings: that are not as usual.
    :raises NoTargetError: there is no such process.
    :raises DebuggerError: it may not be traced, or gdb could not be run, or died, or is silent.
    """
    pid = find_process(pid)
    with ExitStack() as stack:
        borrowed = BorrowedGdb(GdbJob(gdb, exe=find_running(pid)), None if is_stopped(pid) else pid)
        stack.callback(borrowed.close)
        target = borrowed.start(pid, settings)
        memory = ProcessMemory(target.local_pid or pid, bool(settings.get("swapped")), holder=borrowed)
        stack.callback(memory.close)
        made = replace(target, memory=memory, symbols=borrowed.symbols)
        return made, borrowed.debug, stack.pop_all().close
    raise AssertionError  # the stack swallows nothing


class BorrowedGdb:
    """A gdb, until :meth:`close` is called, this object is collected, or we end.

    :param pid: of a process that it will hold, and that runs; else None.
    """

    def __init__(self, job: GdbJob, pid: Optional[int] = None) -> None:
        link = _Link(job, pid)
        self._link = link
        self._closing = weakref.finalize(self, link.end)  # before it starts: an interrupt may come
        link.thread.start()

    def start(self, pid: Optional[int], settings: Mapping[str, int]) -> Target:
        """Return gdb's target, without memory; a process is stopped from then on.

        :raises GdbextError: it has none, may not have it, or is silent.
        """
        target: Target = self._link.call(0, "start", pid, dict(settings))
        self._link.holds = True
        return target

    @property
    def debug(self) -> DebugInfo:
        """What gdb knows."""
        return cast(DebugInfo, self._link.call(0, "debug"))

    @property
    def symbols(self) -> Any:
        """What it knows by name."""
        return self._link.call(0, "symbols")

    def close(self) -> None:
        """End gdb; it lets go of a process."""
        self._closing()


class _Part:
    """A part of the port: each member asks gdb. What it reads, as ``types``, stays the same at one stop."""

    def __init__(self, link: "_Link", number: int) -> None:
        self._link = link
        self._number = number
        self._kept: Dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in PORT:
            raise AttributeError(name)
        if not PORT[name]:
            return partial(self._link.call, self._number, name)
        found = self._kept.get(name) or self._link.call(self._number, name)
        if isinstance(found, _Part):
            self._kept[name] = found
        return found

    def __iter__(self) -> Iterator[Any]:
        last = False
        while not last:
            found, last = self._link.call(self._number, "next")
            yield from found


class _Link:
    """The wire, and the thread that takes what comes over it.

    :ivar thread: to be started.
    :ivar holds: whether gdb has its target, and lets go of it as it ends.
    """

    def __init__(self, job: GdbJob, pid: Optional[int]) -> None:
        self._job = job
        self._pid = pid
        self._borrower = os.getpid()
        self._end, self._theirs = socket.socketpair()
        self._wire = Wire(self._end, None, self._find)
        self._inbox: "queue.SimpleQueue[Optional[Message]]" = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._open: List[int] = []  # calls that wait
        self._callbacks: List[Callable[[Type], Any]] = []
        self._types: Dict[int, Type] = {}
        self._fault: Optional[DebuggerError] = None
        self.holds = False
        self._process: "Optional[subprocess.Popen[bytes]]" = None
        self.thread = threading.Thread(target=self._run, name="gdbext's borrowed gdb", daemon=True)

    # ---- calls ----

    def call(self, part: int, name: str, *arguments: Any) -> Any:
        """Ask gdb.

        :raises GdbextError: as what is asked.
        :raises DebuggerError: gdb has ended, or has been silent for :data:`PATIENCE`.
        """
        number = next(self._numbers)
        known = tuple(self._callback(one) if callable(one) else one for one in arguments)
        self._open.append(number)
        try:
            with suppress(OSError):  # it has ended: the last message says so
                self._wire.send(CALL, number, (part, name, known))
            return self._await(number)
        finally:
            self._open.remove(number)

    def _await(self, number: int) -> Any:
        began = time.monotonic()
        unsaid = self._pid is not None and not self.holds
        while True:
            try:
                message = self._inbox.get(timeout=_PAUSE)
            except queue.Empty:
                waited = time.monotonic() - began
                if unsaid and waited > process.UNSAID:
                    unsaid = False
                    self._tell_waiting()
                if waited > PATIENCE:
                    self._fault = self._late()
                    self.end()
                continue
            if message is None:
                self._inbox.put(None)  # for the next who asks
                fault = self._fault or DebuggerError("the borrowed gdb has ended")
                raise DebuggerError(fault.message, fault.hint)
            if message.kind == ASK:
                self._answer(message.number, *message.contents)
            elif message.number == number:
                if message.kind == FAIL:
                    raise message.contents
                return _Part(self, message.contents.number) if isinstance(message.contents, Part) else message.contents

    def _tell_waiting(self) -> None:
        assert self._pid is not None
        remark = process.find_waiting(self._pid)
        if remark is not None and sys.stderr is not None:
            print(f"gdbext: {remark}", file=sys.stderr)

    def _late(self) -> DebuggerError:
        if self._pid is not None and not self.holds:
            return not_attached(self._pid, PATIENCE)
        return DebuggerError(f"the borrowed gdb did not answer in {PATIENCE:.0f} s")

    def _answer(self, number: int, callback: int, type: Type) -> None:
        """Answer what gdb asks; with None where the call that it asks for is given up."""
        wanted = None
        try:
            if number in self._open:
                wanted = bool(self._callbacks[callback](type))
        finally:
            self._wire.send(ANSWER, number, wanted)

    def _callback(self, function: Callable[[Type], Any]) -> Callback:
        self._callbacks.append(function)
        return Callback(len(self._callbacks) - 1)

    def _find(self, name: Any) -> Type:
        """Return a type; called in the thread."""
        number, head = name
        if head is not None:
            self._types[number] = self._type(number, *head)
        return self._types[number]

    def _type(
        self, number: int, name: str, code: Any, size: int, tag: str, signed: bool, length: Optional[int]
    ) -> Type:
        ask = partial(partial, self.call, number)
        return Type(name, code, size, tag=tag, signed=signed, length=length, target=ask("target"), fields=ask("fields"))

    # ---- gdb ----

    def _run(self) -> None:
        try:
            with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err:
                if self._start(err):
                    while (message := self._wire.receive()) is not None:
                        self._inbox.put(message)
                    self._reap(err)
        finally:
            self._end.close()
            self._inbox.put(None)

    def _start(self, err: IO[str]) -> bool:
        """Start gdb; return whether that was possible."""
        try:
            program, *arguments = self._job.arguments(f"{_SERVING}({self._theirs.fileno()})")
            self._process = subprocess.Popen(
                [program, *_ENDING_WITH_US, *_LEAVING_NO_CORE, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                env=guarded_environment(os.environ, cache=self._job.cache),
                pass_fds=(self._theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            hint = 'install gdb, or name one: debugger="/opt/gdb/bin/gdb"'
            self._fault = DebuggerError(f"cannot run {self._job.gdb}: {error.strerror}", hint)
        finally:
            self._theirs.close()
        return self._process is not None

    def _reap(self, err: IO[str]) -> None:
        """Wait for gdb's end; say why it has ended where nobody has asked for that."""
        assert self._process is not None  # it was started
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._kill()
            status = self._process.wait()
        if self._pid is not None and (status or not self.holds):
            wake(self._pid)
        err.seek(0)
        said = "".join(f": {line}" for line in diagnostics(err)[-1:])
        self._fault = self._fault or DebuggerError(f"the borrowed gdb has ended (status {status}){said}")

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Have gdb let go of its target and end, or end it; a fork of the process that has borrowed it lets it be."""
        if os.getpid() != self._borrower or self.thread.ident is None:
            return
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)
        self.thread.join(_GRACE)
        if self.thread.is_alive():
            self._kill()
            self.thread.join()

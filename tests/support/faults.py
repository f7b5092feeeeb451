"""Faults that meet a process while it is examined, at a moment of chance, and what must hold whatever they do."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from tests.support.cache import CHECKOUT
from tests.support.gdbrun import content, die_with_parent, environment, gdb_program, kill_group_of

SECONDS = 90.0  # that an answer, or the line that says why there is none, may take on a busy machine
FREEZER = Path("/sys/fs/cgroup/freezer")
COMMANDS = ("triage", "rss", "blocks summary", "lockwait")
FICKLE = ("fork", "exec", "ends", "churn", "unmap")  # what the process does by itself

LIBRARY = """
import sys, gdbext
from gdbext.errors import GdbextError
try:
    with gdbext.open_process(int(sys.argv[1]), debugger=sys.argv[3] or None) as session:
        report = session.run(sys.argv[2])
        print(report)
except GdbextError as error:
    sys.exit(print(f"gdbext: {sys.argv[2]}: {error}", file=sys.stderr) or 2)
sys.exit(int(report.status))
"""


def _program(pid: int, command: str) -> Sequence[str]:
    return [sys.executable, str(CHECKOUT / "bin" / "gdbext"), *command.split(), "--pid", str(pid)]


def _gdb(pid: int, command: str) -> Sequence[str]:
    loader = CHECKOUT / "gdbext" / "load.py"
    line = [gdb_program(), "-nx", "-batch", "-iex", "set auto-load off", "-ex", f"source {loader}"]
    return [*line, "-p", str(pid), "-ex", f"gx safe {command}"]


def _library(debugger: str) -> Callable[[int, str], Sequence[str]]:
    return lambda pid, command: [sys.executable, "-c", LIBRARY, str(pid), command, debugger]


# What examines a process, and about how many seconds it takes.
DOORS: "Dict[str, Tuple[Callable[[int, str], Sequence[str]], float]]" = {
    "program": (_program, 1.6),
    "gdb": (_gdb, 1.6),
    "library": (_library(""), 0.8),
    "borrowed": (_library("gdb"), 2.2),
}


@dataclass(frozen=True)
class Fault:
    """One run.

    :param what: of ``FICKLE`` or ``FROM_OUTSIDE``.
    :param moment: seconds after the start.
    """

    door: str
    command: str
    what: str
    moment: float


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    :param status: as the shell sees it; None where it did not end in time.
    """

    status: Optional[int]
    out: str
    err: str
    seconds: float


class Examined:
    """The program of fickle.c, running."""

    def __init__(self, program: Path, folder: Path, what: str) -> None:
        self.counts = folder / "counts"
        self.counts.unlink(missing_ok=True)
        line = [str(program), str(self.counts), what]
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=die_with_parent
        )
        self.pid = self.process.pid
        assert self.process.stdout and self.process.stdout.readline() == b"ready\n"

    def state(self) -> "Tuple[str, ...]":
        """Return the states of its living threads, and of those that somebody traces a ``P`` beside them."""
        found: "List[str]" = []
        with suppress(OSError):
            for task in sorted(Path(f"/proc/{self.pid}/task").iterdir()):
                with suppress(OSError):
                    lines = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
                    if lines["State"][0] not in "ZX":
                        found.append(lines["State"][0] + ("" if lines["TracerPid"].strip() == "0" else "P"))
        return tuple(found)

    def ticks(self) -> int:
        """Return how often it has counted."""
        return int.from_bytes(self.counts.read_bytes()[:8], "little")

    def goes_on(self, seconds: float = 5.0) -> bool:
        """Whether it runs, untraced."""
        before, until = self.ticks(), time.monotonic() + seconds
        while time.monotonic() < until:
            state = self.state()
            if self.ticks() > before + 3 and state and not any("P" in one or one in "Tt" for one in state):
                return True
            time.sleep(0.01)
        return False

    def end(self) -> None:
        """Kill it."""
        kill_group_of(self.pid)
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


# -- what is done from outside: (target, examiner) -> what undoes it ------------------------------------


def _send(number: int) -> "Callable[[Examined, subprocess.Popen[bytes]], None]":
    def send(target: Examined, examiner: "subprocess.Popen[bytes]") -> None:
        with suppress(ProcessLookupError):
            os.kill(target.pid, number)

    return send


def _stop(target: Examined, examiner: "subprocess.Popen[bytes]") -> None:
    _send(signal.SIGSTOP)(target, examiner)
    time.sleep(random.random() * 0.3)
    _send(signal.SIGCONT)(target, examiner)


def _freeze(target: Examined, examiner: "subprocess.Popen[bytes]") -> None:
    folder = FREEZER / f"gdbext-{target.pid}"
    folder.mkdir(exist_ok=True)
    (folder / "cgroup.procs").write_text(str(target.pid))
    (folder / "freezer.state").write_text("FROZEN")


def thaw(target: Examined) -> None:
    """Undo a frozen target."""
    folder = FREEZER / f"gdbext-{target.pid}"
    if folder.exists():
        (folder / "freezer.state").write_text("THAWED")
        with suppress(OSError):
            (FREEZER / "cgroup.procs").write_text(str(target.pid))


def clear(target: Examined) -> None:
    """Take away its cgroup, once it has ended."""
    with suppress(OSError):
        (FREEZER / f"gdbext-{target.pid}").rmdir()


def children(pid: int) -> "Iterator[int]":
    """Iterate over the processes that a process has started, of all its threads."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for one in (task / "children").read_text().split():
                yield int(one)


def _end_gdb(number: int) -> "Callable[[Examined, subprocess.Popen[bytes]], None]":
    def end(target: Examined, examiner: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            for child in children(examiner.pid):
                with suppress(OSError):
                    if os.path.basename(os.readlink(f"/proc/{child}/exe")) == "gdb":
                        os.kill(child, number)
                        return
            time.sleep(0.001)

    return end


def _another(target: Examined, examiner: "subprocess.Popen[bytes]") -> None:
    line = random.choice([make for make, _ in DOORS.values()])(target.pid, "blocks summary")
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(line, cwd=CHECKOUT, capture_output=True, timeout=SECONDS, preexec_fn=die_with_parent)


FROM_OUTSIDE: "Dict[str, Callable[[Examined, subprocess.Popen[bytes]], None]]" = {
    "killed": _send(signal.SIGKILL),
    "stopped": _stop,
    "frozen": _freeze,
    "gdb-killed": _end_gdb(signal.SIGKILL),
    "gdb-crashed": _end_gdb(signal.SIGSEGV),
    "two": _another,
}
WITH_GDB = ("gdb-killed", "gdb-crashed")


def can_freeze() -> bool:
    """Whether a cgroup of ours can be frozen."""
    return os.geteuid() == 0 and (FREEZER / "cgroup.procs").exists()


def draw(seed: int) -> "Iterator[Fault]":
    """Iterate for ever over runs, in an order that the seed gives."""
    chance = random.Random(seed)
    while True:
        door = chance.choice(list(DOORS))
        known = [*FICKLE, *FROM_OUTSIDE]
        what = chance.choice([one for one in known if one not in WITH_GDB or door in ("program", "borrowed")])
        if what == "frozen" and not can_freeze():
            continue
        if door == "gdb" and what in ("exec", "frozen"):  # it is gdb's own to attach, and it may wait for ever
            continue
        yield Fault(door, chance.choice(COMMANDS), what, chance.random() * DOORS[door][1])


def run(fault: Fault, program: Path, folder: Path) -> "Tuple[Outcome, List[str]]":
    """Let a fault meet a process that is examined; return what came of it, and what is wrong with that."""
    target = Examined(program, folder, fault.what if fault.what in FICKLE else "calm")
    try:
        outcome = _examine(fault, target)
        thaw(target)
        return outcome, [*check_outcome(fault, outcome), *check_target(fault, target)]
    finally:
        thaw(target)
        target.end()
        clear(target)


def _examine(fault: Fault, target: Examined) -> Outcome:
    line = DOORS[fault.door][0](target.pid, fault.command)
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=CHECKOUT, env=environment(),
            start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        fate = FROM_OUTSIDE.get(fault.what)
        worker = threading.Timer(fault.moment, fate, (target, process)) if fate else None
        if worker is not None:
            worker.start()
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = None
            thaw(target)
            for child in children(process.pid):
                kill_group_of(child)
            kill_group_of(process.pid)
            process.wait()
        seconds = time.monotonic() - begun
        if worker is not None:
            worker.join()
        return Outcome(status, content(out), content(err), seconds)


def check_outcome(fault: Fault, outcome: Outcome) -> "Iterator[str]":
    """Iterate over what is wrong with what somebody was shown."""
    if outcome.status is None:
        yield "no end"
        return
    if "Traceback" in outcome.err + outcome.out:
        yield "traceback"
    said = [line for line in outcome.err.splitlines() if line.strip()]
    ours = [line for line in said if line.startswith("gdbext: ")]
    if fault.door == "gdb":  # its status says nothing
        if not outcome.out.strip() and not ours:
            yield "silent"
        return
    if outcome.status not in (0, 1, 2, 3):
        yield f"status {outcome.status}"
    if outcome.status == 2 and len(said) != 1:
        yield f"{len(said)} lines for why there is no answer"
    if outcome.status != 2 and not outcome.out.strip():
        yield "no answer"


def check_target(fault: Fault, target: Examined) -> "Iterator[str]":
    """Iterate over what is wrong with the process afterwards."""
    if fault.what == "killed":
        with suppress(subprocess.TimeoutExpired):
            target.process.wait(5)
        if target.process.poll() is None:
            yield f"it was killed and lives: {target.state()}"
    elif fault.what == "ends":
        with suppress(subprocess.TimeoutExpired):
            target.process.wait(5)
        if target.process.poll() != 0:
            yield f"it does not come to its end: {target.process.poll()} {target.state()}"
    elif not target.goes_on():
        yield f"it does not go on: {target.process.poll()} {target.state()}"

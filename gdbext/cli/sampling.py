"""A sample of a process, taken by a process of its own, which is given up when it takes too long."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional

from gdbext.cli.children import end_group, started
from gdbext.cli.ending import Noted
from gdbext.cli.gdbrun import python_line
from gdbext.recording.taken import Taken, read_taken
from gdbext.starting.failures import GdbFailedError, TimeOutError, find_limit
from gdbext.starting.gdbjob import guarded_environment

_STEP = 1 << 20


@dataclass(frozen=True)
class Sampling:
    """How samples are taken.

    :param depth: ``sizes``, ``tables``, ``types`` or ``auto``.
    :param debugger: a gdb that is borrowed for names and types, or None.
    :param seconds: that a sample may take.
    :param anchor: seconds since the epoch at which the clock of the machine's boot began, once for all samples: the
        machine's own time may be set meanwhile.
    """

    depth: str
    debugger: Optional[str]
    seconds: float
    settings: Mapping[str, int] = field(default_factory=dict)
    anchor: float = field(default_factory=lambda: time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))

    def now(self) -> float:
        """Return the seconds since the epoch, which neither jump nor go back."""
        return self.anchor + time.clock_gettime(time.CLOCK_BOOTTIME)

    def take(self, pid: int, noted: Noted) -> Taken:
        """Take a sample of a process; it is given up when the user asks for the end."""
        question = {"pid": pid, "depth": self.depth, "debugger": self.debugger, "settings": self.settings}
        line = python_line("gdbext.cli.sampler", json.dumps({**question, "anchor": self.anchor}))
        began = time.monotonic()
        how: "dict[str, Any]" = {"env": guarded_environment(os.environ), "start_new_session": True}
        how.update(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            with started(line, end_group, **how) as child:
                answer = self._read(child, noted, began + self.seconds)
        except OSError as error:
            return Taken(0.0, fault=find_limit(error) or GdbFailedError(f"cannot run {line[0]}: {error.strerror}"))
        status, took = child.wait(), time.monotonic() - began
        if answer is None:
            return Taken(took, fault=TimeOutError(f"no sample within {self.seconds:g} s", "--timeout gives more"))
        try:
            return read_taken(answer)
        except ValueError:
            return Taken(took, fault=GdbFailedError(f"the process that samples ended by {_end_text(status)}"))

    def _read(self, child: "subprocess.Popen[bytes]", noted: Noted, deadline: float) -> Optional[bytes]:
        """Return what a sampler writes; None when it is given up."""
        assert child.stdout is not None
        parts: List[bytes] = []
        descriptor = child.stdout.fileno()
        os.set_blocking(descriptor, False)
        while not noted.stopped and time.monotonic() < deadline:
            noted.wait(deadline - time.monotonic(), descriptor)
            try:
                part = os.read(descriptor, _STEP)
            except BlockingIOError:
                continue
            if not part:
                return b"".join(parts)
            parts.append(part)
        return None


def _end_text(status: int) -> str:
    return signal.Signals(-status).name if -status in list(signal.Signals) else f"status {status}"

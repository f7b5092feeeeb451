"""The process that takes one sample, so that whatever becomes of it the one that records goes on."""

from __future__ import annotations

import json
import os
import resource
import time
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Mapping, Optional

import gdbext
from gdbext import _mount
from gdbext.errors import GdbextError, out_of_memory
from gdbext.recording.taken import Taken, taken_text
from gdbext.starting import dependencies
from gdbext.starting.failures import InternalError
from gdbext.tracing.tasks import find_living

if TYPE_CHECKING:  # numpy is not at hand yet
    from gdbext.analysis.growth.measure import Depth
    from gdbext.session import Session

_NICE = 10


def answer(package: str, question: str) -> None:
    """Write a sample to standard output, or why there is none.

    :param package: folder of ``gdbext/__init__.py``.
    :param question: JSON: ``pid``, ``depth``, ``debugger``, ``settings``, and ``anchor``, the seconds since the epoch
        at which the clock of the machine's boot began.
    """
    _mount.mount(package)
    dependencies.locate(package)
    began = time.monotonic()
    try:
        taken = _measure(**json.loads(question))
    except GdbextError as error:
        taken = Taken(time.monotonic() - began, fault=error)
    except MemoryError:
        taken = Taken(time.monotonic() - began, fault=out_of_memory())
    except Exception as error:  # noqa: BLE001  a defect of ours: the recording says so and goes on
        fault = InternalError(f"{type(error).__name__}: {error}", "please report it")
        taken = Taken(time.monotonic() - began, fault=fault)
    print(taken_text(taken))


def _measure(pid: int, depth: str, debugger: Optional[str], settings: Mapping[str, int], anchor: float) -> Taken:
    dependencies.load(*dependencies.NEEDED)
    from gdbext.analysis.growth.measure import identify, limits_of, measure_sample
    from gdbext.analysis.growth.sampletext import sample_text
    from gdbext.snapshot.taking import Wishes, take_snapshot

    _set_limits()
    with closing(take_snapshot(pid, Wishes(bool(settings.get("swapped"))))) as copy:
        stamp, held = anchor + time.clock_gettime(time.CLOCK_BOOTTIME), copy.facts.held_seconds
        os.nice(_NICE)  # the process goes on: nobody waits for us
        path = f"/proc/{os.getpid()}/fd/{copy.descriptor}"
        with gdbext.open_core(path, settings=settings, debugger=debugger) as session:
            sample = measure_sample(session, _depth_of(depth, session))
            here = replace(session.target, local_pid=find_living(pid))  # of this machine the copy knows nothing
            process, limits = identify(here), limits_of(here)
    sample = replace(sample, process=process, limits=limits, time=stamp, held_seconds=held)
    return Taken(held, sample, sample_text(sample))


def _depth_of(depth: str, session: Session) -> Depth:
    """Return how much is measured: where the line does not say, types of as many blocks as are found without asking."""
    from gdbext.analysis.growth.measure import Depth
    from gdbext.heap.model import USED_STATES
    from gdbext.session import FEW_BLOCKS

    if depth != "auto":
        return Depth[depth.upper()]
    used = sum(int(heap.blocks.having(USED_STATES).sum()) for heap in session.heaps())
    return Depth.TYPES if used <= FEW_BLOCKS else Depth.SIZES


def _set_limits() -> None:
    """Have the kernel end us, and not the recorded process or another, where there is too little memory for all."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # the copy is a file in memory

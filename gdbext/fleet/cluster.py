"""Cores examined by the workers of a running Dask cluster, which have gdbext too and see the same files.

The client has threads, and who forks must have one, so it is in a process of its own; what comes of cores comes from
there a line at a time. Dask is imported there alone.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Dict, Iterator, Optional, Sequence

from gdbext.errors import GdbextError
from gdbext.fleet import child
from gdbext.fleet.examine import How
from gdbext.fleet.pool import Limits, Outcome, Watcher, need_of
from gdbext.fleet.sources import Source
from gdbext.starting import dependencies

_RETRIES = 2
_MEMORY = "memory"  # the resource of workers: bytes


class KilledError(Exception):
    """Somebody has killed the process that was at work on a core: Dask tries again."""


@dataclass
class ClusterPool:
    """As :class:`gdbext.fleet.pool.Pool`, on a cluster.

    :param address: of its scheduler, ``tcp://…``.
    """

    address: str
    how: How
    limits: Limits
    watcher: Watcher
    _child: Optional[child.Child] = None

    def run(self, sources: Sequence[Source]) -> Iterator[Outcome]:
        """Examine cores; iterate over what comes of each, as they end.

        :raises GdbextError: there is no such scheduler, or Dask is not there.
        """
        ours, theirs = os.pipe()
        self._child = child.start(partial(_serve, self.address, sources, self.how, self.limits, theirs))
        os.close(theirs)
        waiting = len(sources)
        with os.fdopen(ours, encoding="ascii") as lines:
            for line in lines:
                waiting -= 1
                self.watcher.at((), waiting)
                yield _outcome(sources, json.loads(line))
        while not self._child.read():
            pass
        ended, self._child = self._child.finish(), None
        ended.result()

    def stop(self) -> None:
        """End the client; what its tasks are at is ended by Dask."""
        if self._child is not None:
            self._child.kill()
            self._child.finish()
            self._child = None


def _outcome(sources: Sequence[Source], found: Dict[str, Any]) -> Outcome:
    text = base64.b64decode(found["text"])
    ended = child.Ended(found["code"], text, found["seconds"], found["cpu"], found["peak"])
    return Outcome(sources[found["number"]], ended, found["late"], found["memory"])


# ---- in the client's process ----


def _serve(address: str, sources: Sequence[Source], how: How, limits: Limits, stream: int) -> None:
    """Have all cores examined, and write a line for each."""
    dependencies.load("distributed")
    engine: Any = importlib.import_module("distributed")
    try:
        client = engine.Client(address, timeout=30)
    except OSError as error:
        raise GdbextError(f"there is no scheduler at {address}: {error}", "dask scheduler prints its address") from None
    room = _find_room(client)
    with os.fdopen(stream, "w", encoding="ascii") as lines:
        numbers = {}
        for number, source in enumerate(sources):
            memory = need_of(source.size, limits.memory if room is None else room)
            future = client.submit(
                examine_there, asdict(source), asdict(how), memory, limits.seconds,
                key=f"gdbext-{source.core}", retries=_RETRIES, pure=False,
                resources={} if room is None else {_MEMORY: memory},
            )  # fmt: skip
            numbers[future] = number, memory
        for future in engine.as_completed(list(numbers)):
            number, memory = numbers.pop(future)
            found = _killed() if future.status == "error" else future.result()
            lines.write(json.dumps({**found, "number": number, "memory": memory}) + "\n")
            lines.flush()
    client.close()


def _find_room(client: Any) -> Optional[int]:
    """Return the bytes of the resource memory that the largest worker has; None where none declares any."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return max(
        (int(worker["resources"][_MEMORY]) for worker in workers if _MEMORY in worker["resources"]), default=None
    )


def _killed() -> Dict[str, Any]:
    return {"code": -signal.SIGKILL, "text": "", "seconds": 0.0, "cpu": 0.0, "peak": 0, "late": False}


# ---- on a worker ----


def examine_there(source: Dict[str, Any], how: Dict[str, Any], memory: int, seconds: Optional[float]) -> Dict[str, Any]:
    """Examine a core in a process of its own; return what :class:`gdbext.fleet.child.Ended` holds.

    :raises KilledError: somebody has killed that process.
    """
    began, question = time.monotonic(), json.dumps({"source": source, "how": how, "memory": memory}).encode()
    process = subprocess.Popen(
        [sys.executable, "-m", "gdbext.fleet.single"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    before, late = resource.getrusage(resource.RUSAGE_CHILDREN), False
    try:
        text, _ = process.communicate(question, seconds)
    except subprocess.TimeoutExpired:
        late = True
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
    if process.returncode < 0 and not late:
        raise KilledError(source["path"])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "code": process.returncode, "text": base64.b64encode(text).decode(), "late": late, "cpu": cpu,
        "seconds": time.monotonic() - began, "peak": after.ru_maxrss << 10,
    }  # fmt: skip

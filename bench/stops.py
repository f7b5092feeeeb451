"""How long ``session.stop()`` takes: a command is stopped at moments spread over its run, from another thread."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Iterator, List

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gdbext  # noqa: E402  the checkout is put into the path first
from gdbext.errors import GdbextError, StoppedError  # noqa: E402
from gdbext.session import Session  # noqa: E402

LINES = ("triage", "blocks summary", "blocks leaks", "blocks retained", "blocks types", "blocks list", "lockwait")
MOST = 0.2  # seconds


def run(session: Session, line: str) -> float:
    """Ask a command; return the seconds until it is answered or stopped."""
    begun = time.perf_counter()
    with suppress(StoppedError):
        session.run(line)
    return time.perf_counter() - begun


def latency(core: str, line: str, after: float) -> "float | None":
    """Stop a command so many seconds after it began; return how long that took, or None: it had ended before."""
    with gdbext.open_core(core) as session:
        answered: List[float] = []

        def work() -> None:
            run(session, line)
            answered.append(time.perf_counter())

        worker = threading.Thread(target=work)
        begun = time.perf_counter()
        worker.start()
        worker.join(max(0.0, begun + after - time.perf_counter()))
        asked = time.perf_counter()
        session.stop()
        worker.join()
        return answered[0] - asked if answered[0] > asked else None


def measure(core: str, lines: "tuple[str, ...]" = LINES, moments: int = 60, repeat: int = 3) -> "Iterator[str]":
    """Iterate over a line for each command: its seconds, and the median and worst latency.

    :param repeat: how often a latency beyond :data:`MOST` is measured; the least counts, for other work of the machine
        may lengthen any.
    """
    for line in lines:
        try:
            with gdbext.open_core(core) as session:
                whole = run(session, line)
        except GdbextError as error:
            yield f"{line:<20}{error}"
            continue
        found = []
        for moment in range(moments):
            after = whole * (moment + 0.5) / moments
            taken = latency(core, line, after)
            for _ in range(repeat - 1):
                if taken is not None and taken > MOST:
                    taken = min(filter(None, (taken, latency(core, line, after))))
            if taken is not None:
                found.append((taken, after))
        worst, at = max(found, default=(0.0, 0.0))
        middle = statistics.median(taken for taken, _ in found or [(worst, at)])
        yield f"{line:<20}{whole:>8.2f}{len(found):>8}{middle:>8.3f}{worst:>8.3f}{at:>8.2f}"


if __name__ == "__main__":
    print(f"{'command':<20}{'wall s':>8}{'stops':>8}{'median':>8}{'worst':>8}{'at s':>8}")
    for row in measure(sys.argv[1], tuple(sys.argv[2:]) or LINES):
        print(row, flush=True)

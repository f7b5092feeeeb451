"""A recording read back. What is in it may be damaged, or come from anywhere: each line is believed by itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import BinaryIO, Dict, Iterator, List, Optional, Sequence

from gdbext.analysis.growth.sample import Sample
from gdbext.analysis.growth.sampletext import MOST_BYTES, is_sample, read_sample
from gdbext.errors import UsageError
from gdbext.grammar.exchange import SAMPLES
from gdbext.memory.hostfiles import open_unless_special
from gdbext.recording import events
from gdbext.recording.events import Event, find_event
from gdbext.report import Problem
from gdbext.wording import grouped

_HINT = "gdbext record writes recordings"
_START = 64  # bytes by which a sample is known


@dataclass(frozen=True)
class Recorded:
    """What a recording holds.

    :param samples: in their order; of more than were wanted, some that are evenly spread, the last among them.
    :param total: how many there are in all.
    :param problems: lines that are not whole.
    """

    samples: Sequence[Sample]
    total: int
    events: Sequence[Event]
    problems: Sequence[Problem]


def read_recording(folder: str, most: int) -> Recorded:
    """Read a recording; it may be written meanwhile.

    :param most: samples, 2 or more.
    :raises UsageError: it is none, or of another version, or cannot be read.
    """
    with _open(folder) as file:
        contents = _Contents(file)
        contents.check(folder)
        samples = list(contents.read(most))
        return Recorded(samples, len(contents.places), contents.events, contents.problems)


class _Contents:
    """The lines of a recording.

    :ivar places: where samples begin in the file, by the number of their line.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.places: Dict[int, int] = {}
        self.events: List[Event] = []
        self._file = file
        self._damaged: List[int] = []
        self._first: Optional[Event] = None
        for number, (place, line) in enumerate(_for_each_line(file), 1):
            self._take(number, place, line)

    def _take(self, number: int, place: int, line: bytes) -> None:
        event = None
        if not line.endswith(b"}\n"):
            self._damaged.append(number)
        elif is_sample(line[:_START].decode("ascii", "replace")):
            self.places[number] = place
        else:
            event = find_event(line.decode("utf-8", "replace"))
            (self._damaged.append(number) if event is None else self.events.append(event))
        self._first = event if number == 1 else self._first

    def check(self, folder: str) -> None:
        """Check the first line."""
        if self._first is None or self._first.kind != events.CREATED:
            raise UsageError(f"{os.path.join(folder, SAMPLES)} is no recording of this version", _HINT)

    def read(self, most: int) -> Iterator[Sample]:
        """Iterate over samples, evenly spread where there are more than are wanted."""
        for number in _spread(list(self.places), most):
            self._file.seek(self.places[number])
            try:
                yield read_sample(self._file.readline().decode("utf-8", "replace"))
            except UsageError:
                self._damaged.append(number)

    @property
    def problems(self) -> Sequence[Problem]:
        """What is not whole."""
        if not self._damaged:
            return []
        more = f" and {grouped(len(self._damaged) - 1)} more" if len(self._damaged) > 1 else ""
        where = f"line {min(self._damaged)}{more} of {SAMPLES}"
        return [Problem("damaged-recording", None, f"{where}: not whole, as where its writer was killed; left out")]


def _spread(numbers: Sequence[int], most: int) -> Sequence[int]:
    if len(numbers) <= most:
        return numbers
    return [numbers[(len(numbers) - 1) * at // (most - 1)] for at in range(most)]


def _open(folder: str) -> BinaryIO:
    path = os.path.join(folder, SAMPLES)
    try:
        descriptor = open_unless_special(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", _HINT) from None
    if descriptor is None:
        raise UsageError(f"{path} is no file", _HINT)
    return open(descriptor, "rb")


def _for_each_line(file: BinaryIO) -> "Iterator[tuple[int, bytes]]":
    """Iterate over lines and where they begin; of one that is too long, only its beginning, without an end."""
    place = 0
    while line := file.readline(MOST_BYTES):
        yield place, line
        place += len(line)
        while line and not line.endswith(b"\n"):
            line = file.readline(MOST_BYTES)
            place += len(line)

"""Taking a snapshot: what can be done before the process is stopped, what must be done while it is, and the rest."""

from __future__ import annotations

import gc
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Iterator, Optional, Sequence, Tuple

from gdbext.abi import Abi
from gdbext.errors import GdbextError, TooLargeError
from gdbext.memory.elf.corenotes import OWNER
from gdbext.memory.elf.elffile import PF_R, PF_W, PF_X
from gdbext.memory.elf.snapshotnotes import DONTDUMP, OUT_OF_TIME, REFUSED, SnapshotFacts, pack_facts, runs_of
from gdbext.memory.intervals import Coverage, Intervals, bytes_of, columns, joined, shared, subtract, unite
from gdbext.memory.live.copying import CopyFile, copy_pages, plan_places
from gdbext.memory.live.mappedfiles import MappedFiles
from gdbext.memory.live.mappings import Mapping as MemoryMapping
from gdbext.memory.live.mappings import read_mappings
from gdbext.memory.live.monotonic import find_monotonic
from gdbext.memory.live.presence import Presence, read_presence
from gdbext.memory.live.procmem import ProcessMemory, read_comm
from gdbext.memory.room import find_room
from gdbext.snapshot.corelayout import HOLE, lay_out, write_headers
from gdbext.snapshot.imagefiles import fill_images, find_images
from gdbext.snapshot.kernelnotes import SETS, pack_note, pack_notes, read_process
from gdbext.snapshot.urgency import find_pointed, in_order
from gdbext.tracing.processtarget import read_abi, read_start
from gdbext.tracing.stalled import check_stoppable
from gdbext.tracing.tasks import find_living
from gdbext.tracing.tracer import StoppedThread, Tracer, find_process
from gdbext.wording import size_text

_OWN = 64 << 20  # bytes that we take besides the copy
_LITTLE = 16 << 20  # bytes that may be new at the stop without another look at the room
_HOLES = (HOLE, 1 << 36, 1 << 32, 1 << 28)  # bytes
_SMALL_HOLE = 64 << 20  # bytes
_FIRST = -20  # nice(2)
_MARGIN = 0.005  # seconds that letting go takes


@dataclass(frozen=True)
class Wishes:
    """How a snapshot is taken.

    :param swapped: whether pages that are swapped out are copied, which brings them back into RAM.
    :param max_pause: seconds after which nothing more is copied; None: all is.
    :param disk: descriptor of the file that the copy is to be written to afterwards, which has room for it, and where
        ``MADV_DONTDUMP`` is heeded; None: it stays in memory.
    :param packed: whether it is packed then, so that of zeros there must not be many.
    """

    swapped: bool = False
    max_pause: Optional[float] = None
    disk: Optional[int] = None
    packed: bool = False


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A core in memory that nobody else sees, until it is closed.

    :param size: of the file, bytes, holes among them.
    :param extents: where in it there are bytes: offset and size, by offset.
    """

    file: CopyFile
    facts: SnapshotFacts
    size: int
    extents: Sequence[Tuple[int, int]]

    @property
    def descriptor(self) -> int:
        """Of the file."""
        return self.file.descriptor

    @property
    def bytes(self) -> int:
        """Bytes of the file that are no hole."""
        return sum(size for _, size in self.extents)

    def close(self) -> None:
        """Let go of it."""
        self.file.close()


@dataclass(frozen=True, eq=False)
class _Stop:
    """What was learned while the process stood still.

    :param copied: pages that are in their places.
    :param missing: rows of start, end and why.
    """

    facts: SnapshotFacts
    presence: Presence
    threads: Sequence[StoppedThread]
    copied: Coverage


def take_snapshot(pid: int, wishes: Wishes, descriptor: Optional[int] = None) -> Snapshot:
    """Copy a process of this machine; it goes on as soon as its memory is copied.

    :param descriptor: of a file in memory that gets the core; None makes one.
    :raises NoTargetError: there is no such process, or it ended meanwhile.
    :raises DebuggerError: it may not be traced, is traced already, or does not stop.
    :raises TooLargeError: there is not enough memory for a copy; then it was not stopped.
    :raises GdbextError: it may not be read, or is of a kind that is not known.
    """
    with ExitStack() as stack:
        pid = find_process(pid)
        seen = find_living(pid)
        check_stoppable(pid)
        abi, _ = read_abi(seen)
        process, auxv = read_process(pid), read_start(seen, "auxv")
        file, files, hole, pointed = _make_room(seen, wishes, stack, descriptor)
        stop, held_seconds = _hold(pid, seen, (file, pointed), wishes)
        changed = Coverage(*shared(stop.facts.lost(), stop.presence.written)[:2])
        filled = fill_images(files, stop.presence.mappings, file, stop.copied, changed)
        notes = pack_notes(process, stop.threads, auxv, stop.presence.mappings, abi)
        facts = stop.facts.held(held_seconds).without(filled)
        size, extents = _write(file, facts, stop.presence, unite_all(stop.copied, filled), (notes, hole), abi)
        stack.pop_all()
        return Snapshot(file, facts, size, extents)
    raise AssertionError  # the stack swallows nothing


# -- before the stop ------------------------------------------------------------------------------------


def _make_room(
    seen: int, wishes: Wishes, stack: ExitStack, descriptor: Optional[int]
) -> Tuple[CopyFile, MappedFiles, int, Sequence[Coverage]]:
    """Return room for what there is at this moment, the files that are mapped, open, how large a hole may be, and what
    of it goes before others where the pause is bounded."""
    memory = ProcessMemory(seen, wishes.swapped)
    stack.callback(memory.close)
    presence = memory.presence
    if not presence.known:
        raise GdbextError("this kernel has no page maps: what there is of the process is not known", "use gcore")
    files = MappedFiles(seen, presence.mappings, memory.read)
    wanted, _ = _wanted(presence, wishes)
    images = find_images(files, presence.mappings)
    whole = unite_all(Coverage(*wanted), images)
    check_room(whole.bytes)
    places = plan_places((whole.starts, whole.ends), presence.mappings)
    hole = _find_hole(wishes, whole.bytes, places.end)
    file = CopyFile(places, descriptor)
    stack.callback(file.close)
    placed = shared(Coverage(*wanted), file.places.covered)[:2]
    file.populate(placed)
    bounded = wishes.max_pause is not None
    pointed = find_pointed(seen, file, placed, presence.mappings) if bounded else ()
    return file, files, hole, pointed


def check_room(size: int) -> None:
    """Check that so many bytes can be taken.

    :raises TooLargeError: they cannot.
    """
    room = find_room()
    if room is not None and room.bytes < size + size // 16 + _OWN:
        what = f"a copy takes {size_text(size)}, and {size_text(room.bytes)} are {room.why}"
        raise TooLargeError(what, "commands with --in-place examine the process itself, which stands still longer")


def _find_hole(wishes: Wishes, size: int, end: int) -> int:
    """Return how large a hole may be in the file that is to be written, for which there must be room.

    :raises TooLargeError: there is none, or a file may not be that large there.
    """
    if wishes.disk is None:
        return HOLE
    facts = os.fstatvfs(wishes.disk)
    free = facts.f_bavail * facts.f_frsize
    if free < size + size // 16 and not wishes.packed:
        what = f"a snapshot takes {size_text(size)}, and {size_text(free)} are free where it is to be"
        raise TooLargeError(what, "-o FILE names another place, --compress takes less")
    return _SMALL_HOLE if wishes.packed else _find_largest(wishes.disk, end + _LITTLE)


def _find_largest(disk: int, end: int) -> int:
    for hole in _HOLES:
        try:
            os.ftruncate(disk, end + hole)
        except OSError:
            continue
        os.ftruncate(disk, 0)
        return hole
    raise TooLargeError(f"no file of {size_text(end)} may be where it is to be", "ulimit -f and file systems bound it")


def _wanted(presence: Presence, wishes: Wishes) -> Tuple[Intervals, Intervals]:
    """Return which pages are copied, and which are kept out of copies on disk."""
    there = presence.present
    if wishes.disk is None:
        return (there.starts, there.ends), columns([])
    private = Coverage(*columns((one.start, one.end) for one in presence.mappings if "dd" in one.flags))
    kept = subtract(there, private)[:2]
    return kept, shared(there, private)[:2]


def unite_all(*parts: Coverage) -> Coverage:
    """Return what these cover together."""
    covered = unite([(part.starts, part.ends) for part in parts]).covered
    return Coverage(*joined((covered.starts, covered.ends)))


# -- while it stands still ------------------------------------------------------------------------------


def _hold(pid: int, seen: int, room: Tuple[CopyFile, Sequence[Coverage]], wishes: Wishes) -> Tuple[_Stop, float]:
    """Stop the process, copy it, let it go; return what was learned, and for how many seconds it stood still."""
    with _without_collecting(), _urgently():
        tracer = Tracer(pid, SETS)
        try:
            stop = _copy(seen, tracer, room, wishes)
        finally:
            tracer.let_go()
    return stop, tracer.held_seconds


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Have no garbage be collected: that takes as long as copying 10 MB."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _urgently() -> Iterator[None]:
    """Have this thread, and those that it starts, go before others, where we may say so: a process stands still."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _FIRST)
    try:
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)


def _copy(seen: int, tracer: Tracer, room: Tuple[CopyFile, Sequence[Coverage]], wishes: Wishes) -> _Stop:
    file, pointed = room
    now, clock = time.time(), find_monotonic(seen)
    mappings = read_mappings(seen)
    presence = read_presence(seen, mappings, wishes.swapped)
    wanted, kept_out = _wanted(presence, wishes)
    new = file.add_places(wanted)
    if bytes_of(*new) > _LITTLE:
        check_room(bytes_of(*new))
    placed = shared(Coverage(*wanted), file.places.covered)[:2]
    until = None if wishes.max_pause is None else tracer.since + wishes.max_pause - _MARGIN
    group = placed if until is None else in_order(placed, mappings, tracer.threads, pointed)
    done = copy_pages(seen, file, [group], until)
    names = {one.tid: read_comm(tracer.pid, one.tid) for one in tracer.threads}
    unplaced = zip(*(column.tolist() for column in subtract(Coverage(*wanted), file.places.covered)[:2]))
    missing = [
        *((low, high, OUT_OF_TIME) for low, high in (*done.late, *unplaced)),
        *((low, high, REFUSED) for low, high in done.refused),
        *((low, high, DONTDUMP) for low, high in zip(*(column.tolist() for column in kept_out))),
    ]
    facts = SnapshotFacts(
        mappings, presence.runs, runs_of(missing), names, now, clock, swapped=wishes.swapped, known=presence.known
    )
    copied = Coverage(*joined(subtract(Coverage(*joined(placed)), facts.lost())[:2]))
    return _Stop(facts, presence, tracer.threads, copied)


# -- afterwards -----------------------------------------------------------------------------------------


def _write(
    file: CopyFile, facts: SnapshotFacts, presence: Presence, copied: Coverage, more: Tuple[bytes, int], abi: Abi
) -> Tuple[int, Sequence[Tuple[int, int]]]:
    """Make a core of what was copied; return its size, and where it has bytes.

    :param more: the kernel's notes, and how large a hole may be.
    """
    notes, hole = more
    loads = lay_out(presence.mappings, presence, copied, facts.lost(), file.places, hole)
    own = b"".join(pack_note(OWNER, kind, data, abi) for kind, data in pack_facts(facts).items())
    size = write_headers(file.descriptor, loads, [_flags(one) for one in presence.mappings], notes + own, abi)
    starts, ends, _ = shared(copied, file.places.covered)
    offsets = file.places.locate(starts)
    low, high = joined((offsets, offsets + (ends - starts)))
    held = zip(low.tolist(), (high - low).tolist())
    return size, [(0, abi.page_size), *held, (loads.end, size - loads.end)]


def _flags(mapping: MemoryMapping) -> int:
    return sum(bit for letter, bit in (("r", PF_R), ("w", PF_W), ("x", PF_X)) if letter in mapping.permissions)

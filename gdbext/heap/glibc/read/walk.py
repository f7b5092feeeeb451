"""Walking one stretch of memory that malloc took from the system, chunk by chunk.

A segment ends at its arena's ``top``, or in the fenceposts that ``sysmalloc`` leaves when it moves
on: for a heap a chunk of ``2*SIZE_SZ`` and a header of size 0, for the main arena two chunks of
``2*SIZE_SZ`` (malloc/malloc.c, ``sysmalloc``, the same in 2.23 to 2.44).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import List, Optional, Sequence, Set, Tuple

import numpy as np

from gdbext.errors import FaultError
from gdbext.heap.glibc.read.chunks import GrowingChunks
from gdbext.heap.glibc.sizes import FLAG_BITS, PREV_INUSE, Sizes
from gdbext.heap.model import U64
from gdbext.kernels import ChunkRun, find_chunk, read_chunks, words_of
from gdbext.memory import Buffer, view
from gdbext.progress import SILENT, Progress, is_tight, relieve
from gdbext.report import Problem
from gdbext.target import Target


@dataclass(frozen=True)
class Segment:
    """A stretch to walk.

    :param start: first byte that was taken from the system.
    :param first: where the first chunk begins.
    :param end: first address after it.
    :param kind: ``brk``, ``mmap`` or ``heap``.
    :param top: the arena's top chunk when it lies here, else None.
    :param structures: bytes between ``start`` and ``first`` that hold heap_info and malloc_state.
    """

    start: int
    first: int
    end: int
    kind: str
    arena: int
    top: Optional[int] = None
    structures: int = 0


CHUNKS_AT_ONCE = 1 << 16  # some 2 MB of columns that are there twice
FEW_AT_ONCE = 1 << 10  # each may bring 64 KiB into memory (fault-around)
NONE_KNOWN: U64 = np.empty(0, np.uint64)


@dataclass
class Walked:
    """What a segment held.

    :param end: where it ends: for brk and mmap segments without top, behind the fenceposts.
    :param fenceposts: pairs of address and size in bytes.
    :param foreign: gaps that somebody else's ``sbrk`` left between chunks, as (start, end).
    :param skipped: damaged stretches that could not be attributed, as (start, end).
    :param absent: whether (part of) it is not in the core.
    """

    segment: Segment
    end: int = 0
    top: Optional[int] = None
    top_size: int = 0
    chunk_count: int = 0
    chunk_bytes: int = 0
    fenceposts: List[Tuple[int, int]] = field(default_factory=list)
    foreign: List[Tuple[int, int]] = field(default_factory=list)
    skipped: List[Tuple[int, int]] = field(default_factory=list)
    tail: int = 0
    problems: List[Problem] = field(default_factory=list)
    absent: bool = False

    @property
    def overhead(self) -> int:
        """Bytes of structures, alignment, fenceposts and unusable tail."""
        before = self.segment.first - self.segment.start
        return before + sum(size for _, size in self.fenceposts) + self.tail

    @property
    def walked_bytes(self) -> int:
        """Everything that was met, piece by piece; skipped bytes are not among it."""
        foreign = sum(end - start for start, end in self.foreign)
        return self.chunk_bytes + self.top_size + self.overhead + foreign

    @property
    def skipped_bytes(self) -> int:
        """Damaged or absent stretches."""
        return sum(end - start for start, end in self.skipped)


def begin_walk(segment: Segment) -> Walked:
    """Return the empty result that :func:`walk_segment` fills."""
    return Walked(segment, segment.end)


class _Walk:
    """One pass over a readable run of a segment. Positions are word indices from ``origin``."""

    def __init__(
        self,
        target: Target,
        sizes: Sizes,
        run: Tuple[int, int],
        known: U64,
        result: Walked,
        chunks: GrowingChunks,
    ) -> None:
        self.sizes, self.segment, self.rules = sizes, result.segment, sizes.rules
        self.origin, high = run
        self.whole = high == self.segment.end
        extent = (high - self.origin) // sizes.word * sizes.word
        buffer = view(target.memory, self.origin, extent)
        self.words = words_of(buffer, sizes.word, target.abi.byteorder)
        top = self.segment.top
        self.has_top = top is not None and self.origin <= top <= high - 2 * sizes.word
        self.stop = self._position(top) if top is not None and self.has_top else len(self.words)
        near = known[bisect_left(known, self.origin) : bisect_left(known, high)]
        self.known = {self._position(address) for address in near.tolist() if sizes.aligned(address)}
        self.result = result
        self.chunks = chunks

    def _position(self, address: int) -> int:
        return (address - self.origin) // self.sizes.word

    def _address(self, position: int) -> int:
        return self.origin + position * self.sizes.word

    def run(self, progress: Progress) -> None:
        at = 0 if self.origin == self.segment.first else self._first_chunk()
        while at < self.stop:
            progress.at("MiB walked", self._address(at) - self.segment.start >> 20, self._mebibytes)
            most = FEW_AT_ONCE if is_tight() else CHUNKS_AT_ONCE
            run = read_chunks(self.words, self.origin, at, self.stop, self.rules, most)
            relieve()
            if len(run) == most and run.end < self.stop:
                self._keep(run)
                at = run.end
                continue
            if len(run) and not self.whole and run.end + 1 >= len(self.words):
                # The header behind the last chunk, which says whether that is free, is not in the core.
                run = _without_last(run, self._position(int(run.address[-1])))
            self._keep(run)
            at = self.stop if run.end >= self.stop else self._after(run.end)
        if self.whole or self.has_top:
            self._finish()

    @property
    def _mebibytes(self) -> int:
        return self.segment.end - self.segment.start >> 20

    def _first_chunk(self) -> int:
        """Behind absent memory: the first place where chunks can be picked up again."""
        at = find_chunk(self.words, 0, self.stop, {self.stop} | self.known, self.rules)
        at = self.stop if at is None else at
        if at:
            self.result.skipped.append((self.origin, self._address(at)))
        return at

    def _keep(self, run: ChunkRun) -> None:
        """Keep the columns; a free chunk's size must stand again in front of the chunk that follows."""
        if not len(run):
            return
        self.chunks.add(run)
        for row in run.mismatched.tolist():
            chunk, size = int(run.address[row]), int(run.size[row])
            stored = self.words[self._position(chunk + size)]
            self._problem(
                "prev-size",
                chunk + size,
                f"prev_size is {stored:#x}, expected {size:#x}, the size of"
                f" the free chunk before it at {chunk:#x}",
            )

    def _after(self, end: int) -> int:
        """Deal with an invalid size at position ``end``; return where to go on."""
        if not self.whole and self._leaves_run(end):
            self.result.skipped.append((self._address(end), self._address(self.stop)))
            return self.stop
        fences = self._fenceposts(end)
        if fences:
            return self._next_segment(end + sum(fences) // self.sizes.word)
        return self._resynchronise(end)

    def _leaves_run(self, at: int) -> bool:
        """Whether a chunk with a valid size reaches into memory that cannot be read."""
        if at + 1 >= len(self.words):
            return True
        size = self.words[at + 1] & ~FLAG_BITS
        fits = self._address(at) + size <= self.segment.end
        return fits and self.sizes.valid(size) and at + size // self.sizes.word + 1 >= len(self.words)

    def _fenceposts(self, at: int) -> List[int]:
        """Return the sizes of the fenceposts at a position: two or more, or none."""
        sizes: List[int] = []
        fence = self.sizes.header
        place = at
        while place + 1 < len(self.words) and self.words[place + 1] & ~PREV_INUSE == fence:
            sizes.append(fence)
            place += fence // self.sizes.word
        if sizes and place + 1 < len(self.words) and self.words[place + 1] == PREV_INUSE:
            sizes.append(fence)
        elif not sizes and self.segment.kind == "heap":
            return self._lone_end(at)
        if len(sizes) < 2:
            return []
        self.result.fenceposts += [
            (self._address(at) + fence * number, fence) for number in range(len(sizes))
        ]
        return sizes

    def _lone_end(self, at: int) -> List[int]:
        """A heap whose old top was too small: the last chunk is the fencepost, then a size of 0.

        ``sysmalloc`` gives that chunk ``old_size + CHUNK_HDR_SZ`` with old_size < MINSIZE, so it can
        look like the smallest chunk in use.
        """
        fence, last = self.sizes.header, self.chunks.find_last()
        near_end = self.segment.end - self._address(at) <= 2 * self.sizes.alignment
        if self.words[at + 1] != PREV_INUSE or not near_end or last is None:
            return []
        if last[1] > fence + self.sizes.minimum:
            return []
        self.result.fenceposts += [last, (self._address(at), fence)]
        self.chunks.drop_last()
        return [fence]

    def _next_segment(self, at: int) -> int:
        """After fenceposts: go on behind a foreign gap, or end here."""
        if self.segment.kind == "heap" or self.segment.top is None:
            self.stop = at
            return at
        goals = {self.stop} | self.known | self._double_fences(at)
        again = find_chunk(self.words, at, self.stop, goals, self.rules, None)
        if again is None:
            self._skip(at, self.stop, "foreign-gap", "no chunks lead from the fenceposts to top")
            return self.stop
        if again > at:
            self.result.foreign.append((self._address(at), self._address(again)))
        return again

    def _double_fences(self, at: int) -> Set[int]:
        """Return the positions from ``at`` on where two fenceposts stand: the next gap begins behind them."""
        step = self.sizes.header // self.sizes.word
        heads = np.asarray(self.words[at + 1 :]) & ~np.uint64(PREV_INUSE)
        pairs = (heads[:-step] == self.sizes.header) & (heads[step:] == self.sizes.header)
        return set((np.flatnonzero(pairs) + at).tolist())

    def _resynchronise(self, end: int) -> int:
        head = self.words[end + 1] if end + 1 < len(self.words) else 0
        again = find_chunk(self.words, end + 2, self.stop, self.known, self.rules)
        where = f"walk resynchronised at {self._address(again):#x}" if again else "no chunk found after it"
        before = self._chunk_before()
        self._skip(
            end,
            self.stop if again is None else again,
            "chunk-size",
            f"size field is {head:#x}, expected a multiple of {self.rules.granule} from"
            f" {self.rules.minimum:#x} to {(self.stop - end) * self.sizes.word:#x}; {before}; {where}",
        )
        return self.stop if again is None else again

    def _chunk_before(self) -> str:
        last = self.chunks.find_last()
        return "no chunk before it" if last is None else f"chunk before it at {last[0]:#x}, {last[1]} bytes"

    def _skip(self, at: int, until: int, kind: str, message: str) -> None:
        self.result.skipped.append((self._address(at), self._address(until)))
        self._problem(kind, self._address(at), message)

    def _problem(self, kind: str, address: int, message: str) -> None:
        self.result.problems.append(Problem(kind, address, message, corruption=True))

    def _finish(self) -> None:
        """Account for top, or for what is left behind the last fencepost."""
        segment, end = self.segment, self._address(self.stop)
        if segment.top is None:
            self._finish_without_top(end)
            return
        if end != segment.top:
            return  # top is not in what can be read
        self.result.top = segment.top
        size = self.words[self.stop + 1] & ~FLAG_BITS if self.stop + 1 < len(self.words) else 0
        room = segment.end - segment.top
        if size < self.rules.minimum or size > room:
            self._problem(
                "top-size" if size > room else "top-header",
                segment.top,
                f"top's size is {size:#x}, expected from {self.rules.minimum:#x} to {room:#x}, the bytes to the end"
                " of its heap",
            )
            self.result.skipped.append((segment.top, segment.end))
            return
        self.result.top_size = size
        self.result.tail = room - size
        if size < room:  # what of a heap or of brk's pages is not top's, sysmalloc does not know either: it aborts
            expected = f"expected {room:#x}, the bytes to the end of its heap"
            self._problem("top-header", segment.top, f"top's size is {size:#x}, {expected}")

    def _finish_without_top(self, end: int) -> None:
        if self.result.fenceposts and self.segment.kind != "heap":
            self.result.end = end
            return
        self.result.tail = self.segment.end - end
        last = self.chunks.find_last()
        if self.result.fenceposts or self.result.tail or last is None:
            return
        # Nothing ends this heap: its last chunk is the top that the arena should point at.
        self.result.top, self.result.top_size = last
        self.chunks.drop_last()


def walk_segment(
    target: Target,
    sizes: Sizes,
    walked: Walked,
    chunks: GrowingChunks,
    known: U64 = NONE_KNOWN,
    progress: Progress = SILENT,
) -> None:
    """Walk one segment, going on behind damage and behind memory that is absent.

    Unreadable memory gives an ``absent-memory`` problem, not an error.

    :param walked: filled with all that is met, also when the walk is interrupted.
    :param chunks: gets the segment's chunks, which have been begun there.
    :param known: addresses of chunks vouched for elsewhere (free lists), sorted, used to resynchronise.
    """
    try:
        _walk_runs(target, sizes, walked, known, progress, chunks)
    finally:
        walked.chunk_count = chunks.count - chunks.first
        walked.chunk_bytes = chunks.segment_bytes()


def _walk_runs(
    target: Target,
    sizes: Sizes,
    walked: Walked,
    known: U64,
    progress: Progress,
    chunks: GrowingChunks,
) -> None:
    segment = walked.segment
    at = segment.first
    for low, high in _readable_runs(target, segment, sizes.alignment):
        low = sizes.align_chunk(low)
        if low >= high or (segment.top is not None and segment.top < low):
            continue  # behind top are only bytes of top
        _note_absent(walked, at, low)
        try:
            _Walk(target, sizes, (low, high), known, walked, chunks).run(progress)
        except FaultError:
            _note_absent(walked, low, high)
        at = high if walked.top is None else segment.end
    _note_absent(walked, at, segment.end)


def _readable_runs(target: Target, segment: Segment, alignment: int) -> List[Tuple[int, int]]:
    """Return the stretches of ``first`` to ``end`` that can be read, adjacent regions joined.

    A truncated core may end anywhere: the bytes of a word that is not whole cannot be read.
    """
    runs: List[Tuple[int, int]] = []
    for region in target.index.within(segment.first, segment.end):
        low, high = max(region.start, segment.first), min(region.end, segment.end)
        if region.source == "absent" or low >= high:
            continue
        if runs and runs[-1][1] == low:
            runs[-1] = (runs[-1][0], high)
        else:
            runs.append((low, high))
    whole = ((low, high if high == segment.end else high - high % alignment) for low, high in runs)
    return [(low, high) for low, high in whole if low < high]


def readable_spans(target: Target, sizes: Sizes, segments: Sequence[Walked]) -> List[Tuple[int, Buffer]]:
    """Return what of the chunks' memory can be read, by first address, without copying where the memory allows."""
    runs = sorted(run for walked in segments for run in _readable_runs(target, walked.segment, sizes.word))
    spans, behind = [], 0
    for low, high in runs:
        if low < behind:
            continue  # damage has made segments overlap
        try:
            spans.append((low, view(target.memory, low, high - low)))
        except FaultError:
            continue  # the walk has told
        behind = high
    return spans


def _note_absent(walked: Walked, start: int, end: int) -> None:
    if start >= end:
        return
    walked.absent = True
    walked.skipped.append((start, end))
    message = f"{end - start} bytes of a {walked.segment.kind} segment cannot be read; their chunks are unknown"
    walked.problems.append(Problem("absent-memory", start, message))


def _without_last(run: ChunkRun, end: int) -> ChunkRun:
    last = len(run) - 1
    mismatched = run.mismatched[run.mismatched < last]
    return ChunkRun(run.address[:last], run.size[:last], run.flags[:last], run.free[:last], mismatched, end)

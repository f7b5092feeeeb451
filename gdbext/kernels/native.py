"""The kernels of ``native/``, through ctypes: the same functions as the reference's, with the same answers.

The library knows nothing of Python. What long work there is, is done in steps, so that an interrupt is met between
two of them, and a limit of time (:func:`gdbext.progress.check`); threads that it starts end with the call.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from gdbext.kernels import chains, reference
from gdbext.kernels import columns as reference_columns
from gdbext.kernels import pointers as reference_pointers
from gdbext.kernels.chains import MOST_NODES, Chains, LinkRules, Span
from gdbext.kernels.columns import I64, U8, U32, U64, ChunkRun, Mask
from gdbext.kernels.damage import find_damage
from gdbext.kernels.pointers import BlockIndex, Hits, PointerRules
from gdbext.kernels.reference import ChunkRules, Words
from gdbext.kernels.tally import MOST_TALLIED, Tally
from gdbext.progress import check, is_tight, relieve, threads

ABI = 11
STEP_MILLISECONDS = 50
_SHORT_STEP = 2  # nodes anywhere bring 64 KiB each into memory (fault-around)
_NAME = "libgdbext_native.so"
DAMAGED = "is damaged: "
_MOST = (1 << 64) - 1
_OUT_OF_MEMORY = -4
_CHUNKS_AT_ONCE = 1 << 19
_MOST_DISTINCT = 1 << 20
_ROWS_AT_ONCE = 1 << 18
_FEW_ROWS_AT_ONCE = 1 << 10
_FEW = 256  # chains or addresses for which a call is not worth its preparation

_u64, _u32, _pointer = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p


class _Memory(ctypes.Structure):
    _fields_ = [("starts", _pointer), ("places", _pointer), ("lengths", _pointer), ("count", _u64)]


class _LinkRules(ctypes.Structure):
    _fields_ = [
        *((name, _u64) for name in ("next", "mask", "relative", "end_bits", "leaf_bits", "alignment")),
        ("sentinels", _pointer),
        ("sentinel_count", _u64),
        ("forbidden", _pointer),
        ("forbidden_count", _u64),
        *((name, _u32) for name in ("word", "swapped", "mangled", "unused")),
    ]


class _TallyHeads(ctypes.Structure):
    _fields_ = [
        ("firsts", _pointer),
        *((name, _u64) for name in ("bytes", "count", "stride", "stop", "stop_step", "total")),
        *((name, _u32) for name in ("word", "swapped", "stops", "unused")),
    ]


class _PointerRules(ctypes.Structure):
    _fields_ = [
        ("clear", _u64),
        ("headers", _u64 * reference_pointers.MOST_HEADERS),
        *((name, _u32) for name in ("word", "swapped", "mangled", "part")),
    ]


class _ChunkWalk(ctypes.Structure):
    _fields_ = [
        ("memory", _pointer),
        *((name, _u64) for name in ("bytes", "origin", "start", "stop", "minimum", "granule")),
        ("word", _u32),
        ("swapped", _u32),
        ("room", _u64),
        *((name, _pointer) for name in ("address", "size", "flags", "free", "mismatched")),
        ("mismatches", _u64),
        ("end", _u64),
    ]


class _Blocks(ctypes.Structure):
    _fields_ = [("address", _pointer), ("size", _pointer), ("count", _u64), ("index", _pointer)]


_SIGNATURES = {
    "gx_abi": (_u32, []),
    "gx_threads": (_u32, [_u32]),
    "gx_refused": (ctypes.c_int64, []),
    "gx_walk_chunks": (ctypes.c_int64, [_pointer]),
    "gx_rows_of": (ctypes.c_int64, [_pointer, _u64, _pointer, _u64, _pointer]),
    "gx_find_blocks": (ctypes.c_int64, [_pointer, _pointer, _u64, _u32, _pointer]),
    "gx_gather_scalars": (ctypes.c_int64, [_pointer, _pointer, _u64, _u32, _u32, _u32, _pointer, _pointer]),
    "gx_count_values": (
        ctypes.c_int64,
        [_pointer, _pointer, _u64, _pointer, _u64, _pointer, _pointer, _u64],
    ),
    "gx_slab_regions": (
        ctypes.c_int64,
        [_pointer, _pointer, _pointer, _u64, _pointer, _u64, _pointer, _pointer, _u64],
    ),
    "gx_page_census": (ctypes.c_int64, [_pointer, _pointer, _pointer, _u64, _u64, _pointer, _pointer, _pointer]),
    "gx_chains_new": (_pointer, [_pointer, _pointer, _u64, _pointer, _pointer, _u64, _pointer]),
    "gx_tally_new": (_pointer, [_pointer, _pointer, _pointer]),
    "gx_tally_write": (ctypes.c_int64, [_pointer, _pointer, _pointer]),
    "gx_scan_new": (_pointer, [_pointer, _pointer, _pointer, _pointer, _u64]),
    "gx_mark_new": (_pointer, [_pointer, _pointer, _pointer, _pointer, _pointer]),
    "gx_index_new": (_pointer, [_pointer]),
    "gx_job_run": (ctypes.c_int64, [_pointer, _u32]),
    "gx_job_found": (ctypes.c_int64, [_pointer]),
    "gx_chains_write": (ctypes.c_int64, [_pointer, _u64, *[_pointer] * 5]),
    "gx_scan_write": (ctypes.c_int64, [_pointer, _pointer, _pointer, _pointer]),
    "gx_mark_write": (ctypes.c_int64, [_pointer, _u64, _pointer]),
    "gx_job_free": (None, [_pointer]),
}


def places() -> List[str]:
    """Return where the library may be: beside this file (a wheel), or where cargo built it (a checkout)."""
    here = os.path.dirname(os.path.realpath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    return [os.path.join(here, _NAME), os.path.join(root, "native", "target", "release", _NAME)]


def find_library() -> Tuple[Optional["Native"], str]:
    """Return the kernels of the library that is at hand, or None, and why not."""
    found = [place for place in places() if os.path.exists(place)]
    if not found:
        return None, "not built: install gdbext again where cargo runs"
    try:
        if damage := find_damage(found[0]):
            return None, f"{DAMAGED}{damage}: run ./install.sh again"
        library = ctypes.CDLL(found[0])
        for name, (answer, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = answer, arguments
    except (OSError, AttributeError) as error:
        return None, f"cannot be used: {error}"
    if library.gx_abi() != ABI:
        return None, f"is of another version ({library.gx_abi()}, not {ABI}): run ./install.sh again"
    return Native(library), found[0]


def step_milliseconds() -> int:
    """Return how long a step of a job may last."""
    return min(STEP_MILLISECONDS, _SHORT_STEP) if is_tight() else STEP_MILLISECONDS


class NativeError(RuntimeError):
    """A defect of the library, or an argument that it refuses."""


def _place(array: Optional["npt.NDArray[Any]"]) -> Optional[int]:
    return None if array is None else int(array.__array_interface__["data"][0])  # .ctypes takes thrice as long


def _column(values: "npt.ArrayLike", kind: str) -> "npt.NDArray[Any]":
    return np.ascontiguousarray(values, dtype=kind)


def _swapped(byteorder: str) -> int:
    return int(byteorder != sys.byteorder)


class _Held:
    """Spans as the library takes them; keeps alive what it points at."""

    def __init__(self, spans: Sequence[Span]) -> None:
        held = [(start, buffer) for start, buffer in spans if memoryview(buffer).nbytes]  # type: ignore[arg-type]
        self._buffers = [np.frombuffer(buffer, np.uint8) for _, buffer in held]  # type: ignore[call-overload]
        self._starts = np.array([start for start, _ in held], np.uint64)
        self._places = np.array([_place(buffer) for buffer in self._buffers], np.uint64)
        self._lengths = np.array([len(buffer) for buffer in self._buffers], np.uint64)
        columns = (_place(each) for each in (self._starts, self._places, self._lengths))
        self.memory = _Memory(*columns, len(self._buffers))

    @property
    def reference(self) -> Any:
        """What the functions take."""
        return ctypes.byref(self.memory)


class _Spans(chains.Spans):
    """Prepared once, both for few numbers and for many."""

    def __init__(self, kernels: "Native", spans: Sequence[Span], byteorder: str) -> None:
        super().__init__(spans, byteorder)
        self._kernels = kernels
        self._few = _FEW if len(spans) < _FEW else chains.FEW

    @cached_property
    def _held(self) -> _Held:
        return _Held(self._spans)

    def gather(self, addresses: U64, size: int, signed: bool = False) -> Tuple[U64, Mask]:
        """As :func:`gdbext.kernels.chains.gather_scalars`."""
        if len(addresses) < self._few:
            return super().gather(addresses, size, signed)
        addresses = _column(addresses, "u8")
        values, known = np.empty(len(addresses), np.uint64), np.empty(len(addresses), np.uint8)
        how = (size, _swapped(self._byteorder), int(signed))
        step = _FEW_ROWS_AT_ONCE if is_tight() else _ROWS_AT_ONCE
        for at in range(0, len(addresses), step):
            part = slice(at, at + step)
            given = (_place(addresses[part]), len(addresses[part]), *how, _place(values[part]), _place(known[part]))
            self._kernels._told(self._kernels._library.gx_gather_scalars(self._held.reference, *given))
            relieve()
        return values, known.view(np.bool_)


class Native:
    """The kernels of one loaded library."""

    def __init__(self, library: Any) -> None:
        self._library = library

    # -- chunks ---------------------------------------------------------------------------------------

    def read_chunks(self, words: Words, origin: int, start: int, stop: int, rules: ChunkRules, limit: int) -> ChunkRun:
        """As :func:`gdbext.kernels.columns.read_chunks`."""
        memory = np.asarray(words)
        most = max(stop - start, 0) * rules.word // rules.minimum
        room = min(limit, most)
        columns = [np.empty(room, kind) for kind in ("u8", "u8", "u1", "u1", "u8")]
        walk = _ChunkWalk(
            _place(memory), memory.nbytes, origin, start, stop, rules.minimum, rules.granule, rules.word, 0, room,
            *map(_place, columns), 0, 0,
        )  # fmt: skip
        found = self._told(self._library.gx_walk_chunks(ctypes.byref(walk)))
        address, size, flags, free, mismatched = columns
        rows = mismatched[: walk.mismatches].astype(np.int64)
        for column in columns[:4]:
            column.resize(found, refcheck=False)  # gives back what is not needed, without a copy
        return ChunkRun(address, size, flags, free.view(np.bool_), rows, int(walk.end))

    def walk_chunks(
        self, words: Words, start: int, stop: int, rules: ChunkRules, limit: int = reference.MOST_CHUNKS
    ) -> Tuple[U64, int]:
        """As :func:`gdbext.kernels.reference.walk_chunks`."""
        parts, at = [], start
        while True:
            run = self.read_chunks(words, 0, at, stop, rules, min(limit, _CHUNKS_AT_ONCE))
            parts.append(run.address // np.uint64(rules.word))
            at, limit = run.end, limit - len(run)
            if len(run) < _CHUNKS_AT_ONCE or not limit:
                return np.concatenate(parts), at

    # -- columns --------------------------------------------------------------------------------------

    def rows_of(self, address: U64, wanted: U64) -> I64:
        """As :func:`gdbext.kernels.columns.rows_of`."""
        if len(wanted) < _FEW:
            return reference_columns.rows_of(address, wanted)
        address, wanted = _column(address, "u8"), _column(wanted, "u8")
        rows = np.empty(len(wanted), np.int64)
        for at in range(0, len(wanted), _ROWS_AT_ONCE):
            part, found = wanted[at : at + _ROWS_AT_ONCE], rows[at : at + _ROWS_AT_ONCE]
            columns = (_place(address), len(address), _place(part), len(part), _place(found))
            self._told(self._library.gx_rows_of(*columns))
        return rows

    def count_values(
        self, values: U64, kinds: U8, category: U8, categories: int
    ) -> Tuple[U64, "npt.NDArray[np.int64]"]:
        """As :func:`gdbext.kernels.columns.count_values`."""
        room = min(len(values), _MOST_DISTINCT)
        found, counts = np.empty(room, np.uint64), np.zeros((room, categories), np.int64)
        values, kinds, category = _column(values, "u8"), _column(kinds, "u1"), _column(category, "u1")
        rows = (_place(values), _place(kinds), len(values))
        wanted = (_place(category), categories, _place(found), _place(counts), room)
        number = self._library.gx_count_values(*rows, *wanted)
        if number == -2:  # more distinct values than it is good at
            return reference_columns.count_values(values, kinds, category, categories)
        number = self._told(number)
        return found[:number].copy(), counts[:number].copy()

    def slab_regions(self, start: U64, region: U64, count: U32, bitmaps: U64) -> Tuple[U64, Mask]:
        """As :func:`gdbext.kernels.columns.slab_regions`."""
        start, region, count = _column(start, "u8"), _column(region, "u8"), _column(count, "u4")
        bitmaps = _column(bitmaps, "u8")
        groups = bitmaps.shape[1]
        total = int(count.sum(dtype=np.uint64))
        address, free = np.empty(total, np.uint64), np.empty(total, np.uint8)
        slabs = (_place(start), _place(region), _place(count), len(start))
        found = self._library.gx_slab_regions(*slabs, _place(bitmaps), groups, _place(address), _place(free), total)
        self._told(found)
        return address, free.view(np.bool_)

    def page_census(self, spans: Sequence[Span], starts: U64, ends: U64, page: int) -> Tuple[U64, U64]:
        """As :func:`gdbext.kernels.columns.page_census`."""
        held, starts, ends = _Held(spans), _column(starts, "u8"), _column(ends, "u8")
        whole, zero = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.uint64)
        reached = np.zeros(2, np.uint64)
        columns = (_place(starts), _place(ends), len(starts), page, _place(reached), _place(whole), _place(zero))
        while not self._told(self._library.gx_page_census(held.reference, *columns)):
            check()
        return whole, zero

    # -- numbers --------------------------------------------------------------------------------------

    def gather_scalars(
        self, spans: Sequence[Span], addresses: U64, size: int, byteorder: str, signed: bool = False
    ) -> Tuple[U64, Mask]:
        """As :func:`gdbext.kernels.chains.gather_scalars`."""
        return self.hold_spans(spans, byteorder).gather(addresses, size, signed)

    def hold_spans(self, spans: Sequence[Span], byteorder: str) -> chains.Spans:
        """As :class:`gdbext.kernels.chains.Spans`."""
        return _Spans(self, spans, byteorder)

    # -- chains ---------------------------------------------------------------------------------------

    def walk_chains(
        self,
        spans: Sequence[Span],
        firsts: U64,
        stops: Optional[U64],
        rules: LinkRules,
        most: Union[int, U64],
        total: int = MOST_NODES,
    ) -> Chains:
        """As :func:`gdbext.kernels.chains.walk_chains`."""
        held, firsts, count = _Held(spans), _column(firsts, "u8"), len(firsts)
        stops = None if stops is None else _column(stops, "u8")
        bounds = None if isinstance(most, int) and most >= MOST_NODES else _column(np.broadcast_to(most, count), "u8")
        links, kept = _link_rules(rules)
        heads = (_place(firsts), count, _place(stops), _place(bounds), min(total, _MOST))
        with self._job(self._library.gx_chains_new(held.reference, *heads, ctypes.byref(links))) as job:
            nodes = np.empty(self._told(self._library.gx_job_found(job)), np.uint64)
            lengths, ends = np.empty(count, np.uint64), np.zeros(count, np.uint8)
            last, cycles = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
            columns = [_place(each) for each in (lengths, ends, last, cycles, nodes)]
            self._told(self._library.gx_chains_write(job, count, *columns))
        del kept
        return Chains(lengths, ends, last, nodes, cycles)

    def tally_chains(
        self,
        spans: Sequence[Span],
        heads: "npt.NDArray[np.unsignedinteger[Any]]",
        stops: Optional[Tuple[int, int]],
        rules: LinkRules,
        total: int = MOST_TALLIED,
    ) -> Optional[Tally]:
        """As :func:`gdbext.kernels.tally.tally_chains`."""
        held = _Held(spans)
        if heads.itemsize not in (4, 8) or (len(heads) > 1 and heads.strides[0] < heads.itemsize):
            heads = _column(heads, "u8")
        given = _tally_heads(heads, stops, min(total, MOST_TALLIED))
        links, kept = _link_rules(rules)
        figures = np.zeros(7, np.uint64)
        with self._job(self._library.gx_tally_new(held.reference, ctypes.byref(given), ctypes.byref(links))) as job:
            sample = np.empty(self._told(self._library.gx_job_found(job)), np.uint64)
            sound = self._told(self._library.gx_tally_write(job, _place(figures), _place(sample)))
        del kept
        if not sound:
            return None
        nodes, nonempty, longest, at, null, head, sentinel = figures.tolist()
        return Tally(nodes, nonempty, longest, at if nodes else None, (null, head, sentinel), sample)

    # -- pointers -------------------------------------------------------------------------------------

    def scan_pointers(
        self,
        spans: Sequence[Span],
        index: BlockIndex,
        rules: PointerRules,
        wanted: Optional[Mask] = None,
        most: int = reference_pointers.MOST_HITS,
    ) -> Hits:
        """As :func:`gdbext.kernels.pointers.scan_pointers`."""
        held, blocks = _Held(spans), self._blocks(index)
        chosen = None if wanted is None else _column(wanted, "u1")
        how = _pointer_rules(rules)
        with self._job(self._library.gx_scan_new(held.reference, blocks, _place(chosen), how, most)) as job:
            found = self._told(self._library.gx_job_found(job))
            place, row = np.empty(found, np.uint64), np.empty(found, np.uint32)
            interior = np.empty(found, np.uint8)
            full = self._told(self._library.gx_scan_write(job, _place(place), _place(row), _place(interior)))
        return Hits(place, row, interior.view(np.bool_), bool(full))

    def mark_blocks(self, spans: Sequence[Span], index: BlockIndex, rules: PointerRules, live: Mask, roots: U8) -> U8:
        """As :func:`gdbext.kernels.pointers.mark_blocks`."""
        held, blocks = _Held(spans), self._blocks(index)
        chosen, begun = _column(live, "u1"), _column(roots, "u1")
        if len(chosen) != len(index) or len(begun) != len(index):
            raise NativeError("a state and a mark are needed for every block")
        columns = (blocks, _place(chosen), _place(begun))
        begun_job = self._library.gx_mark_new(held.reference, *columns, _pointer_rules(rules))
        del live, roots, chosen, begun  # it has its own
        with self._job(begun_job) as job:
            states = np.empty(len(index), np.uint8)
            self._told(self._library.gx_mark_write(job, len(index), _place(states)))
        return states

    def find_blocks(self, index: BlockIndex, addresses: U64, begins: bool = False) -> I64:
        """As :func:`gdbext.kernels.pointers.find_blocks`."""
        if len(addresses) < _FEW:
            return reference_pointers.find_blocks(index, addresses, begins)
        addresses, blocks = _column(addresses, "u8"), self._blocks(index)
        rows = np.empty(len(addresses), np.int64)
        for at in range(0, len(addresses), _ROWS_AT_ONCE):
            part, found = addresses[at : at + _ROWS_AT_ONCE], rows[at : at + _ROWS_AT_ONCE]
            self._told(self._library.gx_find_blocks(blocks, _place(part), len(part), int(begins), _place(found)))
        return rows

    # -- jobs -----------------------------------------------------------------------------------------

    @contextmanager
    def _job(self, job: Optional[int]) -> Iterator[int]:
        """Run a job to its end and give it up after use; an interrupt is met between its steps."""
        try:
            self.finish(job)
            yield job  # type: ignore[misc]
        finally:
            self._library.gx_job_free(job)

    def finish(self, job: Optional[int]) -> None:
        """Run a job to its end, step by step.

        :raises MemoryError: when there is none for it.
        """
        self.begun(job)
        self._library.gx_threads(threads())
        while not self._told(self._library.gx_job_run(job, step_milliseconds())):
            check()
        relieve()

    def begun(self, job: Optional[int]) -> int:
        """Return a job, unless the library has just refused to begin it."""
        if not job:
            self._told(self._library.gx_refused())
        return job  # type: ignore[return-value]

    def _blocks(self, index: BlockIndex) -> Any:
        """Return blocks as the library takes them; their index is built once. They live as long as ``index``."""
        built: Any = index.built.get(self)
        if built is None:
            built = index.built[self] = _Built(self, index)
        return ctypes.byref(built.blocks)

    @staticmethod
    def _told(answer: int) -> int:
        if answer == _OUT_OF_MEMORY:
            raise MemoryError("there is none for the native kernels")
        if answer < 0:
            reasons = {
                -1: "refuse an argument: what is given overlaps, is not sorted, or does not fit together",
                -2: "had no room for the answer",
            }
            what = reasons.get(answer, "failed: a defect of gdbext")
            raise NativeError(f"the native kernels {what}")
        return answer


def _pointer_rules(rules: PointerRules) -> Any:
    headers = (_u64 * reference_pointers.MOST_HEADERS)(*rules.headers)
    flags = (rules.word, _swapped(rules.byteorder), int(rules.mangled), rules.part)
    return ctypes.byref(_PointerRules(rules.clear & _MOST, headers, *flags))


def _link_rules(rules: LinkRules) -> Tuple[_LinkRules, Any]:
    """Return the rules as the library takes them, and what must be kept alive with them."""
    word = (1 << (8 * rules.word)) - 1
    sentinels = np.array([value & word for value in rules.sentinels], np.uint64)
    forbidden = np.array([value & word for value in rules.forbidden], np.uint64)
    numbers = (rules.next, rules.mask, rules.relative, rules.end_bits, rules.leaf_bits, rules.alignment)
    lists = (_place(sentinels), len(sentinels), _place(forbidden), len(forbidden))
    flags = (rules.word, _swapped(rules.byteorder), int(rules.mangled), 0)
    return _LinkRules(*(number & _MOST for number in numbers), *lists, *flags), (sentinels, forbidden)


def _tally_heads(heads: "npt.NDArray[Any]", stops: Optional[Tuple[int, int]], total: int) -> _TallyHeads:
    count, stride, size = len(heads), heads.strides[0], heads.itemsize
    held = (count - 1) * stride + size if count else 0
    numbers = (number & _MOST for number in (held, count, stride, *(stops or (0, 0)), total))
    swapped = int(heads.dtype.newbyteorder("=") != heads.dtype)
    return _TallyHeads(_place(heads), *numbers, size, swapped, int(stops is not None), 0)


class _Built:
    """An index that the library has built of blocks; given up with the blocks."""

    def __init__(self, kernels: "Native", index: BlockIndex) -> None:
        self._columns = (_column(index.address, "u8"), _column(index.size, "u8"))
        self.blocks = _Blocks(*map(_place, self._columns), len(index), None)
        library = kernels._library
        job = library.gx_index_new(ctypes.byref(self.blocks))
        if job:
            # Not as Python ends: another thread may be at work with it.
            weakref.finalize(self, library.gx_job_free, job).atexit = False
        kernels.finish(job)
        self.blocks.index = job

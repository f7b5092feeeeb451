"""glibc's own reports: arenas, heaps, chunks, bins, thread caches, mmapped chunks, damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Optional, Sequence, Tuple

import numpy as np

from gdbext.columns import ROWS_AT_ONCE, Batch, Column
from gdbext.errors import UsageError
from gdbext.heap.glibc.read.lists import FreeList
from gdbext.heap.glibc.read.tcache import Cache, CacheClass
from gdbext.heap.glibc.report.check import check_heap
from gdbext.heap.glibc.report.tally import Tally, tally_arenas
from gdbext.heap.glibc.report.trim import Trimmable, trimmable, usable_top
from gdbext.heap.glibc.view import ArenaView, GlibcHeap
from gdbext.heap.model import U32, U64, Mask, State
from gdbext.memory.intervals import slices
from gdbext.report import Bar, Kind, Report, Rows, ThreadRef, column, line, table

_HIGHEST = (1 << 64) - 1


@dataclass(frozen=True)
class ArenaRow:
    """One arena. Bytes of blocks are usable bytes; those that end in ``chunk_bytes`` count headers too.

    ``walked_bytes`` = ``chunk_bytes`` + ``top_chunk_bytes`` + ``overhead_bytes`` + ``foreign_bytes``.

    :param address: of the ``malloc_state``.
    :param kind: ``main``, ``thread``.
    :type kind: word
    :param system_mem: what the arena itself says it took from the system.
    :param walked_bytes: what was met, piece by piece: ``chunk_bytes`` + ``top_chunk_bytes`` + ``overhead_bytes`` +
        ``foreign_bytes``.
    :param in_use_bytes: usable bytes of blocks in use; tcached and mmapped ones are not among them.
    :param in_use_blocks: blocks of these bytes.
    :param tcache_bytes: usable bytes of this arena's blocks in any thread's cache.
    :param bins_bytes: usable bytes of free blocks: bins, fastbins, and those on no list.
    :param top_bytes: usable bytes of the top chunk.
    :param trimmable_bytes: what ``malloc_trim(0)`` would return of this arena.
    :param in_use_share: ``in_use_bytes`` of ``system_mem``; None when that is 0.
    :param heaps: heaps of a thread arena; of the main arena, stretches of memory.
    :param attached: ``attached_threads`` as the arena counts; 0 in a thread arena: stranded.
    :param in_flux: its mutex was held, or the only thread was inside malloc: figures may be half-way.
    :param threads: threads whose ``thread_arena`` it is; None when that could not be found out.
    :param chunk_bytes: chunks but top and fenceposts, headers included.
    :param top_chunk_bytes: top, header included.
    :param overhead_bytes: heap_info, malloc_state, alignment, fenceposts.
    :param foreign_bytes: gaps that somebody else's ``sbrk`` left, which ``system_mem`` counts.
    :param skipped_bytes: damaged or absent stretches; not in ``walked_bytes``.
    """

    address: int = column("arena", Kind.ADDRESS)
    kind: str = column("kind")
    system_mem: int = column("system", Kind.BYTES)
    walked_bytes: int = column(None, Kind.BYTES)
    in_use_bytes: int = column("in use", Kind.BYTES)
    in_use_blocks: int = column(None, Kind.COUNT)
    tcache_bytes: int = column("tcached", Kind.BYTES)
    bins_bytes: int = column("in bins", Kind.BYTES)
    top_bytes: int = column("top", Kind.BYTES)
    trimmable_bytes: int = column("trimmable", Kind.BYTES)
    in_use_share: Optional[float] = column("used", Kind.SHARE)
    bar: Bar = column("", Kind.BAR, json=False, spare=True)
    heaps: int = column("heaps", Kind.COUNT)
    attached: int = column("attached", Kind.COUNT)
    in_flux: bool = column(None, Kind.FLAG)
    state: str = column("state", json=False)
    threads: Optional[Tuple[ThreadRef, ...]] = column("threads", Kind.THREADS)
    chunk_bytes: int = column(None, Kind.BYTES)
    top_chunk_bytes: int = column(None, Kind.BYTES)
    overhead_bytes: int = column(None, Kind.BYTES)
    foreign_bytes: int = column(None, Kind.BYTES)
    skipped_bytes: int = column(None, Kind.BYTES)


@dataclass(frozen=True)
class MmappedTotals:
    """Mmapped chunks found, and what ``mp_`` counts; bytes of whole mappings.

    :param blocks: chunks with a mapping of their own that were found.
    :param bytes: of their mappings.
    :param expected_blocks: ``mp_.n_mmaps``; None when ``mp_`` was not found.
    :param expected_bytes: ``mp_.mmapped_mem``; None as above.
    """

    blocks: int = column("blocks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    expected_blocks: Optional[int] = column("mp_.n_mmaps", Kind.COUNT)
    expected_bytes: Optional[int] = column("mp_.mmapped_mem", Kind.BYTES)


@dataclass(frozen=True)
class ArenasReport:
    """``glibc arenas``, with exact sums over all of them.

    :param arena_count: rows of ``arenas``.
    :param system_mem: sum over all arenas, as are the six below.
    :param in_use_bytes: as ``in_use_bytes`` of ``arenas``.
    :param in_use_blocks: as there.
    :param tcache_bytes: as there.
    :param bins_bytes: as there.
    :param top_bytes: as there.
    :param trimmable_bytes: as there.
    """

    arena_count: int = line("arenas", Kind.COUNT)
    system_mem: int = line("system", Kind.BYTES)
    in_use_bytes: int = line("in use", Kind.BYTES)
    in_use_blocks: int = line("blocks in use", Kind.COUNT)
    tcache_bytes: int = line("tcached", Kind.BYTES)
    bins_bytes: int = line("in bins", Kind.BYTES)
    top_bytes: int = line("in top chunks", Kind.BYTES)
    trimmable_bytes: int = line("malloc_trim(0) returns", Kind.BYTES)
    arenas: Tuple[ArenaRow, ...] = table("Arenas", equal_but=("address", "threads"))
    mmapped: MmappedTotals = table("Mmapped chunks")


def report_of(heap: GlibcHeap, data: object, **more: object) -> Report:
    """Return a report with the heap's evidence and problems."""
    evidence, problems = heap.location.evidence, check_heap(heap)
    return Report(data, evidence, problems, heap.whole, **more)  # type: ignore[arg-type]


def arenas(heap: GlibcHeap) -> Report:
    """Return ``glibc arenas``: every arena with exact 64-bit sums."""
    tallies = tally_arenas(heap)
    trims = trimmable(heap)
    rows = tuple(_arena_row(heap, at, tally, trims[at]) for at, tally in enumerate(tallies))
    data = ArenasReport(
        arena_count=len(rows),
        system_mem=sum(row.system_mem for row in rows),
        in_use_bytes=sum(row.in_use_bytes for row in rows),
        in_use_blocks=sum(row.in_use_blocks for row in rows),
        tcache_bytes=sum(row.tcache_bytes for row in rows),
        bins_bytes=sum(row.bins_bytes for row in rows),
        top_bytes=sum(row.top_bytes for row in rows),
        trimmable_bytes=sum(row.trimmable_bytes for row in rows),
        arenas=rows,
        mmapped=_mmapped_totals(heap),
    )
    return report_of(heap, data)


def _arena_row(heap: GlibcHeap, position: int, tally: Tally, trim: Trimmable) -> ArenaRow:
    view = heap.arenas[position]
    head, walked = view.head, view.walked
    share = tally.in_use_bytes / head.system_mem if head.system_mem else None
    return ArenaRow(
        address=head.address,
        kind=head.kind,
        heaps=len(view.heaps) or len(walked),
        system_mem=head.system_mem,
        walked_bytes=view.walked_bytes,
        in_use_bytes=tally.in_use_bytes,
        in_use_blocks=tally.in_use_blocks,
        tcache_bytes=tally.tcache_bytes,
        bins_bytes=tally.bins_bytes,
        top_bytes=tally.top_bytes,
        trimmable_bytes=trim.bytes,
        in_use_share=share,
        bar=Bar(share),
        attached=head.attached,
        in_flux=head.in_flux,
        state="in flux" if head.in_flux else "stranded" if head.kind == "thread" and not head.attached else "",
        threads=view.threads,
        chunk_bytes=sum(one.chunk_bytes for one in walked),
        top_chunk_bytes=sum(one.top_size for one in walked),
        overhead_bytes=sum(one.overhead for one in walked),
        foreign_bytes=sum(b - a for one in walked for a, b in one.foreign),
        skipped_bytes=view.skipped_bytes,
    )


def _mmapped_totals(heap: GlibcHeap) -> MmappedTotals:
    census = heap.mmapped
    return MmappedTotals(len(census.chunks), census.bytes, census.expected_blocks, census.expected_bytes)


@dataclass(frozen=True)
class HeapRow:
    """One stretch that an arena took from the system: a heap, brk, or a mapping in its place.

    :param arena: of the arena that it belongs to, its ``malloc_state``.
    :param address: where the stretch starts.
    :param end: first address behind it.
    :param kind: ``brk`` and ``mmap`` (main arena), ``heap`` (thread arena).
    :type kind: word
    :param size: ``end`` less ``address``.
    :param slack: behind ``end``, still writable, left from when the heap was larger.
    :param chunks: but top and fenceposts.
    :param in_use_bytes: usable bytes of blocks in use.
    :param top_bytes: usable bytes of top; 0 where the arena's top is elsewhere.
    :param skipped_bytes: damaged or absent stretches.
    """

    arena: int = column("arena", Kind.ADDRESS)
    address: int = column("start", Kind.ADDRESS)
    end: int = column("end", Kind.ADDRESS)
    kind: str = column("kind")
    size: int = column("bytes", Kind.BYTES)
    slack: int = column("slack", Kind.BYTES)
    chunks: int = column("chunks", Kind.COUNT)
    in_use_bytes: int = column("in use", Kind.BYTES)
    top_bytes: int = column("top", Kind.BYTES)
    skipped_bytes: int = column("skipped", Kind.BYTES)


@dataclass(frozen=True)
class HeapsReport:
    """``glibc heaps``.

    :param heap_max: HEAP_MAX_SIZE: what a heap reserves of address space.
    """

    heap_max: int = line("HEAP_MAX_SIZE", Kind.BYTES)
    heaps: Tuple[HeapRow, ...] = table("Heaps", equal_but=("arena", "address", "end"))


def heaps(heap: GlibcHeap) -> Report:
    """Return ``glibc heaps``: every stretch of every arena."""
    used = heap.blocks.select(heap.blocks.having((State.IN_USE,)))
    rows = []
    for view in heap.arenas:
        slack = {info.address: info.mprotect_size - info.size for info in view.heaps}
        for walked in view.walked:
            start, end = walked.segment.start, walked.end
            low, high = np.searchsorted(used.address, np.array([start, end], np.uint64))
            in_use = int(used.size[low:high].sum())
            chunks, skipped = walked.chunk_count, walked.skipped_bytes
            top = usable_top(heap, walked.top_size)
            kind, spare = walked.segment.kind, slack.get(start, 0)
            rows.append(
                HeapRow(view.head.address, start, end, kind, end - start, spare, chunks, in_use, top, skipped)
            )
    return report_of(heap, HeapsReport(heap.location.heap_max, tuple(rows)))


@dataclass(frozen=True)
class ChunkRow:
    """One chunk: its header's address, its chunk size, its state and what holds it.

    :param address: of the chunk's header.
    :param user: the pointer that the program has.
    :param size: chunk size, header included.
    :param state: ``in use``, ``mmapped``, ``tcache``, ``fastbin``, ``unsorted``, ``small``, ``large``, ``top``,
        ``free``, ``fencepost``.
    :type state: word
    :param owner: whose tcache holds it: "thread 3 worker-1", or "tcache 0x…" where no thread is known; "" for other
        states.
    :param arena: None: an mmapped chunk belongs to none.
    """

    address: int = column("chunk", Kind.ADDRESS)
    user: int = column("pointer", Kind.ADDRESS)
    size: int = column("size", Kind.BYTES)
    state: str = column("state")
    owner: str = column("of")
    arena: Optional[int] = column("arena", Kind.ADDRESS)


@dataclass(frozen=True)
class ChunkFilter:
    """Which chunks are wanted; None takes all.

    :param sizes: smallest and largest chunk size, bytes.
    :param span: arena address alone (end None), or an address range.
    """

    states: Optional[Tuple[State, ...]] = None
    sizes: Tuple[Optional[int], Optional[int]] = (None, None)
    arena: Optional[int] = None
    span: Optional[Tuple[int, int]] = None


@dataclass(frozen=True)
class ChunksReport:
    """``glibc chunks``.

    :param matching: chunks that pass the filter, whatever ``--limit`` says.
    :param bytes: their chunk sizes.
    """

    matching: int = line("chunks", Kind.COUNT)
    bytes: int = line("chunk bytes", Kind.BYTES)
    chunks: Rows[ChunkRow] = table("Chunks")


def chunks(heap: GlibcHeap, wanted: ChunkFilter) -> Report:
    """Return ``glibc chunks``: every chunk that passes the filter, in address order.

    :raises UsageError: when no arena has the address of the filter.
    """
    mask = _chunk_mask(heap, wanted)
    rows = np.flatnonzero(mask)
    total = int(_chunk_sizes(heap, rows).sum())
    made = Rows.of_columns(lambda _: _chunk_columns(heap, rows), ChunkRow, len(rows), reads=0)
    return report_of(heap, ChunksReport(len(rows), total, made))


def _chunk_mask(heap: GlibcHeap, wanted: ChunkFilter) -> Mask:
    blocks = heap.blocks
    mask: Mask = np.ones(len(blocks), np.bool_) if wanted.states is None else blocks.having(wanted.states)
    sizes = _chunk_sizes(heap, slice(None))
    low, high = wanted.sizes
    if low is not None:
        mask &= sizes >= np.uint64(low)
    if high is not None:
        mask &= sizes <= np.uint64(high)
    if wanted.arena is not None:
        mask &= blocks.owner == position_of(heap, wanted.arena)
    if wanted.span is not None:
        chunk = blocks.address - np.uint64(heap.sizes.header)
        mask &= (chunk >= np.uint64(wanted.span[0])) & (chunk < np.uint64(wanted.span[1]))
    return mask


def _chunk_sizes(heap: GlibcHeap, rows: object) -> "np.typing.NDArray[np.uint64]":
    """Return chunk sizes: what has no neighbour behind it cannot use the neighbour's first word."""
    blocks = heap.blocks.select(rows)
    alone = (State.TOP, State.FENCEPOST) if heap.mmapped.trailer else (State.TOP, State.FENCEPOST, State.MMAPPED)
    extra = np.where(blocks.having(alone), np.uint64(heap.sizes.header), np.uint64(heap.sizes.word))
    sizes: "np.typing.NDArray[np.uint64]" = blocks.size + extra
    return sizes


def position_of(heap: GlibcHeap, address: int) -> int:
    """Return the position of an arena.

    :raises UsageError: when no arena has that address.
    """
    for position, view in enumerate(heap.arenas):
        if view.head.address == address:
            return position
    known = ", ".join(f"{view.head.address:#x}" for view in heap.arenas[:4])
    more = ", …" if len(heap.arenas) > 4 else ""
    raise UsageError(f"no arena at {address:#x}", f"there are {len(heap.arenas)}: {known}{more}")


def _chunk_columns(heap: GlibcHeap, rows: "np.typing.NDArray[np.int64]") -> Iterator[Batch]:
    cached, holder, names = _holders(heap)
    labels = [state.label for state in State]
    arenas = [*(view.head.address for view in heap.arenas), None]
    for part in slices(len(rows), ROWS_AT_ONCE):
        blocks = heap.blocks.select(rows[part])
        chunk = blocks.address - np.uint64(heap.sizes.header)
        place = np.searchsorted(cached, chunk)
        yield {
            "address": Column(chunk),
            "user": Column(blocks.address),
            "size": Column(_chunk_sizes(heap, rows[part])),
            "state": Column(blocks.state, words=labels),
            "owner": Column(np.where(cached[place] == chunk, holder[place], 0), words=names),
            "arena": Column(np.minimum(blocks.owner, np.uint32(len(heap.arenas))), words=arenas),
        }


def _holders(heap: GlibcHeap) -> Tuple[U64, U32, Sequence[str]]:
    """Return the cached chunks by address, a last one that is none, and whose tcache has each: a position in names."""
    found = {chunk: at for at, cache in enumerate(heap.caches, 1) for one in cache.classes for chunk in one.chunks}
    order = sorted(chunk for chunk in found if 0 <= chunk <= _HIGHEST)  # damage may have led anywhere
    cached = np.array([*order, _HIGHEST], np.uint64)
    holder = np.array([*map(found.__getitem__, order), 0], np.uint32)
    return cached, holder, ["", *map(_cache_name, heap.caches)]


def _cache_name(cache: Cache) -> str:
    thread = cache.at.thread
    if thread is None:
        return f"tcache {cache.at.address:#x}"
    return f"thread {thread.number}" + (f" {thread.name}" if thread.name else "")


@dataclass(frozen=True)
class BinRow:
    """One free list that is not empty.

    :param arena: of the arena, its ``malloc_state``.
    :param kind: ``fastbin``, ``unsorted``, ``small``, ``large``.
    :type kind: word
    :param index: ``bin_index``; of a fastbin ``fastbin_index``.
    :param count: chunks on the list.
    :param bytes: usable bytes of them.
    :param smallest: usable bytes; None when none of its entries is a chunk.
    :param largest: as ``smallest``.
    :param whole: false when something is wrong with it, or it leads out of the core.
    """

    arena: int = column("arena", Kind.ADDRESS)
    kind: str = column("kind")
    index: int = column("bin", Kind.NUMBER)
    count: int = column("chunks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    smallest: Optional[int] = column("smallest", Kind.BYTES)
    largest: Optional[int] = column("largest", Kind.BYTES)
    whole: bool = column("whole", Kind.FLAG)


@dataclass(frozen=True)
class BinsReport:
    """``glibc bins``; bytes are usable bytes.

    :param lists: lists that hold something.
    :param chunks: chunks on them.
    :param bytes: usable bytes of them.
    :param broken: lists that are not whole.
    """

    lists: int = line("lists", Kind.COUNT)
    chunks: int = line("free chunks", Kind.COUNT)
    bytes: int = line("free bytes", Kind.BYTES)
    broken: int = line("lists that are not whole", Kind.COUNT)
    bins: Tuple[BinRow, ...] = table("Free lists")


def bins(heap: GlibcHeap, arena: Optional[int] = None) -> Report:
    """Return ``glibc bins``: every free list that holds something.

    :param arena: address of the one wanted, or None for all.
    :raises UsageError: when no arena has that address.
    """
    views = heap.arenas if arena is None else [heap.arenas[position_of(heap, arena)]]
    rows = [_bin_row(heap, view, free_list) for view in views for free_list in view.lists]
    broken = sum(not row.whole for row in rows)
    count, total = sum(row.count for row in rows), sum(row.bytes for row in rows)
    return report_of(heap, BinsReport(len(rows), count, total, broken, tuple(rows)))


def _bin_row(heap: GlibcHeap, view: ArenaView, free_list: FreeList) -> BinRow:
    users = np.unique(np.array(free_list.chunks, np.uint64)) + np.uint64(heap.sizes.header)
    found = np.searchsorted(heap.blocks.address, users)
    found = found[found < len(heap.blocks)]
    found = found[np.isin(heap.blocks.address[found], users)]
    size = heap.blocks.size[found]
    smallest, largest = (int(size.min()), int(size.max())) if len(size) else (None, None)
    return BinRow(
        view.head.address,
        free_list.kind,
        free_list.index,
        len(free_list.chunks),
        int(size.sum()),
        smallest,
        largest,
        free_list.whole,
    )


@dataclass(frozen=True)
class CacheRow:
    """One class of one thread's cache.

    :param number: as ``threads[].number``.
    :param name: as ``threads[].name``.
    :param address: as ``threads[].address``.
    :param index: tcache index.
    :param size: chunk size of the class.
    :type size: bytes
    :param counted: what the cache counts; None when it counts down from a limit that is not known.
    :param count: chunks on its list.
    :param bytes: usable bytes of them.
    """

    number: Optional[int] = column("thread", Kind.NUMBER)
    name: Optional[str] = column("name")
    address: int = column("tcache", Kind.ADDRESS)
    index: int = column("class", Kind.NUMBER)
    size: int = column("chunk size", Kind.COUNT)
    counted: Optional[int] = column("counted", Kind.COUNT)
    count: int = column("chunks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)


@dataclass(frozen=True)
class ThreadCacheRow:
    """One thread's whole cache.

    :param number: the debugger's number; None when the cache's thread is not known.
    :param name: None on a core, which holds no thread names.
    :param lwp: the kernel's id.
    :param address: of the ``tcache_perthread_struct``.
    :param count: cached chunks.
    :param bytes: usable bytes of them.
    :param found_by: ``TLS symbol``, ``thread pointer`` (by structure), ``lists`` (by its contents alone; a dead
        thread's, too).
    :type found_by: word
    """

    number: Optional[int] = column("thread", Kind.NUMBER)
    name: Optional[str] = column("name")
    lwp: Optional[int] = column("lwp", Kind.NUMBER)
    address: int = column("tcache", Kind.ADDRESS)
    count: int = column("chunks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)
    found_by: str = column("found by")


@dataclass(frozen=True)
class TcacheReport:
    """``glibc tcache``; bytes are usable bytes.

    :param blocks: cached chunks of the caches shown.
    :param bytes: usable bytes of them.
    """

    blocks: int = line("cached chunks", Kind.COUNT)
    bytes: int = line("cached bytes", Kind.BYTES)
    threads: Tuple[ThreadCacheRow, ...] = table("Caches", equal_but=("number", "name", "lwp", "address"))
    classes: Tuple[CacheRow, ...] = table("Classes that are not empty")


def tcache(heap: GlibcHeap, number: Optional[int] = None) -> Report:
    """Return ``glibc tcache``: every thread's cache, by class.

    :param number: debugger's number of the one thread wanted, or None for all.
    """
    wanted = [one for one in heap.caches if number is None or _number(one) == number]
    threads = tuple(_thread_row(cache) for cache in wanted)
    classes = tuple(_cache_row(heap, cache, one) for cache in wanted for one in cache.classes)
    count, total = sum(row.count for row in threads), sum(row.bytes for row in threads)
    return report_of(heap, TcacheReport(count, total, threads, classes))


def _number(cache: Cache) -> Optional[int]:
    return cache.at.thread.number if cache.at.thread else None


def _thread_row(cache: Cache) -> ThreadCacheRow:
    thread = cache.at.thread
    name, lwp = (thread.name, thread.lwp) if thread else (None, None)
    at = cache.at
    return ThreadCacheRow(_number(cache), name, lwp, at.address, cache.count, cache.bytes, at.found_by)


def _cache_row(heap: GlibcHeap, cache: Cache, one: CacheClass) -> CacheRow:
    name = cache.at.thread.name if cache.at.thread else None
    size, address = heap.sizes.tcache_size(one.index), cache.at.address
    return CacheRow(_number(cache), name, address, one.index, size, one.counted, len(one.chunks), one.bytes)


@dataclass(frozen=True)
class MmappedRow:
    """One mmapped chunk.

    :param address: of the chunk's header.
    :param user: the pointer that the program has.
    :param mapping: where the mapping begins; below the chunk where memalign moved that.
    :param mapped: of the whole mapping.
    :param size: usable bytes.
    """

    address: int = column("chunk", Kind.ADDRESS)
    user: int = column("pointer", Kind.ADDRESS)
    mapping: int = column("mapping", Kind.ADDRESS)
    mapped: int = column("mapped", Kind.BYTES)
    size: int = column("usable", Kind.BYTES)


@dataclass(frozen=True)
class MmappedReport:
    """``glibc mmapped``.

    :param blocks: found.
    :param bytes: of their mappings.
    :param expected_blocks: ``mp_.n_mmaps``; None when ``mp_`` was not found.
    :param expected_bytes: ``mp_.mmapped_mem``; from 2.43 on a header too large for each mremap.
    """

    blocks: int = line("found", Kind.COUNT)
    bytes: int = line("bytes found", Kind.BYTES)
    expected_blocks: Optional[int] = line("mp_.n_mmaps", Kind.COUNT)
    expected_bytes: Optional[int] = line("mp_.mmapped_mem", Kind.BYTES)
    chunks: Tuple[MmappedRow, ...] = table("Mmapped chunks")


def mmapped(heap: GlibcHeap) -> Report:
    """Return ``glibc mmapped``: what was found against what ``mp_`` counts."""
    census, header = heap.mmapped, heap.sizes.header
    rows = tuple(
        MmappedRow(o.chunk, o.chunk + header, o.start, o.end - o.start, o.usable_end - o.chunk - header)
        for o in census.chunks
    )
    totals = _mmapped_totals(heap)
    fields = (totals.blocks, totals.bytes, totals.expected_blocks, totals.expected_bytes)
    return report_of(heap, MmappedReport(*fields, rows))


@dataclass(frozen=True)
class DamageRow:
    """One violated invariant.

    :param kind: a kind of problem that counts as corruption, below.
    :param address: where.
    :param message: what was read, what was expected, what came of it.
    """

    kind: str = column("kind")
    address: Optional[int] = column("address", Kind.ADDRESS)
    message: str = column("what is wrong")


@dataclass(frozen=True)
class CheckReport:
    """``glibc check``.

    :param chunks: blocks of all kinds that were checked.
    :param lists: free lists and tcache classes that were followed.
    :param walked_bytes: of arenas and mmapped chunks.
    :param skipped_bytes: damaged or absent stretches.
    :param corrupt: rows of ``damage``.
    """

    chunks: int = line("chunks checked", Kind.COUNT)
    lists: int = line("lists checked", Kind.COUNT)
    walked_bytes: int = line("bytes walked", Kind.BYTES)
    skipped_bytes: int = line("bytes skipped", Kind.BYTES)
    corrupt: int = line("violated invariants", Kind.COUNT)
    damage: Tuple[DamageRow, ...] = table("Damage")


def check(heap: GlibcHeap) -> Report:
    """Return ``glibc check``: every violated invariant of chunks, lists, caches and arenas."""
    damage = [problem for problem in check_heap(heap) if problem.corruption]
    lists = sum(len(view.lists) for view in heap.arenas) + sum(len(one.classes) for one in heap.caches)
    walked = sum(view.walked_bytes for view in heap.arenas) + heap.mmapped.bytes
    skipped = sum(view.skipped_bytes for view in heap.arenas)
    rows = tuple(DamageRow(p.kind, p.address, p.message) for p in damage)
    data = CheckReport(len(heap.blocks), lists, walked, skipped, len(rows), rows)
    return report_of(heap, data, findings=bool(rows))

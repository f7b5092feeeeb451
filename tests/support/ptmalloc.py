"""Lays out a ptmalloc heap in bytes, for any ABI and release: what a test wants, no more, no less.

    builder = HeapBuilder(X86_64, "2.36")
    used = builder.main.chunk(0x40)                 # chunk addresses come back
    free = builder.main.chunk(0x500, "bin")         # goes to the bin that its size asks for
    builder.main.chunk(0x20)                        # keeps it apart from top
    worker = builder.add_thread(builder.add_arena())
    worker.cache(0x30)                              # a chunk in the worker's tcache
    target, truth = builder.target(), builder.truth()

States: ``used``, ``bin`` (small or large), ``unsorted``, ``fastbin``, ``tcache`` (by ``Thread.cache``).
Nothing is checked or coalesced: damage is made by ``poke`` on what ``build`` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbext.abi import X86_64, Abi
from gdbext.heap.glibc import layouts
from gdbext.heap.glibc.sizes import sizes_for
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Identity, Module, Thread
from gdbext.target import Target

# release: malloc_state, heap_info, malloc_par, tcache, safe-linking, tcache_count
RELEASES = {
    "2.23": ("2.23", "2.23", "2.23", None, False, 0),
    "2.26": ("2.23", "2.23", "2.26", "2.26", False, 7),
    "2.27": ("2.27", "2.23", "2.26", "2.26", False, 7),
    "2.31": ("2.27", "2.23", "2.26", "2.30", False, 7),
    "2.28-rhel8": ("2.27", "2.23", "2.26", "2.26", True, 7),
    "2.36": ("2.27", "2.35", "2.35", "2.30", True, 7),
    "2.42": ("2.27", "2.35", "2.35", "2.42", True, 7),
    "2.43": ("2.43", "2.35", "2.43", "2.42", True, 16),
    "2.44": ("2.43", "2.35", "2.44", "2.42", True, 16),
}
LIBC = "/lib/libc.so.6"
PAGE = 4096
KEYLESS = ("2.23", "2.26", "2.27")  # and up to 2.31 the key of a cached chunk is the cache's address
POINTER_KEYS = ("2.28-rhel8", "2.31")
TCACHE_KEY_AT = 0x3018  # of a random key in libc's data
# Distances of the TLS variables from the thread pointer, as in a small dynamic program.
TCACHE_AT, ARENA_AT = 0x48, 0x38


@dataclass
class Chunk:
    address: int
    size: int
    state: str
    arena: "Arena"


@dataclass
class Segment:
    """One heap, or what brk gave: chunks from ``first`` on, ``end`` on a page boundary."""

    start: int
    first: int
    cursor: int
    end: int
    chunks: list[Chunk] = field(default_factory=list)
    rest: int = 0  # of an old heap: bytes of the free chunk before its fenceposts


class Arena:
    """One arena under construction."""

    def __init__(self, builder: "HeapBuilder", address: int, segment: Segment, main: bool) -> None:
        self.builder, self.address, self.main = builder, address, main
        self.segments = [segment]
        self.attached = 1 if main else 0
        self.mutex = 0
        self.top_size = 0x1000
        self.system_mem: int | None = None

    def chunk(self, size: int, state: str = "used") -> int:
        """Append a chunk of ``size`` bytes, header included; return its address."""
        segment = self.segments[-1]
        chunk = Chunk(segment.cursor, size, state, self)
        segment.chunks.append(chunk)
        segment.cursor += size
        return chunk.address

    def new_heap(self) -> int:
        """Go on in a new heap (thread arenas); return its address."""
        last = self.segments[-1]
        sizes = self.builder.sizes
        rest = -(last.cursor + 2 * sizes.header) % PAGE
        rest -= rest % sizes.alignment
        last.rest = rest + (PAGE if rest < sizes.minimum else 0)
        end = last.cursor + last.rest + 2 * sizes.header
        last.end = end + -end % PAGE
        self.segments.append(self.builder._segment(self.builder._heap_address(), 0))
        return self.segments[-1].start

    @property
    def top(self) -> int:
        return self.segments[-1].cursor

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for segment in self.segments for chunk in segment.chunks]


class ThreadHeap:
    """One thread with its cache."""

    def __init__(self, builder: "HeapBuilder", number: int, arena: Arena, cached: bool) -> None:
        self.builder, self.number, self.arena = builder, number, arena
        self.lists: dict[int, list[int]] = {}
        self.cached = cached and builder.tcache is not None
        self.tcache = 0
        if self.cached:
            size = layouts.chunk_size(builder.sizes, builder.tcache.struct.size)
            self.tcache = arena.chunk(size) + builder.sizes.header
        arena.attached += not (arena.main and number == 1)

    def cache(self, size: int, arena: Arena | None = None) -> int:
        """Append a chunk to the thread's arena (or another) and put it first on its cache list."""
        address = (arena or self.arena).chunk(size, "tcache")
        index = self.builder.sizes.tcache_index(size)
        self.lists.setdefault(index, []).insert(0, address + self.builder.sizes.header)
        return address


class HeapBuilder:
    """A whole process with a ptmalloc heap.

    :param release: a key of :data:`RELEASES`.
    :param safe_linking: to differ from what the release does.
    """

    def __init__(
        self,
        abi: Abi = X86_64,
        release: str = "2.36",
        *,
        alignment: int | None = None,
        safe_linking: bool | None = None,
        heap_max: int | None = None,
        hp_pagesize: int = 0,
    ) -> None:
        state, heap, par, cache, linking, self.tcache_count = RELEASES[release]
        self.abi, self.release, self.hp_pagesize = abi, release, hp_pagesize
        self.alignment = alignment or layouts.alignments(abi)[0]
        self.sizes = sizes_for(abi, self.alignment)
        self.safe_linking = linking if safe_linking is None else safe_linking
        self.malloc_state = _pick(layouts.malloc_states(abi, self.alignment), state)
        self.heap_info = _pick(layouts.heap_infos(abi, self.alignment), heap)
        self.malloc_par = _pick(layouts.malloc_pars(abi), par)
        caches = [c for c in layouts.tcache_layouts(abi) if c.struct.origin.split()[1] == cache]
        self.tcache = caches[-1 if release in ("2.26", "2.27") else 0] if caches else None
        self.heap_max = heap_max or layouts.heap_max_default(abi)
        wide = abi.pointer_size == 8
        self.libc = 0x7F1234400000 if wide else 0xF7C00000
        self.data = self.libc + 0x200000
        self.mp = self.data + 0x340
        self._next_heap = (0x7E0000000000 if wide else 0xF0000000) // self.heap_max * self.heap_max
        self._next_stack = 0x7F1238000000 if wide else 0xF7F00000
        self._next_mmap = 0x7F1236000000 if wide else 0xF7A00000
        brk = 0x555555570000 if wide else 0x56570000
        segment = Segment(brk, brk, brk + (-(brk + self.sizes.header) % self.alignment), 0)
        self.main = Arena(self, self.data + 0xC60, segment, main=True)
        self.arenas = [self.main]
        self.mmapped: list[tuple[int, int]] = []
        self.threads: list[ThreadHeap] = []
        self.tps: dict[int, int] = {}

    def add_arena(self) -> Arena:
        """Add a thread arena with its first heap."""
        start = self._heap_address()
        address = start + self.heap_info.size
        arena = Arena(self, address, self._segment(start, self.malloc_state.size), main=False)
        self.arenas.append(arena)
        return arena

    def add_thread(self, arena: Arena | None = None, *, cached: bool = True) -> ThreadHeap:
        """Add a thread; the first is the main one. Its cache takes a chunk of its arena now."""
        thread = ThreadHeap(self, len(self.threads) + 1, arena or self.main, cached)
        self.threads.append(thread)
        return thread

    def add_mmapped(self, size: int) -> int:
        """Add a mapping of its own of ``size`` bytes (whole pages); return the chunk's address."""
        address = self._next_mmap
        self._next_mmap += size + PAGE
        self.mmapped.append((address, size))
        return address

    @property
    def random_key(self) -> int:
        """``tcache_key`` of 2.34 and later."""
        return 0xC3A5_9D17_5EB2_46F9 & self.abi.word_mask

    def key_of(self, thread: ThreadHeap) -> int:
        """Return the key of what a thread has cached."""
        return thread.tcache if self.release in POINTER_KEYS else self.random_key

    def _heap_address(self) -> int:
        self._next_heap += self.heap_max
        return self._next_heap

    def _segment(self, start: int, extra: int) -> Segment:
        first = start + self.heap_info.size + extra
        first += -(first + self.sizes.header) % self.alignment
        return Segment(start, first, first, 0)

    # -- building -----------------------------------------------------------------------------

    def build(self) -> "Image":
        """Write everything out."""
        return _Writer(self).write()

    def memory(self) -> FakeMemory:
        """Build, and return the memory."""
        return self.build().memory()

    def target(self, **changes) -> Target:
        """Build, and return the target; ``changes`` replace its parts."""
        return self.build().target(**changes)

    def truth(self) -> dict:
        """Return what is there: addresses of everything, by kind."""
        chunks = [chunk for arena in self.arenas for chunk in arena.chunks]
        return {
            "main_arena": self.main.address,
            "arenas": [arena.address for arena in self.arenas],
            "mp": self.mp,
            "chunks": [(c.address, c.size, c.state, c.arena.address) for c in chunks],
            "top": {arena.address: arena.top for arena in self.arenas},
            "heaps": {a.address: [s.start for s in a.segments] for a in self.arenas if not a.main},
            "mmapped": list(self.mmapped),
            "tcaches": {t.number: t.tcache for t in self.threads if t.cached},
            "lists": {t.number: t.lists for t in self.threads if t.cached},
            "thread_arenas": {t.number: t.arena.address for t in self.threads},
        }


def _pick(candidates, since):
    return next(layout for layout in candidates if layout.origin.split()[1] == since)


class Image:
    """The bytes, still open to damage."""

    def __init__(self, builder: HeapBuilder) -> None:
        self.builder = builder
        self.segments: dict[int, bytearray] = {}
        self.regions: list[Region] = []

    def map(self, start: int, size: int, name: str = "", permissions: str = "rw-") -> None:
        self.segments[start] = bytearray(size)
        self.regions.append(Region(start, start + size, permissions, name))

    def poke(self, address: int, value: int, size: int | None = None) -> None:
        """Write an unsigned integer, one word by default."""
        abi = self.builder.abi
        data = value.to_bytes(size or abi.pointer_size, abi.byteorder)
        for start, held in self.segments.items():
            if start <= address and address + len(data) <= start + len(held):
                held[address - start : address - start + len(data)] = data
                return
        raise KeyError(hex(address))

    def peek(self, address: int) -> int:
        """Read a word."""
        abi = self.builder.abi
        data = self.memory().read(address, abi.pointer_size)
        return int.from_bytes(data, abi.byteorder)

    def put(self, layout, address: int, **values: int) -> None:
        """Write scalar members of a structure."""
        for name, value in values.items():
            member = layout.member(name)
            self.poke(address + member.offset, value, member.size)

    def memory(self) -> FakeMemory:
        return FakeMemory(self.segments.items(), sorted(self.regions, key=lambda r: r.start))

    def target(self, **changes) -> Target:
        builder = self.builder
        threads = tuple(
            Thread(t.number, 1000 + t.number, None, builder.tps[t.number] - 0x2000, builder.tps[t.number])
            for t in builder.threads
        )
        parts = {
            "memory": self.memory(),
            "abi": builder.abi,
            "identity": Identity("/bin/prog", "aa" * 20, 1001),
            "modules": (Module(LIBC, builder.libc, builder.data + 0x4000, "1b" * 20),),
            "threads": threads,
        }
        return Target(**{**parts, **changes})


class _Writer:
    def __init__(self, builder: HeapBuilder) -> None:
        self.builder, self.abi, self.sizes = builder, builder.abi, builder.sizes
        self.image = Image(builder)

    def write(self) -> Image:
        self.image.map(self.builder.libc, PAGE, LIBC, "r-x")
        self.image.map(self.builder.data, 0x2000, LIBC)
        self.image.map(self.builder.data + 0x2000, 0x2000)
        if self.builder.release not in KEYLESS + POINTER_KEYS:
            self.image.poke(self.builder.data + TCACHE_KEY_AT, self.builder.random_key)
        for arena in self.builder.arenas:
            self._arena(arena)
        self._ring()
        for address, size in self.builder.mmapped:
            self.image.map(address, size)
            pad = -self.sizes.header % self.sizes.alignment
            trailer = self.sizes.header if self.builder.release in ("2.43", "2.44") else 0
            self.image.poke(address + pad, pad)
            self.image.poke(address + pad + self.sizes.word, (size - pad - trailer) | 2)
        for thread in self.builder.threads:
            self._thread(thread)
        self._par()
        return self.image

    def _arena(self, arena: Arena) -> None:
        for segment in arena.segments:
            self._map_segment(arena, segment)
        layout, put = self.builder.malloc_state, self.image.put
        system = sum(segment.end - segment.start for segment in arena.segments)
        system = system if arena.system_mem is None else arena.system_mem
        put(layout, arena.address, mutex=arena.mutex, flags=0, top=arena.top, system_mem=system)
        put(layout, arena.address, max_system_mem=system, attached_threads=arena.attached)
        for segment in arena.segments:
            self._chunks(arena, segment)
        self._bins(arena)
        self._fastbins(arena)

    def _map_segment(self, arena: Arena, segment: Segment) -> None:
        if not segment.end:
            end = segment.cursor + max(arena.top_size, self.sizes.minimum)
            segment.end = end + -end % PAGE
        self.image.map(segment.start, segment.end - segment.start)
        if arena.main:
            return
        self.image.regions.append(
            Region(segment.end, segment.start + self.builder.heap_max, "---")
        )
        at = arena.segments.index(segment)
        prev = arena.segments[at - 1].start if at else 0
        info, size = self.builder.heap_info, segment.end - segment.start
        self.image.put(
            info, segment.start, ar_ptr=arena.address, prev=prev, size=size, mprotect_size=size
        )
        if "pagesize" in info:
            self.image.put(info, segment.start, pagesize=self.builder.hp_pagesize or PAGE)

    def _chunks(self, arena: Arena, segment: Segment) -> None:
        word, mark, previous_free = self.sizes.word, 0 if arena.main else 4, 0
        for chunk in segment.chunks:
            free = chunk.state in ("bin", "unsorted")
            self._head(chunk.address, chunk.size | (0 if free else mark), previous_free)
            previous_free = chunk.size if free else 0
        if segment is arena.segments[-1]:
            self._head(segment.cursor, segment.end - segment.cursor, previous_free)
            return
        self._head(segment.cursor, segment.rest, previous_free)
        segment.chunks.append(Chunk(segment.cursor, segment.rest, "unsorted", arena))
        fence = segment.cursor + segment.rest
        self._head(fence, self.sizes.header, segment.rest)
        self.image.poke(fence + self.sizes.header + word, 1)

    def _head(self, address: int, size: int, previous_free: int) -> None:
        self.image.poke(address + self.sizes.word, size | (0 if previous_free else 1))
        if previous_free:
            self.image.poke(address, previous_free)

    def _bins(self, arena: Arena) -> None:
        lists: dict[int, list[Chunk]] = {}
        for chunk in arena.chunks:
            if chunk.state in ("bin", "unsorted"):
                index = 1 if chunk.state == "unsorted" else self.sizes.bin_index(chunk.size)
                lists.setdefault(index, []).append(chunk)
        layout = self.builder.malloc_state
        for index in range(1, layouts.BIN_COUNT + 1):
            chunks = lists.get(index, [])
            if index >= 64:
                chunks.sort(key=lambda chunk: -chunk.size)
            head = arena.address + layout.offset("bins") + (index - 2) * 2 * self.sizes.word
            self._ring_of([head] + [chunk.address for chunk in chunks])
            if index >= 64 and chunks:
                self._nextsize(chunks)
            if chunks and index > 1:
                at = arena.address + layout.offset("binmap") + index // 32 * 4
                held = self.image.memory().read(at, 4)
                old = int.from_bytes(held, self.abi.byteorder)
                self.image.poke(at, old | 1 << index % 32, 4)

    def _ring_of(self, nodes: list[int]) -> None:
        header, word = self.sizes.header, self.sizes.word
        for node, after in zip(nodes, nodes[1:] + nodes[:1]):
            self.image.poke(node + header, after)
            self.image.poke(after + header + word, node)

    def _nextsize(self, chunks: list[Chunk]) -> None:
        firsts = {chunk.size: chunk.address for chunk in reversed(chunks)}
        nodes = [address for _, address in sorted(firsts.items(), reverse=True)]
        at = self.sizes.header + 2 * self.sizes.word
        for node, after in zip(nodes, nodes[1:] + nodes[:1]):
            self.image.poke(node + at, after)
            self.image.poke(after + at + self.sizes.word, node)

    def _fastbins(self, arena: Arena) -> None:
        heads: dict[int, int] = {}
        for chunk in arena.chunks:
            if chunk.state == "fastbin":
                index = self.sizes.fastbin_index(chunk.size)
                self._link(chunk.address + self.sizes.header, heads.get(index, 0))
                heads[index] = chunk.address
        for index, head in heads.items():
            start = arena.address + self.builder.malloc_state.offset("fastbinsY")
            self.image.poke(start + index * self.sizes.word, head)

    def _link(self, slot: int, to: int) -> None:
        self.image.poke(slot, slot >> 12 ^ to if self.builder.safe_linking else to)

    def _ring(self) -> None:
        # arena_get2 puts each new arena directly behind main_arena.
        main, *others = self.builder.arenas
        order = [main, *reversed(others)]
        for arena, after in zip(order, order[1:] + order[:1]):
            self.image.put(self.builder.malloc_state, arena.address, next=after.address)

    def _thread(self, thread: ThreadHeap) -> None:
        builder, word = self.builder, self.sizes.word
        start = builder._next_stack
        builder._next_stack += 0x10000
        self.image.map(start, 0x8000, "" if thread.number > 1 else "[stack]")
        if thread.number == 1:  # the main thread's TLS is not on its stack
            start, builder._next_stack = builder._next_stack, builder._next_stack + 0x10000
            self.image.map(start, 0x3000)
        tp = builder.tps[thread.number] = start + (0x6700 if thread.number > 1 else 0x1740)
        sign = -1 if builder.abi.machine in ("x86-64", "i386", "s390x") else 1
        if sign < 0:
            self.image.poke(tp, tp)
            self.image.poke(tp + 2 * word, tp)
            self.image.poke(tp + (0x2D0 if word == 8 else 0x68), 1000 + thread.number, 4)
        self.image.poke(tp + sign * TCACHE_AT, thread.tcache)
        self.image.poke(tp + sign * ARENA_AT, thread.arena.address)
        if thread.cached:
            self._tcache(thread)

    def _tcache(self, thread: ThreadHeap) -> None:
        cache = self.builder.tcache
        counts, entries = cache.struct.member("counts"), cache.struct.member("entries")
        for index in range(cache.bins):
            nodes = thread.lists.get(index, [])
            count = self.builder.tcache_count - len(nodes) if cache.counts_down else len(nodes)
            self.image.poke(thread.tcache + counts.offset + index * counts.size, count, counts.size)
            head = nodes[0] if nodes else 0
            self.image.poke(thread.tcache + entries.offset + index * entries.size, head)
            for node, after in zip(nodes, nodes[1:] + [0]):
                self._link(node, after)
                if self.builder.release not in KEYLESS:
                    self.image.poke(node + self.sizes.word, self.builder.key_of(thread))

    def _par(self) -> None:
        builder, layout = self.builder, self.builder.malloc_par
        mapped = sum(size for _, size in builder.mmapped)
        values = {
            "trim_threshold": 0x20000,
            "top_pad": 0x20000,
            "mmap_threshold": 0x20000,
            "arena_test": 8 if self.sizes.word == 8 else 2,
            "hp_pagesize": builder.hp_pagesize,
            "n_mmaps": len(builder.mmapped),
            "n_mmaps_max": 65536,
            "max_n_mmaps": len(builder.mmapped),
            "mmapped_mem": mapped,
            "max_mmapped_mem": mapped,
            "sbrk_base": builder.main.segments[0].start,
            "tcache_bins": 64,
            "tcache_max_bytes": 63 * builder.alignment + self.sizes.minimum - self.sizes.word,
            "tcache_count": builder.tcache_count,
        }
        known = {name: value for name, value in values.items() if name in layout}
        self.image.put(layout, builder.mp, **known)

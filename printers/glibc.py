"""malloc's structures, where libc's debug info names them.

Members are taken by name, so every version whose debug info is there prints; what a version does not have is
left out. malloc/malloc.c and malloc/arena.c of glibc 2.23 to 2.44.
"""

from __future__ import annotations

from typing import Callable, Iterator, Mapping, Optional

import gdb
from gdbext.printers.guarded import Child, GuardedPrinter

from gdbext.errors import FaultError
from gdbext.wording import count_text, size_text

_PREV_INUSE, _IS_MMAPPED, _NON_MAIN_ARENA = 1, 2, 4
_MOST = 10_000  # nodes of one list that are counted
_SMALL_CLASSES = 64  # of a tcache; larger ones (since 2.42) hold sizes of a range


def find_printer(value: gdb.Value, tag: str) -> GuardedPrinter:
    """Return the printer of one of malloc's structures."""
    return _PRINTERS[tag](value)


class _Structure(GuardedPrinter):
    """A structure of malloc's, and how to read around it."""

    def member(self, *names: str) -> Optional[int]:
        """Return the first member of these names that it has, as unsigned number, or None."""
        for name in names:
            if _has(self.value.type, name):
                return _unsigned(self.value[name])
        return None

    @property
    def address(self) -> Optional[int]:
        """Where it is; None for a value in no memory."""
        address = self.value.address
        return None if address is None else _unsigned(address)

    @property
    def place(self) -> str:
        """ "at 0x…", or nothing."""
        return "" if self.address is None else f" at {self.address:#x}"


class ChunkPrinter(_Structure):
    """``struct malloc_chunk``."""

    def line(self) -> str:
        """Return size, state and flags."""
        field = self.member("mchunk_size", "size") or 0
        size = field & ~7
        if size < 4 * _word() or size % (2 * _word()):
            return f"chunk{self.place}: impossible size {field:#x}"
        return f"chunk{self.place}: {size:#x} bytes, {', '.join(self._states(size, field))}"

    def parts(self) -> Iterator[Child]:
        """Iterate over the links of a free chunk."""
        if self._used() is False:
            for name in ("fd", "bk", "fd_nextsize", "bk_nextsize")[: 4 if self._size() >= 1024 else 2]:
                yield name, self.value[name]

    def _size(self) -> int:
        return (self.member("mchunk_size", "size") or 0) & ~7

    def _states(self, size: int, field: int) -> Iterator[str]:
        used = self._used()
        # The chunk behind it is the one that says so, and behind the top there is none.
        known = {True: "in use or cached", False: "free", None: "top, or its end cannot be read"}
        yield "mmapped" if field & _IS_MMAPPED else known[used]
        if field & _NON_MAIN_ARENA:
            yield "of a thread arena"
        if not field & (_PREV_INUSE | _IS_MMAPPED):
            yield f"previous free ({self.member('mchunk_prev_size', 'prev_size') or 0:#x} bytes)"

    def _used(self) -> Optional[bool]:
        """Return whether the chunk behind it says that it is in use; None when that cannot be read."""
        field = self.member("mchunk_size", "size") or 0
        if field & _IS_MMAPPED:
            return True
        if self.address is None:
            return None
        try:
            return bool(_read_word(self.address + self._size() + _word()) & _PREV_INUSE)
        except FaultError:
            return None


class ArenaPrinter(_Structure):
    """``struct malloc_state``."""

    def line(self) -> str:
        """Return what it took, what is on top, and who uses it."""
        system, mutex = self.member("system_mem"), self.member("mutex")
        figures = [
            "system ?" if system is None else f"system {size_text(system)}",
            self._top(),
            count_text(self.member("attached_threads") or 0, "thread"),
            *(["locked"] if mutex else []),
        ]
        return f"arena{self.place}: {', '.join(figures)}"

    def parts(self) -> Iterator[Child]:
        """Iterate over top, the next arena, and the lists that are not empty."""
        yield "top", self.value["top"]
        yield "next", self.value["next"]
        yield from self._fastbins()
        yield from self._bins()

    def _top(self) -> str:
        top = self.member("top")
        if not top:
            return "no top"
        try:
            return f"top {size_text(_read_word(top + _word()) & ~7)}"
        except FaultError:
            return f"top <cannot read {top:#x}>"

    def _fastbins(self) -> Iterator[Child]:
        if not _has(self.value.type, "fastbinsY"):
            return
        for index, first in _items(self.value["fastbinsY"]):
            if first:
                yield (
                    f"fastbinsY[{index}]",
                    f"{_single(first, 2 * _word(), _size_of(index))}, first {first:#x}",
                )

    def _bins(self) -> Iterator[Child]:
        start = self.value["bins"].address
        if start is None:
            return
        links = list(_items(self.value["bins"]))
        for (index, first), (_, last) in zip(links[::2], links[1::2]):
            head = int(start) + index * _word() - 2 * _word()
            if first != head and first:
                name = "unsorted, " if not index else ""
                yield f"bins[{index}]", f"{name}{_ring(first, head)}, first {first:#x}, last {last:#x}"


class HeapPrinter(_Structure):
    """``struct _heap_info``."""

    def line(self) -> str:
        """Return whose heap it is and how large."""
        size, writable = self.member("size") or 0, self.member("mprotect_size")
        extent = size_text(size)
        if writable is not None and writable != size:
            extent += f", {size_text(writable)} writable"
        prev = self.member("prev")
        place = f"after {prev:#x}" if prev else "its first"
        return f"heap{self.place} of arena {self.member('ar_ptr') or 0:#x}: {extent}, {place}"


class TcachePrinter(_Structure):
    """``tcache_perthread_struct``."""

    def line(self) -> str:
        """Return how much is cached; where free slots are counted, only in how many classes."""
        used = [index for index, first in _items(self.value["entries"]) if first]
        classes = f"{count_text(len(used), 'class', 'classes')}"
        if not _has(self.value.type, "counts"):
            return f"tcache{self.place}: {classes} in use"
        counted = sum(count for _, count in _items(self.value["counts"]))
        return f"tcache{self.place}: {count_text(counted, 'chunk')} in {classes}"

    def parts(self) -> Iterator[Child]:
        """Iterate over the classes that are not empty."""
        counts = dict(_items(self.value["counts"])) if _has(self.value.type, "counts") else {}
        for index, first in _items(self.value["entries"]):
            counted = counts.get(index)
            if first or counted:
                size = _size_of(index) if index < _SMALL_CLASSES else ""
                said = "" if counted is None else f"counted {counted}, "
                yield f"entries[{index}]", f"{said}{_single(first, 0, size)}, first {first:#x}"


class EntryPrinter(_Structure):
    """``tcache_entry``."""

    def line(self) -> str:
        """Return the block after it, as malloc decodes it."""
        stored = self.member("next") or 0
        at, mangled = self.address, _links_are_mangled()
        following = stored if at is None else _decoded(at, stored, mangled)
        after = f"next {following:#x}" if following else "the last"
        raw = f" (stored {stored:#x})" if following != stored else ""
        key = self.member("key")
        return f"cached block{self.place}: {after}{raw}" + ("" if key is None else f", key {key:#x}")


def _size_of(index: int) -> str:
    return f" of {2 * _word() * (index + 2):#x} bytes"


def _single(first: int, link: int, size: str) -> str:
    """Count the chunks of a tcache's or a fastbin's list.

    :param size: what is said behind their number.
    """
    nodes: "set[int]" = set()
    node, mangled = first, _links_are_mangled()
    while node and node not in nodes:
        if len(nodes) >= _MOST:
            return f"more than {count_text(_MOST, 'chunk')}{size}"
        try:
            following = _decoded(node + link, _read_word(node + link), mangled, link)
        except FaultError:
            return f"{count_text(len(nodes), 'chunk')}{size}, then <cannot read {node:#x}>"
        nodes.add(node)
        node = following
    return ("a cycle after " if node else "") + count_text(len(nodes), "chunk") + size


def _ring(first: int, head: int) -> str:
    """Count the chunks of a bin, which is closed by its head."""
    nodes: "set[int]" = set()
    node = first
    while node != head and node not in nodes:
        if len(nodes) >= _MOST:
            return f"more than {count_text(_MOST, 'chunk')}"
        try:
            following = _read_word(node + 2 * _word())
        except FaultError:
            return f"{count_text(len(nodes), 'chunk')}, then <cannot read {node:#x}>"
        nodes.add(node)
        node = following
    return (
        count_text(len(nodes), "chunk")
        if node == head
        else f"a cycle after {count_text(len(nodes), 'chunk')}"
    )


def _decoded(at: int, stored: int, mangled: Optional[bool], link: int = 0) -> int:
    """Return where a link leads.

    :param at: the link's own address.
    :param link: its offset from what links lead to.
    :param mangled: as :func:`_links_are_mangled`; None takes the reading that leads to a chunk of the same size,
        as the chunks of a list are, or else the one that is aligned.
    """
    revealed = stored ^ (at >> 12)
    if mangled is None and stored and revealed:
        alike = [_is_alike(at, to + link) for to in (stored, revealed)]
        mangled = alike[1] if any(alike) else revealed % (2 * _word()) == 0
    return revealed if stored and mangled is not False else stored


def _links_are_mangled() -> Optional[bool]:
    """Return whether links of single lists are mangled (safe-linking), as far as their types tell, else None.

    Safe-linking came with glibc 2.32 (malloc/malloc.c, ``PROTECT_PTR``), the ``key`` of ``tcache_entry`` with 2.29
    as a pointer; it is a number since 2.34.
    """
    try:
        entry = gdb.lookup_type("tcache_entry").strip_typedefs()
    except gdb.error:
        return None
    if not _has(entry, "key"):
        return False
    key = entry["key"].type
    return None if key is None or key.strip_typedefs().code == gdb.TYPE_CODE_PTR else True


def _is_alike(at: int, to: int) -> bool:
    """Return whether two places are the first words of blocks of the same size; ``to`` may be no place."""
    try:
        chunk_size = _read_word(at - _word())
        return to % (2 * _word()) == 0 and _read_word(to - _word()) & ~7 == chunk_size & ~7
    except FaultError:
        return False


def _read_word(address: int) -> int:
    try:
        data = gdb.selected_inferior().read_memory(address, _word())
    except (gdb.MemoryError, OverflowError):
        raise FaultError(address, _word()) from None
    return _unsigned(gdb.Value(bytes(data), gdb.lookup_type("char").pointer()))


def _word() -> int:
    return int(gdb.lookup_type("char").pointer().sizeof)


def _unsigned(value: gdb.Value) -> int:
    return int(value) & ((1 << (8 * value.type.sizeof)) - 1)


def _has(kind: gdb.Type, name: str) -> bool:
    return name in kind.strip_typedefs().keys()  # noqa: SIM118  gdb.Type is no mapping when iterated


def _items(array: gdb.Value) -> "Iterator[tuple[int, int]]":
    low, high = array.type.strip_typedefs().range()
    for index in range(low, high + 1):
        yield index, _unsigned(array[index])


_PRINTERS: "Mapping[str, Callable[[gdb.Value], GuardedPrinter]]" = {
    "malloc_chunk": ChunkPrinter,
    "malloc_state": ArenaPrinter,
    "_heap_info": HeapPrinter,
    "heap_info": HeapPrinter,
    "tcache_perthread_struct": TcachePrinter,
    "tcache_entry": EntryPrinter,
}

"""Words of a target's memory by the column: of what is mapped here by the kernel, else in pieces that are kept."""

from __future__ import annotations

from functools import cached_property
from typing import Dict, Optional, Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.reach.graph import Reach
from gdbext.errors import FaultError
from gdbext.heap.model import U64, Mask
from gdbext.kernels import BlockIndex, Spans, find_blocks, follow_words, hold_spans, reveal
from gdbext.memory import view
from gdbext.memory.bulk import untouched
from gdbext.memory.intervals import Coverage, columns, distinct, slices

_PIECE_BITS = 16
_PIECES = 1024  # that are kept: 64 MiB, and as much to say what of them could be read
_PAGES = 1 << 14  # that are read at once: 64 MiB
_LOWEST = 1 << 12  # below it nothing is mapped


class Words:
    """Reads many words at once.

    :param reach: whose blocks' memory is at hand.
    """

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.target = reach.target
        self.size = reach.rules.word
        self.index: BlockIndex = reach.marked.blocks.index
        self._spans = reach.marked.spans
        self._held = hold_spans(self._spans, self.target.abi.byteorder)
        self._starts = np.array([start for start, _ in self._spans], np.uint64)
        self._rules = reach.rules
        self._clear = np.uint64(((1 << 64) - 1) & ~reach.rules.clear)
        regions = reach.target.memory.regions()
        self._mapped = Coverage(*columns((region.start, region.end) for region in regions))
        self._executable = Coverage(
            *columns((region.start, region.end) for region in regions if "x" in region.permissions)
        )
        # A core may not say what is executable.
        self._says_executable = any("x" in region.permissions for region in regions)
        self._pieces: Dict[int, Tuple[npt.NDArray[np.uint8], Mask]] = {}

    @cached_property
    def _mapped_views(self) -> Spans:
        mapped = getattr(self.target.memory, "mapped", None)
        return hold_spans(mapped() if mapped is not None else (), self.target.abi.byteorder)

    def in_blocks(self, addresses: U64, size: Optional[int] = None) -> "tuple[U64, Mask]":
        """As :meth:`read`, of memory that blocks lie in."""
        values, known = self._held.gather(addresses, size or self.size)
        return values, self._with_untouched(known, addresses, size or self.size)

    def _with_untouched(self, known: Mask, addresses: U64, size: int) -> Mask:
        """Return what is known, and what is zeros since it was never touched: it is in no span."""
        rest = np.flatnonzero(~known)
        if not len(rest):
            return known
        first, last = addresses[rest], addresses[rest] + np.uint64(size - 1)
        known[rest] = untouched(self.target.memory, first)
        page = np.uint64(self.target.abi.page_size)
        over = np.flatnonzero(first // page != last // page)
        known[rest[over]] &= untouched(self.target.memory, last[over])
        return known

    def bytes_at(self, addresses: U64, count: int) -> "tuple[npt.NDArray[np.uint8], Mask]":
        """Return ``count`` bytes at each address, a row each, and for which all of them lie in one span of the blocks'.

        :param addresses: sorted.
        """
        data, there = np.zeros((len(addresses), count), np.uint8), np.zeros(len(addresses), np.bool_)
        items = data.view(f"V{count}").ravel()
        span = np.searchsorted(self._starts, addresses, side="right") - 1
        firsts = np.flatnonzero(np.diff(span, prepend=-1))  # those before any span are not there
        for first, behind in zip(firsts.tolist(), [*firsts[1:].tolist(), len(span)]):
            start, buffer = self._spans[int(span[first])]
            held = memoryview(buffer).nbytes - count + 1  # type: ignore[arg-type]
            offsets = addresses[first:behind] - np.uint64(start)
            fits = int(np.searchsorted(offsets, np.uint64(max(held, 0))))
            if fits:
                every = np.ndarray((held,), items.dtype, buffer, strides=(1,))  # type: ignore[arg-type]
                items[first : first + fits] = every[offsets[:fits].astype(np.intp)]
                there[first : first + fits] = True
        return data, self._with_untouched(there, addresses, count)

    def read(self, addresses: U64, size: Optional[int] = None) -> "tuple[U64, Mask]":
        """Return the number at each address, and whether it could be read.

        :param size: bytes of a number; None is a word.
        """
        values, known = self.in_blocks(addresses, size)
        rest = np.flatnonzero(~known)
        if not len(rest):
            return values, known
        values[rest], known[rest] = self._mapped_views.gather(addresses[rest], size or self.size)
        self._read_pages(addresses, rest[~known[rest]], size or self.size, values, known)
        rest = rest[~known[rest]]
        pieces = addresses[rest] >> np.uint64(_PIECE_BITS)
        for piece in np.unique(pieces).tolist():
            rows = rest[pieces == np.uint64(piece)]
            self._read_piece(piece, addresses, rows, size or self.size, values, known)
        return values, known

    def pointers(self, addresses: U64) -> "tuple[U64, Mask]":
        """As :meth:`read`, as addresses: tags cleared, and what is mangled revealed, null too."""
        values, known = self.read(addresses)
        if not self._rules.mangled:
            return values & self._clear, known
        found = follow_words(values, addresses, self.index, self._rules)
        found.address[(found.row < 0) & (reveal(values, addresses) & self._clear == 0)] = 0
        return found.address, known

    def mapped(self, values: U64) -> Mask:
        """Return which values are addresses of mapped memory, be its bytes known or not."""
        likely: Mask = values >= np.uint64(_LOWEST)
        held = np.zeros(len(values), np.bool_)
        held[likely] = self._mapped.holds(values[likely])
        return held

    def executable(self, address: int) -> bool:
        """Return whether code may be at an address."""
        found = self._executable if self._says_executable else self._mapped
        return bool(found.holds(np.array([address & ((1 << 64) - 1)], np.uint64))[0])

    def rows_at(self, values: U64) -> "npt.NDArray[np.int64]":
        """Return for each value the row of the block that begins there, or -1."""
        return find_blocks(self.index, values, begins=True)

    def _read_pages(self, addresses: U64, rows: "npt.NDArray[np.int64]", size: int, values: U64, known: Mask) -> None:
        """Read what lies in one page each, of a memory that has many scattered pages at once: a process."""
        direct = getattr(self.target.memory, "read_pages", None)
        page = np.uint64(self.target.abi.page_size)
        rows = rows[addresses[rows] % page <= page - np.uint64(size)] if direct is not None else rows[:0]
        order = f"{'<' if self.target.abi.byteorder == 'little' else '>'}u{size}"
        firsts = addresses[rows] - addresses[rows] % page
        pages = distinct(firsts)
        for part in slices(len(pages), _PAGES):
            some = pages[part]
            data, there = direct(some)  # type: ignore[misc]
            at = np.minimum(np.searchsorted(some, firsts), len(some) - 1)
            read = np.flatnonzero((some[at] == firsts) & there[at])
            offsets = at[read] * int(page) + (addresses[rows[read]] % page).astype(np.int64)
            items = np.ndarray((data.size - size + 1,), order, buffer=data, strides=(1,))
            values[rows[read]], known[rows[read]] = items[offsets].astype(np.uint64), True

    def _read_piece(
        self, piece: int, addresses: U64, rows: "npt.NDArray[np.int64]", size: int, values: U64, known: Mask
    ) -> None:
        data, there = self._piece(piece)
        if len(data) < size:
            return
        offsets = (addresses[rows] & np.uint64((1 << _PIECE_BITS) - 1)).astype(np.int64)
        fits = offsets + size <= len(data)
        rows, offsets = rows[fits], offsets[fits]
        order = "<" if self.target.abi.byteorder == "little" else ">"
        items = np.ndarray((len(data) - size + 1,), f"{order}u{size}", buffer=data, strides=(1,))
        read = there[offsets] & there[offsets + size - 1]
        values[rows[read]] = items[offsets[read]].astype(np.uint64)
        known[rows[read]] = True

    def _piece(self, piece: int) -> "tuple[npt.NDArray[np.uint8], Mask]":
        if piece not in self._pieces:
            if len(self._pieces) >= _PIECES:
                self._pieces.clear()
            self._pieces[piece] = self._load(piece << _PIECE_BITS)
        return self._pieces[piece]

    def _load(self, start: int) -> "tuple[npt.NDArray[np.uint8], Mask]":
        """Return the bytes of a piece, up to its last that is mapped, and which of them could be read."""
        end = start + (1 << _PIECE_BITS)
        parts = [
            (max(region.start, start), min(region.end, end)) for region in self.target.index.within(start, end)
        ]
        data = np.zeros(max((high - start for _, high in parts), default=0), np.uint8)
        there = np.zeros(len(data), np.bool_)
        for low, high in parts:
            try:
                data[low - start : high - start] = np.frombuffer(view(self.target.memory, low, high - low), np.uint8)
            except FaultError:
                continue
            there[low - start : high - start] = True
        return data, there

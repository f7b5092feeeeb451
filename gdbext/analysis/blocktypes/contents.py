"""What is left is told by its first bytes: text, zeros, pointers. A hint and no more, so never of high confidence."""

from __future__ import annotations

from typing import Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.blocktypes.model import LOW, MEDIUM, POINTERS, TEXT, ZEROS
from gdbext.analysis.blocktypes.sheet import Sheet
from gdbext.analysis.blocktypes.words import Words
from gdbext.heap.model import U64, Mask
from gdbext.memory.intervals import slices
from gdbext.progress import Progress

I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LOOKED_AT = 64  # bytes of each block
_LEAST_TEXT = 4  # characters
_CLEAR_TEXT = 8
_SAMPLES = 64  # words of a larger block that begins with zeros
_AT_ONCE = 1 << 16  # rows

C_STRING, UTF_16, ZEROED, ONLY_POINTERS = ("C string", "UTF-16 text", "zeros", "pointers")


def put_contents(words: Words, sheet: Sheet, progress: Progress) -> None:
    """Give the rows of which nothing is known what their first bytes look like."""
    rows = sheet.unknown()
    for part in slices(len(rows), _AT_ONCE):
        progress.at("looking at contents", part.start, len(rows))
        _put_part(words, sheet, rows[part])


def _put_part(words: Words, sheet: Sheet, rows: I64) -> None:
    lengths = np.minimum(words.index.size[rows], np.uint64(LOOKED_AT)).astype(np.int64)
    data, there = _first_bytes(words, rows, lengths)
    rows, lengths, data = rows[there], lengths[there], data[there]
    ends, text = _find_text(data, lengths)
    text &= ~_are_addresses(words, data, ends)
    clear = text & (ends < lengths) & (ends >= _CLEAR_TEXT)
    sheet.put(rows[clear], sheet.code_of(C_STRING, TEXT), MEDIUM)
    sheet.put(rows[text & ~clear], sheet.code_of(C_STRING, TEXT), LOW)
    left = np.flatnonzero(~text)
    rows, lengths, data = rows[left], lengths[left], data[left]
    zeros = ~data.any(axis=1)
    _put_zeros(words, sheet, rows[zeros])
    wide = ~zeros & _is_wide(data, lengths)
    sheet.put(rows[wide], sheet.code_of(UTF_16, TEXT), LOW)
    rest = ~zeros & ~wide
    held = _only_pointers(words, data[rest], lengths[rest])
    sheet.put(rows[rest][held], sheet.code_of(ONLY_POINTERS, POINTERS), LOW)


def _first_bytes(words: Words, rows: I64, lengths: I64) -> Tuple[Bytes, Mask]:
    """Return the first bytes of blocks, one row of 64 each, zeros behind a block's end, and which could be read."""
    data = np.zeros((len(rows), LOOKED_AT), np.uint8)
    there = lengths > 0
    for at in range(0, LOOKED_AT, 8):
        within = np.flatnonzero(there & (lengths >= at + 8))
        values, known = words.in_blocks(words.index.address[rows[within]] + np.uint64(at), 8)
        data[within, at : at + 8] = _as_bytes(values, words.target.abi.byteorder)
        there[within[~known]] = False
        _last_bytes(words, rows, np.flatnonzero(there & (lengths > at) & (lengths < at + 8)), (at, lengths), data)
    return data, there


def _last_bytes(words: Words, rows: I64, within: I64, place: Tuple[int, I64], data: Bytes) -> None:
    at, lengths = place
    for step in range(7):
        within = within[lengths[within] > at + step]
        values, known = words.in_blocks(words.index.address[rows[within]] + np.uint64(at + step), 1)
        data[within[known], at + step] = values[known].astype(np.uint8)


def _as_bytes(values: U64, byteorder: str) -> Bytes:
    ordered = values.astype("<u8" if byteorder == "little" else ">u8")
    return ordered.view(np.uint8).reshape(len(values), 8)


def _are_addresses(words: Words, data: Bytes, ends: I64) -> Mask:
    """Return which rows begin with an address that looks like text: its letters end within the first word."""
    order = "<" if words.target.abi.byteorder == "little" else ">"
    first = np.ascontiguousarray(data[:, : words.size]).view(f"{order}u{words.size}").ravel().astype(np.uint64)
    found: Mask = ends <= words.size
    found[found] = words.mapped(first[found])
    return found


_PRINTABLE = np.zeros(256, np.bool_)
_PRINTABLE[0x20:0x7F] = True
_PRINTABLE[[9, 10, 13]] = True


def _find_text(data: Bytes, lengths: I64) -> Tuple[I64, Mask]:
    """Return for each row where its first NUL is, and whether what stands before is text in UTF-8."""
    inside = np.arange(data.shape[1]) < lengths[:, None]
    stops = (data == 0) | ~inside
    ends = np.where(stops.any(axis=1), stops.argmax(axis=1), data.shape[1])
    begins = ((data[:, :_LEAST_TEXT] >= 0x80) | _PRINTABLE[data[:, :_LEAST_TEXT]]).all(axis=1)
    long = (ends >= _LEAST_TEXT) & begins & ((data[:, 0] & 0xC0) != 0x80)
    text: Mask = long.copy()
    chosen = np.flatnonzero(long)
    before = np.arange(data.shape[1]) < ends[chosen, None]
    good = (_PRINTABLE[data[chosen]] | ~before).all(axis=1)
    high = np.flatnonzero(~good)
    good[high] = _is_utf8(data[chosen[high]], before[high])
    text[chosen] = good
    return ends, text


def _is_utf8(data: Bytes, before: Mask) -> Mask:
    """Return which rows are text in UTF-8 as far as ``before`` says; the last character may be cut off."""
    follows = ((data & 0xC0) == 0x80) & before
    expected = np.zeros(data.shape, np.bool_)
    for least, count in ((0xC2, 1), (0xE0, 2), (0xF0, 3)):
        lead = (data >= least) & (data < 0xF5) & before
        expected[:, count:] |= lead[:, :-count]
    expected &= before
    allowed = _PRINTABLE[data] | ((data >= 0x80) & (data < 0xF5) & (data != 0xC0) & (data != 0xC1)) | ~before
    # Text of other alphabets has letters, spaces or signs beside: few rows of mere high bytes are text.
    plain = (_PRINTABLE[data] & before).sum(axis=1) + (data >= 0xC2).sum(axis=1)
    good: Mask = (follows == expected).all(axis=1) & allowed.all(axis=1) & (plain >= _LEAST_TEXT)
    return good


def _put_zeros(words: Words, sheet: Sheet, rows: I64) -> None:
    """Type rows that begin with zeros: those of which all was seen with more confidence."""
    code = sheet.code_of(ZEROED, ZEROS)
    sizes = words.index.size[rows]
    short = sizes <= np.uint64(LOOKED_AT)
    sheet.put(rows[short], code, MEDIUM)
    long = rows[~short]
    empty = np.ones(len(long), np.bool_)
    for at in range(1, _SAMPLES):
        steps = (words.index.size[long] - np.uint64(8)) // np.uint64(8) * np.uint64(at) // np.uint64(_SAMPLES - 1)
        values, known = words.in_blocks(words.index.address[long] + steps * np.uint64(8), 8)
        empty &= known & (values == 0)
    sheet.put(long[empty], code, LOW)


def _is_wide(data: Bytes, lengths: I64) -> Mask:
    """Return which rows are UTF-16 of characters below U+0100, in either order of bytes."""
    zeros = data[:, :4] == 0
    found: Mask = (zeros[:, 0] != zeros[:, 1]) & (zeros[:, 0] == zeros[:, 2]) & (zeros[:, 1] == zeros[:, 3])
    found[found] = _is_all_wide(data[found], lengths[found])
    return found


def _is_all_wide(data: Bytes, lengths: I64) -> Mask:
    found = np.zeros(len(data), np.bool_)
    for low, high in ((data[:, ::2], data[:, 1::2]), (data[:, 1::2], data[:, ::2])):
        stops = (low == 0) & (high == 0)
        ends = np.where(stops.any(axis=1), stops.argmax(axis=1), low.shape[1])
        before = np.arange(low.shape[1]) < ends[:, None]
        found |= (ends >= _LEAST_TEXT) & ((_PRINTABLE[low] & (high == 0)) | ~before).all(axis=1) & (lengths > 8)
    return found


def _only_pointers(words: Words, data: Bytes, lengths: I64) -> Mask:
    """Return which rows are zeros and addresses of mapped memory, at least half of them addresses."""
    order = "<" if words.target.abi.byteorder == "little" else ">"
    values = data.view(f"{order}u{words.size}").astype(np.uint64)
    held = np.ones(len(data), np.bool_)
    count = np.zeros(len(data), np.int64)
    for at in range(values.shape[1]):
        rows = np.flatnonzero(held & (values[:, at] != 0))
        mapped = words.mapped(values[rows, at])
        held[rows] = mapped
        count[rows] += mapped
    enough: Mask = held & (count > 0) & (2 * count * words.size >= lengths)
    return enough

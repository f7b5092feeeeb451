"""What is left is told by its first bytes: text, zeros, pointers. A hint and no more, so never of high confidence."""

from __future__ import annotations

from typing import Tuple

import numpy as np
import numpy.typing as npt

from gdbext.analysis.types.blockwords import Words
from gdbext.analysis.types.claims import Sheet
from gdbext.analysis.types.model import LOW, MEDIUM, POINTERS, TEXT, ZEROS
from gdbext.heap.model import U64, Mask
from gdbext.memory.intervals import for_each_chosen, slices
from gdbext.progress import Progress, is_tight, relieve

I64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LOOKED_AT = 64  # bytes of each block
_LEAST_TEXT = 4  # characters
_CLEAR_TEXT = 8
_WHOLE = 512  # bytes: of a larger block that begins with zeros only some words are looked at
_SAMPLES = 64
_AT_ONCE = 1 << 16  # rows
_FEW_AT_ONCE = 1 << 10  # each may bring 64 KiB into memory (fault-around)
_SAMPLED_AT_ONCE = 1 << 12  # rows

C_STRING, UTF_16, ZEROED, ONLY_POINTERS = ("C string", "UTF-16 text", "zeros", "pointers")


def put_contents(words: Words, sheet: Sheet, progress: Progress) -> None:
    """Give the rows of which nothing is known what their first bytes look like."""
    unknown = sheet.unknown()
    total = int(np.count_nonzero(unknown))
    for before, rows in for_each_chosen(unknown, _FEW_AT_ONCE if is_tight() else _AT_ONCE):
        progress.at("looking at contents", before, total)
        _put_part(words, sheet, rows)
        relieve()


def _put_part(words: Words, sheet: Sheet, rows: I64) -> None:
    lengths = np.minimum(words.index.size[rows], np.uint64(LOOKED_AT)).astype(np.int64)
    data, there = _first_bytes(words, words.index.address[rows], lengths)
    if not there.all():
        rows, lengths, data = rows[there], lengths[there], data[there]
    left = _put_text(words, sheet, rows, lengths, data)
    rows, lengths, data = rows[left], lengths[left], data[left]
    zeros = ~data.view(np.uint64).any(axis=1)
    _put_zeros(words, sheet, rows[zeros])
    wide = ~zeros & _is_wide(data, lengths)
    sheet.put(rows[wide], sheet.code_of(UTF_16, TEXT), LOW)
    rest = ~zeros & ~wide
    held = _only_pointers(words, data[rest], lengths[rest])
    sheet.put(rows[rest][held], sheet.code_of(ONLY_POINTERS, POINTERS), LOW)


# For each length in bytes a mask of what lies within it.
_WITHIN = np.where(np.arange(LOOKED_AT) < np.arange(LOOKED_AT + 1)[:, None], 0xFF, 0).astype(np.uint8).view(np.uint64)


def _first_bytes(words: Words, address: U64, lengths: I64) -> Tuple[Bytes, Mask]:
    """Return so many bytes at each address, one row of 64 each, zeros behind them, and which could be read.

    :param address: sorted.
    """
    data, there = words.bytes_at(address, LOOKED_AT)
    data.view(np.uint64)[:] &= _WITHIN[lengths]
    rest = np.flatnonzero(~there)  # a block's neighbours may not be there
    data[rest], there[rest] = _read_words(words, address[rest], lengths[rest])
    there &= lengths > 0
    return data, there


def _read_words(words: Words, address: U64, lengths: I64) -> Tuple[Bytes, Mask]:
    data = np.zeros((len(address), LOOKED_AT), np.uint8)
    there = lengths > 0
    for at in range(0, LOOKED_AT if len(address) else 0, 8):
        within = np.flatnonzero(there & (lengths >= at + 8))
        values, known = words.in_blocks(address[within] + np.uint64(at), 8)
        ordered = values.astype("<u8" if words.target.abi.byteorder == "little" else ">u8")
        data[within, at : at + 8] = ordered.view(np.uint8).reshape(len(values), 8)
        there[within[~known]] = False
        _last_bytes(words, address, np.flatnonzero(there & (lengths > at) & (lengths < at + 8)), (at, lengths), data)
    return data, there


def _last_bytes(words: Words, address: U64, within: I64, place: Tuple[int, I64], data: Bytes) -> None:
    at, lengths = place
    for step in range(7):
        within = within[lengths[within] > at + step]
        values, known = words.in_blocks(address[within] + np.uint64(at + step), 1)
        data[within[known], at + step] = values[known].astype(np.uint8)


def _put_text(words: Words, sheet: Sheet, rows: I64, lengths: I64, data: Bytes) -> I64:
    """Type rows that are text; return the positions of the others."""
    likely = np.flatnonzero(_begins_as_text(data))
    ends = _first_nul(data[likely])
    likely, ends = _without_addresses(words, data, likely, ends)
    good = _is_text(data[likely], ends)
    found, ends = likely[good], ends[good]
    clear = (ends < lengths[found]) & (ends >= _CLEAR_TEXT)
    sheet.put(rows[found[clear]], sheet.code_of(C_STRING, TEXT), MEDIUM)
    sheet.put(rows[found[~clear]], sheet.code_of(C_STRING, TEXT), LOW)
    others = np.ones(len(rows), np.bool_)
    others[found] = False
    left: I64 = np.flatnonzero(others)
    return left


def _without_addresses(words: Words, data: Bytes, rows: I64, ends: I64) -> Tuple[I64, I64]:
    """Leave out rows that begin with an address that looks like text: its letters end within the first word."""
    order = "<" if words.target.abi.byteorder == "little" else ">"
    first = np.ascontiguousarray(data[rows, : words.size]).view(f"{order}u{words.size}").ravel().astype(np.uint64)
    found: Mask = ends <= words.size
    found[found] = words.mapped(first[found])
    kept = (ends >= _LEAST_TEXT) & ~found
    return rows[kept], ends[kept]


_PRINTABLE = np.zeros(256, np.bool_)
_PRINTABLE[0x20:0x7F] = True
_PRINTABLE[[9, 10, 13]] = True
_MAY_BE_TEXT = _PRINTABLE | (np.arange(256) >= 0x80)


def _begins_as_text(data: Bytes) -> Mask:
    begun: Mask = _MAY_BE_TEXT[data[:, :_LEAST_TEXT]].all(axis=1) & ((data[:, 0] & 0xC0) != 0x80)
    return begun


def _first_nul(data: Bytes) -> I64:
    """Return for each row where its first NUL is: behind a block's end, at the latest, there are only such."""
    stops = data == 0
    ends: I64 = np.where(stops.any(axis=1), stops.argmax(axis=1), data.shape[1])
    return ends


def _is_text(data: Bytes, ends: I64) -> Mask:
    """Return which rows are text in UTF-8 before their ends."""
    before = np.arange(data.shape[1]) < ends[:, None]
    good = np.asarray((_PRINTABLE[data] | ~before).all(axis=1), np.bool_)
    high = np.flatnonzero(~good)
    good[high] = _is_utf8(data[high], before[high])
    return good


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
    sheet.put(_only_zeros(words, long), code, LOW)


def _only_zeros(words: Words, rows: I64) -> I64:
    """Return which blocks hold zeros wherever they are looked at; their first bytes are known to."""
    for at in range(LOOKED_AT, _WHOLE, LOOKED_AT):
        size = words.index.size[rows].astype(np.int64)
        longer = np.flatnonzero((size > at) & (size <= _WHOLE))
        lengths = np.minimum(size[longer] - at, LOOKED_AT)
        data, there = _first_bytes(words, words.index.address[rows[longer]] + np.uint64(at), lengths)
        kept = np.ones(len(rows), np.bool_)
        kept[longer] = there & ~data.view(np.uint64).any(axis=1)
        rows = rows[kept]
    return _sampled_zeros(words, rows)


def _sampled_zeros(words: Words, rows: I64) -> I64:
    """Return which blocks hold zeros in some words of them all over; small ones are known to."""
    kept = np.ones(len(rows), np.bool_)
    large = np.flatnonzero(words.index.size[rows] > np.uint64(_WHOLE))
    for part in slices(len(large), _SAMPLED_AT_ONCE):
        kept[large[part]] = _are_sampled_zeros(words, rows[large[part]])
    return rows[kept]


def _are_sampled_zeros(words: Words, rows: I64) -> Mask:
    last = words.index.size[rows] // np.uint64(8) - np.uint64(1)
    word = last[:, None] * np.arange(1, _SAMPLES, dtype=np.uint64) // np.uint64(_SAMPLES - 1)
    places = words.index.address[rows][:, None] + word * np.uint64(8)
    values, known = words.in_blocks(places.ravel(), 8)
    zeros: Mask = (known & (values == 0)).reshape(places.shape).all(axis=1)
    return zeros


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

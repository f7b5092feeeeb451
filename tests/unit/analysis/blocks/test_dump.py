"""The words of blocks and of plain memory, on bytes laid out by hand."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gdbext.abi import I386, X86_64, Abi
from gdbext.analysis.addresses import block_at
from gdbext.analysis.blocks import place
from gdbext.analysis.blocks.dump import Knowledge, block_window
from gdbext.analysis.blocks.livefacts import Live
from gdbext.analysis.pins.naming import Places
from gdbext.analysis.reach.mark import read_reach
from gdbext.analysis.reach.model import PLAIN, Reading
from gdbext.analysis.types.model import BlockTypes, TypeName
from gdbext.debuginfo import NoDebugInfo
from gdbext.heap.glibc.read.lists import links
from gdbext.heap.glibc.sizes import sizes_for
from gdbext.heap.model import Span, State
from gdbext.layout.declared import declare_types
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.process import Module, Thread
from gdbext.progress import SILENT
from gdbext.render import json_pieces, text
from gdbext.structures.shapes.shape import StructPart
from gdbext.target import Target
from tests.unit.analysis.heaps import heap_of

HEAP, STACK, CODE, DATA = 0x55550000, 0x7FFF0000, 0x400000, 0x500000
ITEM, TEXT, FREED, SECOND, FAST, BIN, PAIR, LOST = (HEAP + offset for offset in (
    0x10, 0x110, 0x210, 0x310, 0x410, 0x510, 0x610, 0x710
))  # fmt: skip
ROWS = [
    (ITEM, 128, State.IN_USE, 0),
    (TEXT, 48, State.IN_USE, 0),
    (FREED, 64, State.TCACHE, 0),
    (SECOND, 64, State.TCACHE, 0),
    (FAST, 32, State.FASTBIN, 0),
    (BIN, 32, State.SMALL, 0),
    (PAIR, 32, State.IN_USE, 0),
    (LOST, 32, State.IN_USE, 0),
]


def mangled(place_: int, value: int) -> int:
    """Return what glibc stores at a place as a link to an address: PROTECT_PTR of malloc/malloc.c."""
    return value ^ (place_ >> 12)


WORDS = {
    ITEM: [TEXT, TEXT + 8, ITEM + 0x20, FREED, STACK + 0x810, CODE + 0x10, DATA + 8, HEAP + 0x8, 0, 0, 0, 0, 0],
    ITEM + 0x68: [48, 2**64 - 2, int.from_bytes(b"GET /ind", "little")],
    TEXT: [int.from_bytes(b"abcd\0\0\0\0", "little"), 0xDEADBEEFDEADBEEF, 0xDEADBEEFDEADBEEF, 0, 0, 97],
    FREED: [mangled(FREED, SECOND), 0x123456789ABCDEF0],
    SECOND: [mangled(SECOND, 0)],
    FAST: [mangled(FAST, BIN - 16)],
    BIN: [FAST - 16, HEAP + 0x8],
    PAIR: [1, ITEM, 2, LOST],
}


def scene(abi: Abi = X86_64, missing: int = 0, contents=WORDS):
    """Return the heaps and a target: a heap, the stack of thread 3 that points at ITEM and PAIR, a module.

    :param missing: bytes at the end of the heap that are not in the core.
    """
    data = {HEAP: bytearray(0x1000), STACK: bytearray(0x1000), DATA: bytearray(0x100)}
    for start, values in contents.items():
        struct.pack_into(f"<{len(values)}{abi.word_format[-1]}", data[HEAP], start - HEAP, *values)
    struct.pack_into(f"<2{abi.word_format[-1]}", data[STACK], 0x810, ITEM, PAIR)
    del data[HEAP][0x1000 - missing :]
    regions = [
        Region(HEAP, HEAP + 0x1000 - missing, "rw-", "[heap]"),
        *([Region(HEAP + 0x1000 - missing, HEAP + 0x1000, "rw-", "[heap]", 0, "absent")] if missing else []),
        Region(STACK, STACK + 0x1000),
        Region(CODE, CODE + 0x1000, "r-x", "/bin/server", 0),
        Region(DATA, DATA + 0x100, "rw-", "/bin/server", 0x3000),
    ]
    target = Target(
        FakeMemory([(start, bytes(part)) for start, part in data.items()], regions),
        abi,
        modules=[Module("/bin/server", CODE, DATA + 0x100, None)],
        threads=[Thread(3, 30, None, STACK + 0x800, registers={"rax": 0})],
    )
    heap = heap_of(ROWS, spans=[Span(HEAP, HEAP + 0x1000, "brk", 0)])
    return [replace(heap, links=partial(links, heap.blocks, sizes_for(abi, 16)))], target


class Named(NoDebugInfo):
    """Names of roots: none; types: those given."""

    def __init__(self, types=None):
        self._types = types

    def find_type(self, name):
        return self._types.find_type(name) if self._types else None


def known_of(heaps, target, reading=PLAIN, types=None):
    reach = read_reach(target, heaps, reading, SILENT)
    names = [TypeName("unknown", "unknown"), TypeName("struct item", "debug info"), TypeName("struct pair", "vtable")]
    codes = {ITEM: 1, PAIR: 2}
    code = np.array([codes.get(address, 0) for address in reach.address.tolist()], np.uint32)
    found = BlockTypes(names, code, (3 * (code > 0)).astype(np.uint8))
    return Knowledge(Live(reach, found), Places(reach, Named(types), lambda: found))


def rows_at(address, words=0, known=True, **extra):
    heaps, target = scene(**extra)
    report = place.describe(heaps, target, address, words, known_of(heaps, target) if known else Knowledge())
    return [(row.at, row.value, row.what) for row in report.data.dump]


def what(address, **extra):
    return [what for _, _, what in rows_at(address, **extra)]


def test_every_kind_of_word():
    assert rows_at(ITEM) == [
        ("+0x0 *", TEXT, f"-> block {TEXT:#x} (48 bytes, reached)"),
        ("+0x8", TEXT + 8, f"-> block {TEXT:#x} +0x8 (48 bytes, reached)"),
        ("+0x10", ITEM + 0x20, "-> this block +0x20"),
        ("+0x18", FREED, f"-> tcache block {FREED:#x} (64 bytes)"),
        ("+0x20", STACK + 0x810, "-> stack of thread 3 +0x10 from the stack pointer"),
        ("+0x28", CODE + 0x10, "-> server+0x10"),
        ("+0x30", DATA + 8, f"-> data of server +{DATA + 8 - CODE:#x}"),
        ("+0x38", HEAP + 8, "-> glibc's own bytes of arena 0xa000"),
        ("+0x40", 0, "0 (5 words)"),
        ("+0x68", 48, "48"),
        ("+0x70", 2**64 - 2, "-2"),
        ("+0x78", WORDS[ITEM + 0x68][2], '"GET /ind"'),
    ]


def test_text_zeros_and_equal_words():
    assert rows_at(TEXT + 9) == [
        ("+0x0", WORDS[TEXT][0], '"abcd"'),
        ("+0x8 *", 0xDEADBEEFDEADBEEF, ""),
        ("+0x10", 0xDEADBEEFDEADBEEF, ""),
        ("+0x18", 0, "0"),
        ("+0x20", 0, "0"),
        ("+0x28", 97, "97"),
    ]


def test_types_of_what_is_pointed_at():
    assert what(PAIR)[1::2] == [f"-> block {ITEM:#x} (struct item, 128 bytes, reached)",
                                f"-> block {LOST:#x} (32 bytes, reached)"]  # fmt: skip


def test_without_reachability_pointers_are_still_named():
    assert what(ITEM, known=False)[:6] == [
        f"-> block {TEXT:#x} (48 bytes)",
        f"-> block {TEXT:#x} +0x8 (48 bytes)",
        "-> this block +0x20",
        f"-> tcache block {FREED:#x} (64 bytes)",
        "-> stack of thread 3",
        "-> server+0x10",
    ]


def test_links_of_free_lists_are_decoded():
    assert what(FREED)[:2] == [f"-> tcache block {SECOND:#x} (mangled)", ""]
    assert what(SECOND)[0] == "end of the list (mangled)"
    assert what(FAST)[0] == f"-> small block {BIN:#x} (its header, mangled)"
    assert what(BIN)[0] == f"-> fastbin block {FAST:#x} (its header)"


def test_words_of_free_blocks_may_be_any():
    contents = {FREED: [2**64 - 1, mangled(FREED + 8, 2**64 - 1), 2**64 - 16]}
    assert what(FREED, contents=contents)[::2] == ["-1", "-16"]


def test_links_are_decoded_by_the_allocator_that_has_them_there():
    heaps, target = scene()
    rows = place.describe([replace(heaps[0], links=None)], target, FREED, 8).data.dump
    assert not any("->" in row.what for row in rows)


def test_links_are_not_decoded_in_blocks_that_are_in_use():
    contents = {LOST: [mangled(LOST, SECOND), FAST - 16, LOST >> 12]}
    assert what(LOST, contents=contents)[:2] == ['"@VPU"', "-> glibc's own bytes of arena 0xa000"]
    assert what(LOST, contents=contents)[2] == str(LOST >> 12)


LIST = StructPart("list", ("u64 mark", "ptr to"))
MEMBERS = ("ptr text", "ptr inside", "struct list links[2]", "u32 flags", "u32 uses", "ptr rest", "u8 name[24]")
ITEM_TYPE = StructPart("item", MEMBERS)


def test_members_are_named_where_debug_info_knows_the_type():
    heaps, target = scene()
    types = declare_types((LIST, ITEM_TYPE, StructPart("pair", ("u64 number", "ptr to"))), X86_64)
    known = known_of(heaps, target, types=types)
    found = [row.member for row in place.describe(heaps, target, ITEM, 8, known).data.dump]
    assert found == ["text", "inside", "links[0].mark", "links[0].to", "links[1].mark", "links[1].to", "flags", "rest"]
    pairs = place.describe(heaps, target, PAIR, 8, known).data
    assert [row.member for row in pairs.dump] == ["number", "to", "[1].number", "[1].to"]
    assert (pairs.type, pairs.confidence) == ("struct pair", "high")
    shown = "".join(text(place.describe(heaps, target, ITEM, 8, known), exact=False, limit=None))
    assert "+0x10 0x55550030 links[0].mark -> this block +0x20" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 100
    untyped = place.describe(heaps, target, LOST, 8, known).data
    assert (untyped.type, {row.member for row in untyped.dump}) == ("unknown", {""})


def test_only_the_beginning_is_dumped_or_what_is_around_the_address():
    heap = heap_of([(0x1000, 800, State.IN_USE, 0)])
    target = Target(FakeMemory([], [Region(0x1000, 0x2000)]), X86_64)
    windows = [block_window(block_at(heap, 0, 0x1000 + offset), count, target) for offset, count in (
        (0, 32), (255, 32), (256, 32), (799, 32), (0, 0), (799, 0), (0, 1000), (8, 1),
    )]  # fmt: skip
    assert [(one.start - 0x1000, one.count) for one in windows] == [
        (0, 32), (0, 32), (128, 32), (664, 17), (0, 100), (0, 100), (0, 100), (8, 1)]  # fmt: skip
    assert block_window(block_at(heap_of([(0x1000, 5, State.IN_USE, 0)]), 0, 0x1004), 32, target).count == 0


def test_a_block_of_a_damaged_size_ends_where_nothing_is_mapped():
    regions = [Region(0x1000, 0x2000), Region(0x2000, 0x3000), Region(0x7FFF0000, 0x7FFF1000)]
    target = Target(FakeMemory([(0x1000, bytes(0x2000))], regions), X86_64)
    heap = heap_of([(0x1010, 2**62, State.IN_USE, 0)])
    assert block_window(block_at(heap, 0, 0x1010), 0, target).count == 0x1FF0 // 8
    report = place.describe([heap], target, 0x1010, 0)
    assert [(row.words, row.what) for row in report.data.dump] == [(0x1FF0 // 8, f"0 ({0x1FF0 // 8} words)")]
    assert block_window(block_at(heap, 0, 0x1010 + 2**61), 32, target).count == 0


def test_a_note_says_how_much_is_left_out():
    heaps, target = scene()
    notes = [place.describe(heaps, target, ITEM, words).notes for words in (None, 0, 4, 16, 32)]
    assert [list(each) for each in notes] == [
        [], [], ["4 of the block's 16 words are shown; --words 0 shows all"], [], []]  # fmt: skip


def test_words_that_are_not_in_the_core():
    found = rows_at(BIN, missing=0x1000 - 0x510, known=False)
    assert found == [("+0x0 *", None, "not in the core (4 words)")]


def test_words_that_cannot_be_read():
    heaps, target = scene()
    regions = [Region(HEAP, HEAP + 0x1000, "---", "[heap]")]
    broken = Target(FakeMemory([], regions), X86_64)
    page = place.describe(heaps, broken, BIN, 0)
    assert [(row.value, row.what) for row in page.data.dump] == [(None, "not readable (4 words)")]


def test_plain_memory_is_dumped_from_the_address_to_the_end_of_the_mapping():
    assert rows_at(STACK + 0x813, 2) == [
        ("+0x0 *", ITEM, f"-> block {ITEM:#x} (struct item, 128 bytes, reached)"),
        ("+0x8", PAIR, f"-> block {PAIR:#x} (struct pair, 32 bytes, reached)"),
    ]
    assert rows_at(STACK + 0xFF0) == [("+0x0 *", 0, "0"), ("+0x8", 0, "0")]
    heaps, target = scene()
    shown = "".join(text(place.describe(heaps, target, STACK + 0xFF8, 4), exact=False, limit=None))
    assert shown.splitlines()[:5] == [
        f"place: {STACK + 0xFF8:#x} is in no block: stack of thread 3 (0x7fff0000-0x7fff1000 rw-)",
        "",
        "Words:",
        "offset  value  what",
        "+0x0 *    0x0  0",
    ]


def test_memory_without_any_heap_is_dumped_too():
    _, target = scene()
    report = place.describe([], target, STACK + 0x810, 2)
    assert [row.value for row in report.data.dump] == [ITEM, PAIR]


def test_words_of_four_bytes():
    contents = {ITEM: [TEXT, int.from_bytes(b"text", "little"), 2**32 - 3, FREED + 4]}
    rows = rows_at(ITEM, 4, abi=I386, contents=contents)
    assert [(at, what) for at, _, what in rows] == [
        ("+0x0 *", f"-> block {TEXT:#x} (48 bytes, reached)"),
        ("+0x4", '"text"'),
        ("+0x8", "-3"),
        ("+0xc", f"-> tcache block {FREED:#x} +0x4 (64 bytes)"),
    ]


def test_tags_are_cleared():
    heaps, target = scene(contents={ITEM: [TEXT | 5]})
    dumped = [
        next(iter(place.describe(heaps, target, ITEM, 1, known_of(heaps, target, reading)).data.dump)).what
        for reading in (Reading(7), PLAIN)
    ]
    assert dumped == [
        f"-> block {TEXT:#x} (48 bytes, reached)",
        f"-> block {TEXT:#x} +0x5 (48 bytes, possibly leaked)",
    ]


def test_mangled_words_say_so_where_they_count():
    contents = {ITEM: [TEXT ^ ITEM >> 12, (TEXT + 8) ^ (ITEM + 8) >> 12, (ITEM + 16) >> 12, TEXT]}
    heaps, target = scene(contents=contents)
    page = place.describe(heaps, target, ITEM, 4, known_of(heaps, target, Reading(mangled=True))).data
    block = f"block {TEXT:#x}"
    assert [row.what for row in page.dump] == [
        f"-> {block} (48 bytes, reached), mangled",
        f"-> {block} +0x8 (48 bytes, reached), mangled",
        str((ITEM + 16) >> 12),
        f"-> {block} (48 bytes, reached)",
    ]
    known = known_of(heaps, target, Reading(mangled=True))
    assert [row.place[-9:] == ", mangled" for row in place.describe(heaps, target, TEXT, 4, known).data.references] == [
        True, True, False,
    ]  # fmt: skip


def test_equal_words_are_told_one_by_one_where_mangled_ones_count():
    contents = {ITEM: [7] * 6}
    heaps, target = scene(contents=contents)
    known = [known_of(heaps, target, reading) for reading in (PLAIN, Reading(mangled=True))]
    pages = [place.describe(heaps, target, ITEM, 6, one).data for one in known]
    assert [len(list(page.dump)) for page in pages] == [1, 6]


def test_what_is_known_of_a_live_block():
    heaps, target = scene()
    page = place.describe(heaps, target, ITEM, 0, known_of(heaps, target)).data
    assert (page.reach, page.type, page.confidence) == ("reached", "struct item", "high")
    assert (page.pointers, page.interior) == (2, 1)  # the stack and PAIR; ITEM itself
    assert sorted(row.address for row in page.references) == [ITEM + 0x10, PAIR + 8, STACK + 0x810]
    assert {row.address: row.into for row in page.references}[ITEM + 0x10] == 0x20


def test_what_is_not_known_is_null_and_not_in_the_text():
    heaps, target = scene()
    freed = place.describe(heaps, target, FREED, 0, known_of(heaps, target))
    data = json.loads("".join(json_pieces(freed, schema="x", target=None, limit=None)))["data"]
    assert [data[name] for name in ("reach", "type", "confidence", "pointers")] == [None, None, None, 1]
    plain = place.describe(heaps, target, ITEM, 4)
    data = json.loads("".join(json_pieces(plain, schema="x", target=None, limit=None)))["data"]
    assert [data[name] for name in ("reach", "type", "pointers", "interior", "references")] == [None] * 4 + [[]]
    assert data["dump"][1] == {
        "offset": 8, "words": 1, "value": hex(TEXT + 8), "block": hex(TEXT), "member": "",
        "what": f"-> block {TEXT:#x} +0x8 (48 bytes)",
    }  # fmt: skip
    shown = "".join(text(plain, exact=False, limit=None))
    assert "?" not in shown and "reach:" not in shown and "Pointers" not in shown


def test_a_leaked_block_says_so():
    heaps, target = scene(contents={})
    page = place.describe(heaps, target, LOST, 0, known_of(heaps, target)).data
    assert (page.reach, page.pointers, list(page.references)) == ("leaked", 0, [])


@pytest.mark.parametrize("word", [2**64 - 1, 2**63, 2**31, 2**31 - 1, 2**64 - 2**31])
def test_numbers_that_are_small_are_shown_in_tens(word):
    shown = what(LOST, contents={LOST: [word]})[0]
    assert shown == ({2**31 - 1: "2147483647", 2**64 - 1: "-1"}.get(word, ""))


def test_pointers_to_ends_of_blocks():
    contents = {**WORDS, PAIR: [TEXT, TEXT + 48, FREED + 64, PAIR + 32]}
    assert what(PAIR, contents=contents) == [
        f"-> block {TEXT:#x} (48 bytes, reached)", f"-> end of block {TEXT:#x}",
        "-> glibc's own bytes of arena 0xa000", f"-> end of block {PAIR:#x}",
    ]  # fmt: skip


@pytest.mark.parametrize("word", [2**64 - 1, 2**64 - 16, 2**63])
def test_a_word_near_the_last_address_is_no_link(word):
    heaps, target = scene(contents={FREED: [0, word], BIN: [word]})
    for block in (FREED, BIN):
        rows = place.describe(heaps, target, block, 0).data.dump
        assert "->" not in "".join(row.what for row in rows)

"""Heaps that are named and not read, laid out as their own sources have them; each has a twin that maps as much."""

import struct

import pytest

from gdbext.abi import X86_64
from gdbext.analysis.footprint import ledger
from gdbext.analysis.footprint.unattributed import find_unattributed
from gdbext.analysis.thresholds import thresholds
from gdbext.analysis.unread.table import OWNERS
from gdbext.memory import Region
from gdbext.process import Identity
from gdbext.target import Target

KB, MB = 1 << 10, 1 << 20
BASE, DATA = 0x7F0000000000, 0x500000000000
DESCRIPTORS = 0x10000


class Sparse:
    """Words by address, zeros elsewhere."""

    def __init__(self, regions, words):
        self._regions, self._bytes = regions, {}
        for address, word in words.items():
            for at, byte in enumerate(word if isinstance(word, bytes) else struct.pack("<Q", word)):
                self._bytes[address + at] = byte

    def regions(self):
        return self._regions

    def read(self, address, size):
        return bytes(self._bytes.get(at, 0) for at in range(address, address + size)) if size <= 4 * KB else b"x" * size


def owners(words, size, start=BASE, *regions):
    """Return the ledger's lines with their bytes, the residual and the account."""
    mapped = [Region(DATA, DATA + DESCRIPTORS, name="[heap]"), Region(start, start + size), *regions]
    target = Target(Sparse(sorted(mapped, key=lambda one: one.start), words), X86_64, Identity(exe="/bin/test"))
    account = ledger.take_account(target, [])
    assert account.ledger.residual == 0
    return {one.owner: one.bytes for one in account.ledger.entries}, target, account


def v8_page(at, size=256 * KB, heap=DATA):
    """A ``MemoryChunk`` of V8 11: size, flags, heap, area's start and end, …, its reservation."""
    head = (size, 0x12, heap, at + 0x1148, at + size, 0x3EEB8, 0, 0, 0, 0, at, size)
    return {at + 8 * number: word for number, word in enumerate(head)}


def php_chunks(starts):
    """A ring of ``zend_mm_chunk``, whose first has the ``zend_mm_heap``: …, huge_list, main_chunk, cached_chunks."""
    words = {starts[0] + 0x40 + 312: starts[0]}
    for number, at in enumerate(starts):
        words[at] = starts[0] + 0x40
        words[at + 8] = starts[(number + 1) % len(starts)]
        words[at + 16] = starts[number - 1]
    return words


def ruby_pages(starts):
    """Heap pages, each with a ``heap_page`` that has the first slot's address; in that slot an object of a class."""
    words = {}
    for number, at in enumerate(starts):
        page = DATA + 128 * number
        words.update({at: page, page + 24: at + 16, at + 16: 0x5, at + 24: starts[0] + 16})
    return words


def innodb_pages(starts):
    """Pages of 16 KiB of a table space, with an LSN at both ends."""
    words = {}
    for number, at in enumerate(starts):
        lsn = struct.pack(">Q", 1000 + number)
        words.update({at + 16: lsn, at + 24: struct.pack(">H", 17855), at + 16 * KB - 4: lsn[4:]})
    return words


def innodb_pool_of_few(starts):
    """Two pages in nine are used, most of them not on disk yet: what says so is their infimum record."""
    used = [at for number, at in enumerate(starts) if number % 9 < 2]
    return {
        key: value
        for at in used
        for key, value in {at + 16: struct.pack(">QH", at, 17855), at + 96: b"\2\0\x1einfimum\0"}.items()
    }


def row(count, step, start=BASE):
    return [start + step * number for number in range(count)]


CASES = {
    "V8 heap": (2 * MB, {k: v for at in row(8, 256 * KB) for k, v in v8_page(at).items()}),
    "PHP heap": (4 * MB, php_chunks(row(2, 2 * MB))),
    "Ruby heap pages": (2 * MB, ruby_pages(row(32, 64 * KB))),
    "InnoDB buffer pool": (4 * MB, innodb_pages(row(256, 16 * KB))),
}
FEW_USED = 16 * MB, innodb_pool_of_few(row(1024, 16 * KB))


@pytest.mark.parametrize("owner", CASES)
def test_named_by_structure(owner):
    size, words = CASES[owner]
    lines, target, account = owners(words, size)
    assert lines[owner] == size and ledger.ANONYMOUS not in {key for key, value in lines.items() if value > DESCRIPTORS}
    (part,) = account.named
    assert part.evidence.subject == owner and part.owner.further in account.notes[0]
    assert ledger.memory_of(owner) is ledger.Memory.ANONYMOUS


def test_a_pool_of_which_little_is_used():
    size, words = FEW_USED
    assert owners(words, size)[0]["InnoDB buffer pool"] == size
    others = {key + 8: value for key, value in words.items()}
    assert owners(others, size)[0][ledger.ANONYMOUS] == size + DESCRIPTORS


@pytest.mark.parametrize("owner", CASES)
def test_the_same_sizes_without_its_structure_have_no_name(owner):
    size, words = CASES[owner]
    for twin in ({}, dict.fromkeys(words, BASE), {key: key for key in words if key % 8 == 0}):
        lines, _, account = owners(twin, size)
        assert lines[ledger.ANONYMOUS] == size + DESCRIPTORS and not account.named


def test_large_blocks_of_php_are_its_own():
    huge = BASE + 4 * MB
    words = php_chunks([BASE])
    words.update({BASE + 0x40 + 304: BASE + 0x2000, BASE + 0x2000: huge, BASE + 0x2008: 3 * MB})
    lines, _, _ = owners(words, 8 * MB)
    assert lines["PHP heap"] == 5 * MB and lines[ledger.ANONYMOUS] == 3 * MB + DESCRIPTORS


def test_a_page_of_another_size_ends_where_it_says():
    words = {k: v for at in row(4, MB) for k, v in v8_page(at, 768 * KB).items()}
    lines, _, _ = owners(words, 4 * MB)
    assert lines["V8 heap"] == 4 * 768 * KB and lines[ledger.ANONYMOUS] == MB + DESCRIPTORS


def test_names_of_mappings():
    named = [
        Region(BASE + 8 * MB, BASE + 10 * MB, name="[anon: Go: heap]"),
        Region(BASE + 12 * MB, BASE + 13 * MB, name="anon_inode:[io_uring]"),
        Region(BASE + 14 * MB, BASE + 15 * MB, name="/dev/nvidia0"),
        Region(BASE + 16 * MB, BASE + 17 * MB, name="[anon:partition_alloc]"),
        Region(BASE + 18 * MB, BASE + 20 * MB, name="[anon:tcmalloc_region_NORMAL]"),
        Region(BASE + 22 * MB, BASE + 23 * MB, name="[anon:tcmalloc_region_METADATA]"),
    ]
    lines, _, _ = owners({}, 64 * KB, BASE, *named)
    assert lines["Go heap"] == lines["TCMalloc heap"] == 2 * MB
    assert lines["TCMalloc metadata"] == lines["io_uring rings"] == lines["devices"] == lines["PartitionAlloc"] == MB


def test_shared_memory_of_postgresql():
    shared = Region(BASE + 8 * MB, BASE + 11 * MB, name="/dev/zero (deleted)")
    header = {shared.start: 679834894 | 77 << 32, shared.start + 8: 3 * MB - 100}
    lines, _, account = owners(header, 64 * KB, BASE, shared)
    assert lines["PostgreSQL shared memory"] == 3 * MB and account.named[0].blocks
    assert owners({}, 64 * KB, BASE, shared)[0]["/dev/zero (deleted)"] == 3 * MB


def test_what_is_named_and_not_read_is_not_examined():
    size, words = 32 * MB, php_chunks(row(16, 2 * MB))
    _, target, account = owners({**dict.fromkeys(row(8192, 4 * KB), 1), **words}, size)
    beyond = find_unattributed(target, [], account, thresholds({}, target))
    assert [one.problem.kind for one in beyond.unexamined] == ["unread-heap"] and not beyond.complete
    assert str(beyond.unexamined[0]).startswith("32 MiB of PHP (its inside is not read: memory_get_usage()")


def test_sanitizers_need_their_library_and_not_only_their_addresses():
    lines, _, account = owners({}, 4 * MB, 0x602000000000)
    assert lines[ledger.ANONYMOUS] == 4 * MB + DESCRIPTORS and not account.named


def test_each_owner_says_what_goes_on():
    assert all(one.further.endswith("on from there") or "knows each block" in one.further for one in OWNERS)
    assert all(ledger.memory_of(f"{one.name} heap") is ledger.Memory.ANONYMOUS for one in OWNERS)

import json
from dataclasses import replace

import pytest

from gdbext.abi import X86_64
from gdbext.analysis.footprint.ledger import ANONYMOUS, Entry, Ledger, ledger, memory_of, rss
from gdbext.analysis.footprint.owners import besides, owner_rows
from gdbext.memory import Region
from gdbext.memory.fake import FakeMemory
from gdbext.render import json_pieces, text
from gdbext.report import Bar, Memory
from gdbext.target import Target

MB = 1 << 20
BAR = Bar(None)

OWNERS = {
    "glibc in use": 260, "glibc bins": 20, "glibc top": 10, "glibc heap slack": 1, "glibc chunk overhead": 3,
    "thread stacks": 7, "main thread stack": 1, "/usr/lib/libbig.so": 40, "/usr/lib/libsmall.so": 1,
    "/usr/lib/libsmall.so (bss)": 1, "[vdso]": 1, ANONYMOUS: 15,
}  # fmt: skip


def account(live, owners=OWNERS, **more):
    made = []
    for owner, size in owners.items():
        resident, in_core = (size * MB, None) if live else (None, size * MB)
        made.append(Entry(owner, resident, in_core, BAR, None, 2 * size * MB, 0))
    made.append(Entry("reserved, no access", 0, None, BAR, None, 2560 * MB, None))
    return Ledger(made, sum(entry.bytes for entry in made), 0, **more)


def shown(rows):
    return [(row.owner, row.bytes // MB) for row in rows]


@pytest.mark.parametrize("live", [True, False])
def test_the_ledger_on_a_few_lines(live):
    more = {"resident": 360 * MB, "rss": 361 * MB} if live else {}
    rows = owner_rows(account(live, **more), ["glibc"], {"glibc in use": "233 MiB of it leaked"})
    assert shown(rows) == [
        ("glibc in use", 260), ("/usr/lib/libbig.so", 40), ("glibc free", 31), (ANONYMOUS, 15), ("thread stacks", 8),
        ("glibc overhead", 3), ("files and rest", 3), ("", 360),
    ]  # fmt: skip
    assert rows[0].remark == "233 MiB of it leaked" and rows[1].remark == ""
    assert [row.bar.memory for row in rows[:6]] == [
        Memory.USED, Memory.FILE, Memory.FREE, Memory.ANONYMOUS, Memory.STACK, Memory.OVERHEAD,
    ]  # fmt: skip
    assert sum(row.share for row in rows[:-1]) == pytest.approx(1)
    kernel = " · the kernel's RSS 361 MiB" if more else ""
    rest = "not resident" if more else "never written, or in files"
    assert besides(account(live, **more)) == [f"reserved, not used 2.5 GiB · {rest} 360 MiB{kernel}"]


def test_what_is_small_goes_with_the_files():
    owners = {"glibc in use": 1000, "memory of nobody": 1, "thread stacks": 1}
    assert shown(owner_rows(account(False, owners), ["glibc"], {})) == [
        ("glibc in use", 1000), ("files and rest", 2), ("", 1002),
    ]  # fmt: skip


def test_two_heaps_of_one_family_stay_apart():
    owners = {"jemalloc 5.1.0 in use": 10, "jemalloc libtwo.so.2 dirty": 5, "jemalloc libtwo.so.2 retained": 7}
    made = account(False, owners)
    assert shown(owner_rows(made, ["jemalloc 5.1.0", "jemalloc libtwo.so.2"], {})) == [
        ("jemalloc 5.1.0 in use", 10), ("jemalloc libtwo.so.2 free", 5), ("", 15),
    ]  # fmt: skip


def test_nothing_at_all_and_nothing_known():
    assert shown(owner_rows(Ledger([], 0, 0), [], {})) == [("", 0)]
    entry = Entry("/bin/x", None, None, BAR, None, 3 * MB, None)
    (file, _) = owner_rows(Ledger([entry], 3 * MB, 0), [], {})
    assert (file.owner, file.share, besides(Ledger([entry], 3 * MB, 0))) == ("/bin/x", 1.0, [])


@pytest.mark.parametrize(
    "owner, memory",
    [
        ("/x in use", Memory.FILE),
        ("x (bss)", Memory.FILE),
        ("anon_inode:[io_uring]", Memory.FILE),
        ("jemalloc in use", Memory.USED),
        ("jemalloc retained", Memory.RESERVED),
        ("glibc arena structures", Memory.OVERHEAD),
        ("thread stack guards", Memory.RESERVED),
    ],
)
def test_kinds_of_memory(owner, memory):
    assert memory_of(owner) is memory


class Sparse(FakeMemory):
    """Memory of a core that has a hole from 0x3000 on."""

    def for_each_written(self, start, end):
        if start < min(end, 0x3000):
            yield start, min(end, 0x3000)


def test_holes_of_a_core_cost_nothing_and_zeros_that_were_written_do():
    regions = [Region(0x1000, 0x6000), Region(0x7000, 0x8000, source="file")]
    data = bytes(0xFFF) + b"x" + bytes(0x4000)
    target = Target(Sparse([(0x1000, data), (0x7000, b"y" * 0x1000)], regions), X86_64)
    (entry,) = ledger(target, [])[0].entries
    assert (entry.bytes, entry.in_core, entry.share) == (0x6000, 0x2000, 1.0)
    (live,) = ledger(replace(target, live=True), [])[0].entries
    assert (live.bytes, live.in_core) == (0x6000, None)


def test_text_and_json_have_one_number():
    target = Target(FakeMemory([(0x1000, b"x" * 0x1000 + bytes(0x3000))], [Region(0x1000, 0x5000)]), X86_64)
    report = rss(target, [])
    (entry,) = json.loads("".join(json_pieces(report, schema="x", target=None, limit=None)))["data"]["entries"]
    shown = "".join(text(report, exact=True, limit=None)).split("\n")
    (line,) = (line for line in shown if line.startswith("anonymous rest"))
    assert entry["in_core"] == 0x4000 and line.split()[2] == "16384" and entry["bytes"] == 0x4000

"""What of frames, programs and findings makes a signature, and what does not."""

from __future__ import annotations

import pytest

from gdbext.analysis.crash.death import Death
from gdbext.analysis.leaks.tables import TypeRow
from gdbext.fleet.causes import Known, find_causes, function_name, program_name
from gdbext.process import Identity
from gdbext.report import Confidence, Finding, Severity


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ("main.c:212 flush_batch", "flush_batch"),
        ("flush_batch", "flush_batch"),
        ("flush_batch.part.0", "flush_batch"),
        ("a.c:1 flush_batch.constprop.0.isra.3", "flush_batch"),
        ("x.cc:9 net::Queue<std::pair<int, char> >::push(net::Item const&)", "net::Queue::push"),
        ("x.cc:9 operator<<(std::ostream&, Item)", "operator<<"),
        ("x.cc:9 Item::operator()(int)", "Item::operator()"),
        ("lib.rs:4 server::work::h0123456789abcdef", "server::work"),
        ("../sysdeps/x86_64/multiarch/memmove.S:317 __memmove_avx_unaligned_erms", "memmove"),
        ("__GI___libc_free", "libc_free"),
        ("libz.so.1+0x51c", "libz"),
        ("0x7f0012345678", ""),
    ],
)
def test_functions(frame, name):
    assert function_name(frame) == name


@pytest.mark.parametrize(
    ("path", "name"),
    [("/usr/bin/python3.11", "python"), ("/opt/gcc-12", "gcc"), ("/usr/sbin/unbound", "unbound"), ("/bin/x264", "x264"),
     ("/opt/server-1.19.2", "server"), (None, "?")],
)  # fmt: skip
def test_programs(path, name):
    assert program_name(path) == name


def death(*frames, signal="SIGSEGV", message=None):
    return Death(signal, 1, None, 0x18, "null pointer", message, None, frames)


def causes(died=None, findings=(), exe="/usr/bin/server", build_id="ab", **known):
    return list(find_causes(Identity(exe=exe, build_id=build_id), died, findings, Known(**known)))


def signature(*arguments, **more):
    (row,) = causes(*arguments, **more)
    return row.signature


def finding(kind, **details):
    return Finding(kind, Severity.WARNING, Confidence.HIGH, "summary with 12 numbers", bytes=5, details=details)


def test_a_crash_is_known_by_its_functions_wherever_they_are():
    one = signature(death("a.c:1 parse", "a.c:9 handle", "main"))
    assert one == signature(death("b.c:77 parse.isra.0", "handle", "main", "__libc_start_main"), build_id="cd")
    assert one == signature(death("a.c:1 parse", "a.c:9 handle", "main"), exe="/opt/server-2.1")
    others = [
        signature(death("a.c:1 find", "a.c:9 handle", "main")),
        signature(death("a.c:1 parse", "a.c:9 reload", "main")),
        signature(death("a.c:1 parse", "a.c:9 handle", "main", signal="SIGBUS")),
        signature(death("a.c:1 parse", "a.c:9 handle", "main"), exe="/usr/bin/client"),
    ]
    assert len({one, *others}) == 5


def test_without_names_it_is_of_one_build_and_no_address_counts():
    one = signature(death("server+0x1234", message="free(): bad 0x1234"))
    assert one == signature(death("server+0x1234", message="free(): bad 0x99"))
    assert one != signature(death("server+0x1234", message="free(): bad 0x99"), build_id="cd")
    assert one != signature(death("server+0x1238", message="free(): bad 0x99"))
    assert signature(death("0x7f0000001000")) == signature(death("0x7f1111111000"))


def test_a_leak_is_known_by_the_types_that_keep_most():
    def rows(*types):
        return [TypeRow(name, by, 1, kept, 1, kept) for name, by, kept in types]

    found = [finding("leak", groups=[])]
    one = causes(None, found, leaked=rows(("struct request", "debug info", 90), ("zeros", "zeros", 50)))
    same = causes(None, found, leaked=rows(("like struct request", "similarity", 900), ("struct x", "vtable", 20)))
    assert [row.signature for row in one] == [row.signature for row in same]
    two = causes(None, found, leaked=rows(("struct request[]", "debug info", 50), ("Session", "vtable", 60)))
    assert [row.cause for row in two] == ["leak of Session", "leak of struct request"]
    assert two[1].signature == one[0].signature
    (unknown,) = causes(None, found, leaked=rows(("unknown", "unknown", 50)))
    assert unknown.cause == "leak of blocks of unknown types" and unknown.bytes == 5
    assert unknown.signature == causes(None, found)[0].signature


def test_a_deadlock_has_no_beginning():
    locks = [{"address": "0x1", "name": name, "primitive": "mutex"} for name in ("accounts", "journal")]
    functions = {3: "transfer", 7: "audit"}
    one = signature(None, [finding("deadlock", threads=[3, 7], locks=locks)], waiting=functions.get)
    other = {12: "audit", 2: "transfer"}
    assert one == signature(None, [finding("deadlock", threads=[12, 2], locks=locks[::-1])], waiting=other.get)
    assert one != signature(None, [finding("deadlock", threads=[12, 2], locks=locks[:1])], waiting=other.get)
    inside = [{"address": "0x1", "name": "block 0x55550010 of arena 3", "primitive": "mutex"}]
    elsewhere = [{"address": "0x2", "name": "block 0x66660010 of arena 1", "primitive": "mutex"}]
    found = [signature(None, [finding("deadlock", threads=[3, 7], locks=each)]) for each in (inside, elsewhere)]
    assert found[0] == found[1] != one


def test_tables_and_allocators():
    assert signature(None, [finding("hot-bin", table="cache->array[3]")]) == signature(
        None, [finding("hot-bin", table="cache->array[0]")]
    )
    damage = [finding("corruption", allocator=f"jemalloc {name}", count=1, places=[{"kind": "chunk-size"}] * 2)
              for name in ("je_", "other_")]  # fmt: skip
    assert len({signature(None, [one]) for one in damage}) == 1


def test_all_causes_have_a_rank_and_the_crash_is_first():
    rows = causes(death("parse"), [finding("hot-bin", table="cache"), finding("slab-skew", table="cache")])
    assert [(row.rank, row.kind, row.finding) for row in rows] == [
        (0, "crash", None), (1, "hot-bin", 0), (2, "slab-skew", 1)
    ]  # fmt: skip

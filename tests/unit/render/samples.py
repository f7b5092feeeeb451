"""Reports as analyses make them, small enough for goldens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator

from gdbext.report import (
    Bar,
    Confidence,
    Evidence,
    Finding,
    Kind,
    Memory,
    Problem,
    Report,
    Rows,
    Severity,
    ThreadRef,
    column,
    headline,
    line,
    passage,
    table,
)

MIB = 1 << 20


@dataclass(frozen=True)
class ArenaRow:
    address: int = column("address", Kind.ADDRESS)
    kind: str = column("kind")
    system_mem: Any = column("system mem", Kind.BYTES)
    share: Any = column("in-use share", Kind.SHARE)
    threads: Any = column("threads", Kind.THREADS)
    in_flux: Any = column("in flux", Kind.FLAG)
    walked_bytes: int = column(None, Kind.BYTES, default=7)
    secret: int = column("text only", Kind.COUNT, json=False, default=1)


@dataclass(frozen=True)
class Mmapped:
    blocks: int = column("blocks", Kind.COUNT)
    bytes: int = column("bytes", Kind.BYTES)


@dataclass(frozen=True)
class Arenas:
    arenas: Any = table("Arenas")
    mmapped: Any = line("mmapped", Kind.OBJECT)
    total: Any = line("system mem", Kind.BYTES)
    hidden: int = line(None, Kind.COUNT, default=3)


@dataclass(frozen=True)
class EqualArenas:
    arenas: Any = table("Arenas", equal_but=("address", "threads"))


@dataclass(frozen=True)
class Chunk:
    address: int = column("address", Kind.ADDRESS)
    size: int = column("size", Kind.BYTES)
    state: str = column("state")


@dataclass(frozen=True)
class Chunks:
    chunks: Any = table("Chunks")
    count: int = line("chunks", Kind.COUNT)


@dataclass(frozen=True)
class Entry:
    owner: str = column("memory")
    bytes: int = column("in core", Kind.BYTES)
    bar: Any = column("share", Kind.BAR, json=False)
    share: Any = column("", Kind.SHARE, json=False)
    remark: str = column("", default="")


@dataclass(frozen=True)
class Ledger:
    entries: Any = table("Entries")
    total: int = line("total", Kind.BYTES)


@dataclass(frozen=True)
class Triage:
    findings: Any = table("Findings")
    ledger: Any = line("Ledger", Kind.OBJECT)


@dataclass(frozen=True)
class Page:
    target: str = headline()
    verdict: str = headline()
    died: Any = passage("died")
    findings: Any = table("")
    memory: Any = table("")


WORKERS = tuple(ThreadRef(number, 1000 + number, f"worker-{number}") for number in range(1, 9))


def arenas() -> Report:
    rows = (
        ArenaRow(0x7F0000000020, "main", 132 * MIB, 0.123, WORKERS[:1], False),
        ArenaRow(0x7F0004000020, "thread", None, None, None, None),
        ArenaRow(0x7F0008000020, "thread", 1000, 1.0, WORKERS, True),
        ArenaRow(0x7F000C000020, "thread", 5 << 30, 0.0, (ThreadRef(None, 77, None),), False),
    )
    return Report(
        Arenas(rows, Mmapped(3, 123456789), 10**9),
        [Evidence("libc", "debug info of build-id 0123, ring of 4 arenas closes")],
        [Problem("absent-memory", 0x7F0004000000, "132 KiB of the heap are not in the core")],
        complete=False,
        notes=["1 arena in flux: its figures may be off by one chunk."],
    )


def chunk_rows(number: int) -> Rows:
    def make() -> Iterator[Chunk]:
        return (Chunk(0x555500000010 + at * 32, at % 5000, "in use") for at in range(number))

    return Rows(make, Chunk, number)


def chunks(number: int) -> Report:
    return Report(Chunks(chunk_rows(number), number))


def triage() -> Report:
    fragmentation = Finding(
        "fragmentation",
        Severity.WARNING,
        Confidence.HIGH,
        "93.2 MiB of free memory lie under live chunks in 3 arenas, so that malloc_trim(0) returns only "
        "1.1 MiB of them, as the two-wave pattern of incident 2 does.",
        bytes=93 * MIB + 200000,
        evidence=(
            "arena 0x7f0000000020: top pinned by 48 bytes at 0x7f0003ffe010",
            "size class 112: 80% free",
        ),
        remedy="set MALLOC_ARENA_MAX=2, or glibc.malloc.arena_max in GLIBC_TUNABLES, before the start",
    )
    convoy = Finding("convoy", Severity.INFO, Confidence.LOW, "All wait.", waiters=1)
    return Report(Triage((fragmentation, convoy), Ledger(entries(), 108 * MIB)), findings=True)


def entries() -> tuple[Entry, ...]:
    rows = (
        ("glibc in use", 261, Memory.USED, "233 MiB of it leaked"),
        ("glibc free", 31, Memory.FREE, ""),
        ("thread stacks", 8, Memory.STACK, ""),
        ("/usr/lib/x86_64-linux-gnu/libvery-long-name-of-a-library.so.6", 5, Memory.FILE, "mapped"),
    )
    return tuple(Entry(name, size * MIB, Bar(size / 305, kind), size / 305, said) for name, size, kind, said in rows)


def page() -> Report:
    data = Page(
        "collector · pid 2914 · 12 threads · core.2914, 2026-11-22 14:51 UTC · glibc, 12 arenas",
        "2 findings.",
        ('SIGABRT in thread 1: "munmap_chunk(): invalid pointer"', "main.c:212 flush_batch ← main.c:340 worker"),
        (*triage().data.findings,),
        entries(),
    )
    held = [Evidence("libc", "debug info of build-id 0123"), Evidence("mp_", "at 0x7f0000000340, 16 votes")]
    absent = Problem("absent-memory", 0x7F0004000000, "132 KiB of the heap are not in the core")
    return Report(data, held, [absent], complete=False, findings=True, next=("glibc trim", "blocks summary"))


def workers(number: int) -> Report:
    rows = [ArenaRow(0x1000 * at, "thread", MIB + at, 0.5, WORKERS[at % 8 : at % 8 + 1], False) for at in range(number)]
    return Report(EqualArenas([ArenaRow(0x77, "main", MIB, 0.5, (), False), *rows]))


def many_problems() -> Report:
    alike = [Problem("chunk-size", 0x1000 * at, f"size {at} is not aligned") for at in range(1, 41)]
    return Report(None, problems=[*alike, Problem("interrupted", None, "stopped by Ctrl-C")])

"""Every command that takes a core, on cores that are large each in its own way, beside what else does such work.

A command that has no answer on a subject, and a program that is not on PATH, has none here either.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable, Iterator, Mapping, Sequence

import cores
from measuring import FLOOR, GDB, OUR_START, START, Job, Row, ours

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Peer:
    """Another program that does what a command does.

    :param job: what is run; its name stands in the table.
    """

    command: str
    job: Job

    @property
    def known(self) -> bool:
        """Whether the program is there."""
        return shutil.which(self.job.program[0]) is not None


def chap(command: str, asked: str) -> Peer:
    """Return chap's answer to a question of its own."""
    return Peer(command, Job(f"chap {asked}", program=("chap", "{core}"), input=f"{asked}\n"))


def pwndbg(command: str, asked: str) -> Peer:
    """Return pwndbg's answer to one of its commands."""
    line = ("pwndbg", "-nx", "-batch", "{program}", "{core}", "-ex", asked)
    return Peer(command, Job(f"pwndbg {asked}", program=line))


def value_walk(command: str, script: str) -> Peer:
    """Return a walk with gdb.Value, as scripts in gdb usually do it."""
    return Peer(command, Job("gdb.Value walk", program=(*GDB, "{program}", "{core}", "-ex", f"source {HERE / script}")))


def valgrind(*arguments: str) -> Peer:
    """Return valgrind's own leak check, which runs the program itself."""
    line = ("valgrind", "-q", "--leak-check=summary", "{program}", *arguments)
    return Peer("blocks leaks", Job("valgrind", program=line))


OF_GLIBC = (
    chap("blocks summary", "count used"),
    chap("blocks leaks", "count leaked"),
    pwndbg("glibc arenas", "arenas"),
    pwndbg("glibc bins", "bins"),
    pwndbg("glibc tcache", "tcachebins"),
)


@dataclass(frozen=True)
class Subject:
    """One core.

    :param given: what commands take besides options, by what the catalogue calls it.
    """

    title: str
    make: Callable[[Path], "tuple[Path, Path]"]
    given: Mapping[str, str] = field(default_factory=dict)
    peers: Sequence[Peer] = OF_GLIBC


def subjects(options: argparse.Namespace) -> "dict[str, Subject]":
    """Return all subjects, in the sizes that the options say."""
    nodes, small, objects = options.chained, options.small, options.objects
    chained = {
        "ADDRESS": "table.bins",
        "EXPR": "--bins 'table.mask + 1' --next next --hash hash table.bins",
        "HEAD NEXT": "--max 10000 table.bins[42] next",  # gdb takes its time for each element that is printed
        "TYPE": "struct entry",
    }
    fine = {**chained, "EXPR": "--bins table.size --next next table.bins", "TYPE": "struct node"}
    walk = value_walk("glibc chunks", "value_walk.py")
    return {
        "blocks": Subject(
            f"{nodes * 6 // 5} blocks", lambda folder: cores.chained(folder, nodes), chained,
            peers=(*OF_GLIBC, walk, valgrind(str(nodes))),
        ),
        "small-blocks": Subject(
            f"{small} small blocks", lambda folder: cores.small(folder, small), fine,
            peers=(*OF_GLIBC, walk, valgrind(str(small))),
        ),
        "many-arenas": Subject(
            f"{options.arenas + 1} arenas",
            lambda folder: cores.threads(folder, options.arenas, options.arenas + 1, 1024, ended=True),
            {"ADDRESS": "&main_arena"},
        ),
        "mappings": Subject(
            f"{2 * options.mapped} mappings", lambda folder: cores.mappings(folder, options.mapped),
            {"ADDRESS": "block[0]"},
        ),
        "threads": Subject(
            f"{options.threads} threads", lambda folder: cores.threads(folder, options.threads), {"ADDRESS": "$sp"}
        ),
        "jemalloc": Subject(
            f"{objects} objects of jemalloc", lambda folder: cores.jemalloc(folder, objects), {"ADDRESS": "$sp"},
            (value_walk("jemalloc bins", "jemalloc_bins.py"),),
        ),
    }  # fmt: skip


def commands(subject: Subject) -> "Iterator[tuple[str, str]]":
    """Iterate over name and line of each command that takes a core, and what else the subject has for it."""
    sys.path.insert(0, str(HERE.parent))
    from gdbext.grammar.catalogue import COMMANDS

    for spec in COMMANDS:
        wanted = spec.words or ("" if (spec.expression or "[").startswith("[") else spec.expression or "")
        if spec.target == "needed" and not spec.raw and (not wanted or wanted in subject.given):
            yield spec.name, f"gx {spec.name} {subject.given.get(wanted, '')}"


def jobs_of(subject: Subject, limit: float) -> Sequence[Job]:
    """Return the jobs of a subject; the first is what all others are held against.

    :param limit: seconds after which a peer is ended.
    """
    own = [replace(ours(name, line), optional=True) for name, line in commands(subject)]
    peers = [replace(peer.job, limit=limit) for peer in subject.peers if peer.known]
    return [FLOOR, START, OUR_START, *own, *peers]


def print_rows(rows: Sequence[Row], subject: Subject) -> None:
    """Print a subject's part of the table: CPU time over the floor's, and how many times longer each peer takes."""
    by_name = {row.name: row for row in rows}
    names = [FLOOR.name, *(name for name, _ in commands(subject))]
    print(f"{'command':20} {'wall s':>8} {'CPU s':>8} {'MB anon':>8} {'floors':>7}  times faster than")
    for row in map(by_name.__getitem__, names):
        if row.status:
            print(f"{row.name:20} {'-':>8} {'-':>8} {'-':>8} {'-':>7}  -")
            continue
        peers = [peer.job.name for peer in subject.peers if peer.command == row.name and peer.job.name in by_name]
        held = ", ".join(filter(None, (against(by_name[name], row) for name in peers))) or "-"
        floors = row.cpu / max(by_name[FLOOR.name].cpu, 0.001)
        print(f"{row.name:20} {row.wall:8.2f} {row.cpu:8.2f} {row.anonymous:8.0f} {floors:7.1f}  {held}")
    print(flush=True)


def against(peer: Row, row: Row) -> str:
    """Return how many times longer a peer takes; nothing where it failed. The test programs end by SIGABRT."""
    ended = peer.status == -signal.SIGTERM
    if peer.status not in (0, -signal.SIGABRT) and not ended:
        return ""
    return f"{'over ' if ended else ''}{peer.wall / row.wall:.1f} {peer.name}"

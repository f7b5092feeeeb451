"""What valgrind says of the same programs, block by block, held to the same truth as ``blocks leaks`` is.

valgrind's gdbserver is asked while the program is parked, so both look at the same moment. Where its model differs the
difference is named here, and explained in docs/leaks.md.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from types import MappingProxyType

import pytest

from tests.support import gdbrun, leakscxx, programs
from tests.support.boards import Board
from tests.support.glibcs import Unavailable, glibc
from tests.support.truth import address, read_truth

KINDS = {"definitely": "definite", "indirectly": "indirect", "possibly": "possible", "still": "reachable"}
ROLES = {"leak root": "definite", "indirect": "indirect", "cycle": "indirect"}
REACHED = ("reachable", 0)  # many reachable blocks of one size and stack are summed up
START = 60.0
HEADER = re.compile(r"^==\d+== .* blocks are (\w+) (?:lost|reachable) in loss record")
RECORDS = re.compile(r"in loss record \d+ of (\d+)$", re.M)
BLOCK = re.compile(r"^==\d+== (0x[0-9A-F]+)\[(\d+)\](?: \(found via heuristic \w+\))?$")
SUMMARY = re.compile(r"(definitely|indirectly|possibly) lost: ([\d,]+) bytes in ([\d,]+) blocks")

# What valgrind says otherwise, by name, and what it says. See docs/leaks.md, "What valgrind says".
DIFFERENT = {"read-only page": "definite"}  # it scans what the program may write


def require():
    for program in ("valgrind", "vgdb"):
        if not shutil.which(program):
            pytest.skip("no valgrind on this machine (Debian's package valgrind)")


class Valgrind:
    """A parked program under valgrind.

    :param truth: what it stated.
    """

    def __init__(self, program, arguments, place):
        self.truth_file = place / "truth.json"
        self.said = place / "output"
        # C++ notes what its own operator new gives away; that calls malloc, which is valgrind's then.
        own = ["--soname-synonyms=somalloc=nouserintercepts"] if program == leakscxx.place() else []
        command = ["valgrind", "--leak-check=no", f"--log-file={place}/log", *own, str(program), *arguments]
        with open(self.said, "wb") as output:
            self.process = subprocess.Popen(
                [*command, "--truth", str(self.truth_file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=gdbrun.die_with_parent,
            )

    def __enter__(self):
        end = time.monotonic() + START
        while b"READY" not in self.said.read_bytes():
            assert self.process.poll() is None and time.monotonic() < end, self.said.read_text()
            time.sleep(0.05)
        self.truth = read_truth(self.truth_file)
        return self

    def __exit__(self, *_):
        gdbrun.kill_group(self.process)

    def ask(self, *words):
        """Send a command to valgrind's gdbserver and return its answer."""
        done = subprocess.run(
            ["vgdb", f"--pid={self.process.pid}", *words], capture_output=True, text=True, timeout=START
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def blocks(self, heuristics):
        """Return kind and requested bytes of every block by address, and the summary's bytes and blocks by kind."""
        first = self.ask("leak_check", "full", "any", "heuristics", heuristics)
        records = max(map(int, RECORDS.findall(first)), default=0)
        found, kind = {}, None
        for line in self.ask("block_list", f"1..{records}", "unlimited").splitlines() if records else ():
            header, block = HEADER.match(line), BLOCK.match(line)
            kind = KINDS[header[1]] if header else kind
            if block:
                found[address(block[1])] = (kind, int(block[2]))
        sums = {KINDS[one]: (_number(size), _number(count)) for one, size, count in SUMMARY.findall(first)}
        return found, sums


def _number(text):
    return int(text.replace(",", ""))


def expected(truth):
    """What the truth says, in valgrind's words: kind and requested bytes by address, without what is reached."""
    stated = {}
    for one in truth.details["blocks"]:
        if one["state"] != "reached":
            role = one["role"] if "cycle" not in one["role"] else "cycle"
            stated[address(one["address"])] = (ROLES.get(role, "possible"), one["asked"])
    for cycle in {one["role"] for one in truth.details["blocks"] if "cycle" in one["role"]}:
        first = min(address(one["address"]) for one in truth.details["blocks"] if one["role"] == cycle)
        if first in stated:
            stated[first] = ("definite", stated[first][1])
    return stated


def check(program, arguments, place, different=MappingProxyType({}), heuristics="none"):
    """Hold valgrind's answer to the truth, but for the differences that are known.

    :returns: the sums that valgrind tells; kind and size by name of stated blocks; kind and size of all others.
    """
    with Valgrind(program, arguments, place) as here:
        found, sums = here.blocks(heuristics)
    names = {address(one["address"]): one["name"] for one in here.truth.details["blocks"]}
    wanted = {names[at]: said for at, said in expected(here.truth).items()}
    seen = {at: said for at, said in found.items() if said[0] != "reachable"}
    others = {at: said for at, said in seen.items() if at not in names}
    said = {names[at]: kind for at, kind in seen.items() if at in names}
    agreed = {name: one for name, one in wanted.items() if name not in different}
    assert {name: one for name, one in said.items() if name not in different} == agreed
    for name, kind in different.items():
        assert said.get(name, ("reachable",))[0] == kind, name
    return sums, said, others


def built(name):
    require()
    try:
        return programs.build(name, glibc("system")) if name != "leaks.cc" else leakscxx.build()
    except Unavailable as reason:
        pytest.skip(str(reason))


def check_vectors(others):
    """Threads' vectors (dtv), which a thread points into by their middle: all of one size, one for each thread made."""
    assert {kind for kind, _ in others.values()} == {"possible"}
    assert len({size for _, size in others.values()}) == 1
    return len(others)


def test_every_block(tmp_path):
    sums, said, others = check(built("leaks"), [], tmp_path, DIFFERENT)
    threads = check_vectors(others)
    vectors = sum(size for _, size in others.values())
    for kind, more in (("definite", (0, 0)), ("indirect", (0, 0)), ("possible", (vectors, threads))):
        sizes = [size for one, size in said.values() if one == kind]
        assert sums[kind] == (sum(sizes) + more[0], len(sizes) + more[1])


def test_the_healthy_twin(tmp_path):
    sums, said, others = check(built("leaks"), ["--healthy"], tmp_path)
    assert said == {} and sums["definite"] == sums["indirect"] == (0, 0)
    check_vectors(others)


def test_the_tree_of_environments_is_possibly_leaked_there_too(tmp_path, stages):
    """By the same count: the tree's form follows from the texts in it."""
    _, said, others = check(built("leaks"), ["--modes", "environment"], tmp_path)
    assert said == {} and {kind for kind, _ in others.values()} == {"possible"}
    try:
        here = stages.get(Board("core", "debug", "system"), "leaks", ["--modes", "environment"])
    except Unavailable as reason:
        pytest.skip(str(reason))
    totals = here.gdbext("blocks leaks")["data"]["totals"]
    assert totals["possibly_leaked_blocks"] == len(others) and totals["leaked_blocks"] == 0


def test_objects_and_containers(tmp_path):
    sums, said, others = check(built("leaks.cc"), [], tmp_path)
    assert others == {}
    sizes = [size for kind, size in said.values() if kind == "definite"]
    assert sums["definite"] == (sum(sizes), len(sizes))


def test_what_its_heuristics_take_for_reached(tmp_path):
    """Second bases and arrays with a cookie: possibly leaked without them, and here."""
    _, said, _ = check(built("leaks"), [], tmp_path, DIFFERENT, "all")
    assert {size for kind, size in said.values() if kind == "possible"}
    with Valgrind(built("leaks.cc"), [], tmp_path) as here:
        plain, _ = here.blocks("none")
        helped, _ = here.blocks("all")
    names = {address(one["address"]): one["name"] for one in here.truth.details["blocks"]}
    kinds = {at: (plain.get(at, REACHED)[0], helped.get(at, REACHED)[0]) for at in names}
    changed = {names[at].rpartition(" ")[0] for at, (one, other) in kinds.items() if one != other}
    assert changed == {"second base", "array with a cookie"}


def test_the_healthy_objects(tmp_path):
    _, said, others = check(built("leaks.cc"), ["--healthy"], tmp_path)
    assert said == {} and others == {}


def test_its_heuristic_takes_blocks_behind_a_length_for_reached_as_we_do(tmp_path):
    """length64: eight bytes of length before what the program has."""
    with Valgrind(built("header_offsets"), ["--header=8"], tmp_path) as here:
        plain, _ = here.blocks("none")
        helped, _ = here.blocks("length64")
    inner = {address(one["address"]) for one in here.truth.details["blocks"] if one["state"] == "possibly leaked"}
    lost = {at: said for at, said in expected(here.truth).items() if at not in inner}
    for found in (plain, helped):
        assert {at: said for at, said in found.items() if said[0] in ("definite", "indirect")} == lost
    possible = {at for at, said in helped.items() if said[0] == "possible"}
    assert possible == inner
    before = {at for at, said in plain.items() if said[0] == "possible"}
    assert inner < before and len(before - inner) >= here.truth.details["behind_headers"]

"""Shapes of chained C containers against the containers: each program says what it holds, and gdbext finds it so.

<sys/queue.h>, uthash and glibc's malloc are the real ones; the others are models that `tests/containers` makes of
them. Every program is looked at once, on gdb's core of it: all its containers by the Python API, and some by
commands, in one gdb.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

import pytest

from tests.support import gdbrun, preloaded
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable
from tests.support.ports import free_port

SOURCES = CHECKOUT / "tests" / "containers"
WALKS = Path(__file__).parent / "data" / "container_walks.py"
WARNINGS = ("-g", "-O1", "-fno-builtin", "-Wall", "-Wextra", "-Werror")

# Name of a program as the tests call it: its source, and what it is compiled with.
PROGRAMS: Mapping[str, Sequence[str]] = {
    "queues": ("queues",),
    "links": ("links",),
    "tables": ("tables",),
    "tables-newer": ("tables", "-DSQLITE_STORES_HASH", "-DUNBOUND_COUNTS_COLLISIONS"),
    "uthash": ("uthash_tables",),
    "malloc": ("malloc_lists",),
    "redis-6": ("redis_dict", "-DREDIS=6"),
    "redis-7.0": ("redis_dict", "-DREDIS=70"),
    "redis-7.2": ("redis_dict", "-DREDIS=72"),
    "redis-8.0": ("redis_dict", "-DREDIS=80"),
}
OUTSIDE: Mapping[str, Sequence[str]] = {"sqlite": ("sqlite_schema", "-lsqlite3")}  # tested by itself


@dataclass(frozen=True)
class Looked:
    """A program, its core, and what the API says of its containers.

    :param cases: what the program says, by name.
    :param answers: what gdbext says, by name.
    """

    executable: Path
    core: Path
    cases: Mapping[str, Any]
    answers: Mapping[str, Any]

    def gdb(self, *commands: str) -> gdbrun.Output:
        """Load the pack on the core and run commands."""
        arguments = [str(self.executable), str(self.core), *gdbrun.load_pack()]
        return preloaded.run_gdb([*arguments, *(word for command in commands for word in ("-ex", command))])


def compiled(name: str, folder: Path) -> Path:
    source, *flags = {**PROGRAMS, **OUTSIDE}[name]
    if not shutil.which("gcc"):
        pytest.skip("test programs need gcc")
    program = folder / name
    command = ["gcc", *WARNINGS, str(SOURCES / f"{source}.c"), *flags, "-o", str(program)]
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    for header, package in (("uthash.h", "uthash-dev"), ("sqlite3.h", "libsqlite3-dev")):
        if f"{header}: No such file" in done.stderr:
            pytest.skip(f"no {header} on this machine (Debian's package {package})")
    assert done.returncode == 0, done.stderr
    return program


@contextlib.contextmanager
def running(program: Path) -> Iterator[tuple[int, Any]]:
    """Run a program; give its process and what it said before it parked."""
    process = subprocess.Popen(
        [str(program)], stdout=subprocess.PIPE, start_new_session=True, preexec_fn=gdbrun.die_with_parent
    )
    try:
        assert process.stdout
        said = b""
        for line in process.stdout:
            if line == b"READY\n":
                break
            said += line
        yield process.pid, json.loads(said)
    finally:
        gdbrun.kill_group(process)


def look(name: str, folder: Path) -> Looked:
    program, core, truth, answers = (folder / word for word in (name, "core", "truth.json", "answers.json"))
    compiled(name, folder)
    with running(program) as (pid, said):
        gdbrun.run_gdb(["-p", str(pid), "-ex", f"generate-core-file {core}"])
    assert core.exists()
    truth.write_text(json.dumps(said))
    looked = Looked(program, core, {case["name"]: case for case in said["cases"]}, {})
    names = (f'set $truth = "{truth}"', f'set $answer = "{answers}"')
    output = looked.gdb(*names, f"source {WALKS}")
    return Looked(program, core, looked.cases, gdbrun.read_envelope(answers, output))


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a function: the program of that name, looked at once."""
    try:
        gdbrun.gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))
    kept: dict[str, Looked] = {}

    def at(name: str) -> Looked:
        if name not in kept:
            kept[name] = look(name, tmp_path_factory.mktemp(name.replace(".", "-")))
        return kept[name]

    return at


def differences(case: Any, answer: Any) -> Iterator[str]:
    for key in ("shape", "bins", "entries", "nodes", "ends"):
        if case[key] != answer.get(key):
            yield f"{case['name']}: {key} is {shown(answer.get(key))}, not {shown(case[key])} {answer.get('error', '')}"


def shown(value: Any) -> str:
    text = str(value)
    return text if len(text) < 200 else f"{text[:200]}…"


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_container_is_walked_as_its_program_says(looks, name):
    looked = looks(name)
    assert looked.cases
    wrong = [line for key, case in looked.cases.items() for line in differences(case, looked.answers[key])]
    assert not wrong, "\n".join(wrong)


def unlike(case: Any, answer: Any) -> Iterator[str]:
    """What a check says of a container against what its program did to it; damage shows in further ways too."""
    found = set(answer.get("problems", ()))
    if bool(found) != bool(case["ends"] or case["problems"]) or not found >= set(case["problems"]):
        yield f"{case['name']}: problems are {sorted(found)}, not {case['problems']} and {shown(case['ends'])}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_check_finds_what_was_damaged_and_nothing_else(looks, name):
    looked = looks(name)
    wrong = [line for key, case in looked.cases.items() for line in unlike(case, looked.answers[key])]
    assert not wrong, "\n".join(wrong)


# ---- the same by commands ----

COMMANDS = {
    "queues": ("tailq_many", "tailq_pointer", "nameless", "circleq_many", "circleq_row", "slist_rho", "tailq_stray"),
    "links": ("list_many", "list_poison", "hash_table", "nulls_many", "bl_locked", "ngx_prev"),
    "tables": ("memcached", "hash_many", "hash_small", "hash_cut", "pg_many", "pg_stray", "slabs"),
    "uthash": ("users", "names", "rho"),
    "malloc": ("cache", "cache_untyped", "fastbins"),
    "redis-6": ("growing",),
    "redis-8.0": ("growing_set", "stray"),
}


def ask(looked: Looked, *commands: str) -> list[Any]:
    """Return the envelopes of commands, all run in one gdb."""
    files = [looked.core.parent / f"asked-{hash(commands) % 10**9}-{at}.json" for at in range(len(commands))]
    output = looked.gdb(*(f"{command} --json={file}" for command, file in zip(commands, files)))
    return [gdbrun.read_envelope(file, output) for file in files]


@pytest.mark.parametrize("name", COMMANDS)
def test_walklist_gives_the_sums_and_the_addresses(looks, name):
    looked = looks(name)
    cases = [looked.cases[key] for key in COMMANDS[name]]
    spoken = [f"{case['expr']} {case['options']}" for case in cases]
    commands = [*(f"walklist {text}" for text in spoken), *(f"walklist -a {text}" for text in spoken)]
    answers = ask(looked, *commands)
    for case, sums, addresses in zip(cases, answers, answers[len(cases) :]):
        assert elements(addresses) == elements_of(case), case["name"]
        check_sums(case, sums)


def elements(envelope: Any) -> list[int]:
    return [int(row["address"], 16) for row in envelope["data"]["elements"]]


def elements_of(case: Any) -> list[int]:
    return [node for row in case["nodes"] for node in row[1:]]


def check_sums(case: Any, envelope: Any) -> None:
    data, lengths = envelope["data"], [len(row) - 1 for row in case["nodes"]]
    assert (data["total"], data["max_len"]) == (sum(lengths), max(lengths)), case["name"]
    assert (data["bins"] or 0, data["nonempty"] or 1) == (case["bins"], len(lengths)), case["name"]
    assert all(table["walked"] >= table["max_len"] for table in data["tables"])
    counted = [table["entries"] for table in data["tables"]]
    assert (None if None in counted else sum(counted)) == case["entries"], case["name"]
    ends: dict[str, int] = {}
    for table in data["tables"]:
        for reason, chains in table["end"].items():
            ends[reason] = ends.get(reason, 0) + chains
    unsound = {reason: ends[reason] for reason in ends if reason not in ("null", "head", "sentinel", "count")}
    expected = [reason for _, reason in case["ends"]]
    assert unsound == {reason: expected.count(reason) for reason in expected}, case["name"]
    assert sum(ends.values()) == max(case["bins"], len(data["tables"])), case["name"]
    assert bool(envelope["problems"]) == bool(case["ends"] or "table-count" in case["problems"]), case["name"]


def test_uthash_is_found_by_the_pointer_to_its_first_element(looks):
    looked = looks("uthash")
    case = looked.cases["users"]
    sums, addresses, empty, by_name = ask(
        looked, "walklist users", "walklist -a users", "walklist no_users", "walklist names"
    )
    assert sums["data"]["total"] == case["entries"] and "uthash-head" in sums["data"]["shape"]
    assert elements(addresses) == elements_of(case)
    assert empty["data"]["total"] == 0 and not empty["problems"]
    # names are linked by another handle: hh of its first element is that of the table by number
    assert by_name["data"]["total"] == case["entries"]


def test_uthash_without_its_signature_is_none(looks):
    for answer in ask(looks("uthash"), "walklist unsigned_users->hh.tbl", "walklist unsigned_users"):
        assert answer["data"] is None
        assert "'signature == 0xa0111fe1' does not hold" in answer["error"]["message"]


def test_an_element_on_two_lists_is_asked_for_its_link(looks):
    [answer] = ask(looks("queues"), "walklist nameless")
    assert "several members tqe_next: by_age.tqe_next, by_name.tqe_next" in answer["error"]["message"]
    assert answer["error"]["hint"].startswith("--next by_age.tqe_next")


def test_keys_are_compared_by_what_they_hold(looks):
    """Equal hashes of different keys are told from the same key again and again."""
    stale, repeated, sound = ask(
        looks("uthash"), "slabskew stale->by_name.tbl", "slabskew repeated", "slabskew names->by_name.tbl"
    )
    [row], [again] = stale["data"]["worst_bins"], repeated["data"]["worst_bins"]
    assert (row["len"], row["distinct_hashes"], row["distinct_keys"]) == (200, 1, 200)
    assert (again["len"], again["distinct_hashes"], again["distinct_keys"]) == (200, 1, 1)
    assert stale["data"]["verdict"] == "weak-hash" != repeated["data"]["verdict"]  # no other hash is there
    assert repeated["findings"] and not sound["findings"] and sound["data"]["verdict"] == "ok"


# ---- the same without any types: by addresses, and what the shapes declare ----

UNTYPED = {
    "links": ("linux-list", "linux-hlist", "nginx-queue"),
    "tables": ("sqlite-hash-old", "postgresql-dynahash", "unbound-lruhash", "unbound-slabhash"),
    "tables-newer": ("sqlite-hash",),
    "uthash": ("uthash",),
    "redis-6": ("redis-dict-6",),
    "redis-7.0": ("redis-dict",),
}


@pytest.mark.parametrize("name", UNTYPED)
def test_declared_structures_serve_where_types_are_missing(looks, name):
    looked = looks(name)
    cases = [case for case in looked.cases.values() if case["shape"] in UNTYPED[name] and case["nodes"]]
    at = [looked.answers[case["name"]]["address"] for case in cases]
    commands = [f"walklist {address:#x} --shape {case['shape']}" for address, case in zip(at, cases)]
    assert {case["shape"] for case in cases} == set(UNTYPED[name])
    for case, envelope in zip(cases, ask_bare(looked.core, *commands)):
        assert envelope["data"], (case["name"], envelope["error"])
        check_sums(case, envelope)
        assert any("declar" in row["message"] for row in envelope["evidence"]), case["name"]


def test_the_tables_of_the_real_sqlite_are_walked(looks):
    looked = looks("sqlite")
    [case] = looked.cases.values()
    [version] = looked.cases
    if not (3, 24) <= tuple(map(int, version.split(".")[:2])) <= (3, 46):
        pytest.skip(f"where SQLite {version} keeps its tables is not known here")
    spoken = f"{case['expr']} {case['options']}"
    commands = (f"walklist {spoken} --check", f"walklist {spoken} --each 'x/s *(char **)($elem + 24)'")
    sums, names = ask(looked, *commands)
    assert sums["data"]["total"] == case["entries"] and sums["problems"] == []
    said = {re.search(r'"(.*)"', row["output"])[1] for row in names["data"]["elements"]}
    assert said == {"sqlite_master", *(f"table_{number}" for number in range(case["entries"] - 1))}


def test_a_table_in_global_variables_needs_no_shape_and_no_expression(looks):
    looked = looks("tables")
    case = looked.cases["memcached"]
    by_name, by_shape, triage = ask(looked, "walklist primary_hashtable", "walklist --shape memcached-assoc", "triage")
    for answer in (by_name, by_shape):
        data = answer["data"]
        assert (data["total"], data["bins"], answer["problems"]) == (len(elements_of(case)), case["bins"], [])
    assert any("primary_hashtable" in line["message"] for line in triage["evidence"] if line["subject"] == "tables")


# ---- Debian's memcached, stripped: its table found on the heap, walked by offsets ----

KEYS = 5000
LINK = 16  # of an item, to the next of its bin: memcached 1.6.18, memcached.h


@contextlib.contextmanager
def serving(*command: str) -> Iterator[int]:
    """Run a server of Debian's, or skip the test."""
    program = shutil.which(command[0], path="/usr/local/bin:/usr/bin")
    if not program:
        pytest.skip(f"no {command[0]} on this machine (Debian's package of that name)")
    process = subprocess.Popen(
        [program, *command[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=gdbrun.die_with_parent,
    )
    try:
        yield process.pid
    finally:
        gdbrun.kill_group(process)


def load(port: int) -> dict[str, int]:
    """Store keys, of which some are deleted again; return the server's statistics that are numbers."""
    with connected(port) as connection, connection.makefile("rwb") as stream:
        for number in range(KEYS):
            stream.write(b"set key:%d 0 0 5 noreply\r\nvalue\r\n" % number)
        for number in range(0, KEYS, 10):
            stream.write(b"delete key:%d noreply\r\n" % number)
        stream.write(b"stats\r\n")
        stream.flush()
        rows = iter(stream.readline, b"END\r\n")
        pairs = (line.split()[1:3] for line in rows if line.startswith(b"STAT "))
        return {name.decode(): int(value) for name, value in pairs if value.isdigit()}


def connected(port: int) -> socket.socket:
    end = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 20)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@pytest.fixture(scope="module")
def memcached_core(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Return the core of a loaded memcached, and its statistics."""
    core, port = tmp_path_factory.mktemp("memcached") / "core", free_port()
    options = ("-l", "127.0.0.1", "-p", str(port), "-U", "0", "-t", "1", "-m", "64", "-u", "root")
    with serving("memcached", *options) as pid:
        statistics = load(port)
        gdbrun.run_gdb(["-p", str(pid), "-ex", f"generate-core-file {core}"])
    subprocess.run(["fallocate", "--dig-holes", str(core)], check=False)  # the reserve of each thread's heap
    return core, statistics


def ask_bare(core: Path, *commands: str, executable: str = "", first: str = "echo") -> list[Any]:
    """Return the envelopes of commands on a core, gdb knowing no debug info, and no executable unless told.

    :param first: a command of gdb that comes before them.
    """
    files = [core.parent / f"bare-{at}-{len(commands)}.json" for at in range(len(commands))]
    target = [executable, str(core)] if executable else ["-core", str(core)]
    arguments = ["-iex", "set debug-file-directory /nonexistent", *target, *gdbrun.load_pack(), "-ex", first]
    for file, command in zip(files, commands):
        arguments += ["-ex", f"{command} --json={file}"]
    output = preloaded.run_gdb(arguments)
    return [gdbrun.read_envelope(file, output) for file in files]


def test_a_stripped_memcached_is_counted_by_offsets(memcached_core):
    core, statistics = memcached_core
    assert statistics["curr_items"] == KEYS - KEYS // 10
    bins = 1 << statistics["hash_power_level"]
    size = statistics["hash_bytes"]
    [blocks] = ask_bare(core, f"blocks list --state used --min-size {size} --max-size {size + 8192}")
    [found] = [row["address"] for row in blocks["data"]["blocks"]]
    how = f"--raw --bins {bins} --stride 8 --head 0"
    commands = [f"walklist {how} --next +{link} {found}" for link in (LINK, LINK + 8)]
    right, wrong = ask_bare(core, *commands)
    assert right["data"]["total"] == statistics["curr_items"] and right["problems"] == []
    [table] = right["data"]["tables"]
    assert table["bins"] == bins and table["end"] == {"null": bins} and table["max_len"] < 10
    assert wrong["problems"]  # a wrong link shows: what stands there are no pointers


BUILD_ID = "cb4951e778913a1598cb9fa92e8c377dfc545320"  # of the memcached that the saved shape is for


def test_a_stripped_memcached_is_walked_by_the_shape_that_its_typed_build_saved(memcached_core, tmp_path):
    core, statistics = memcached_core
    said = subprocess.run(["readelf", "-n", shutil.which("memcached")], capture_output=True, text=True, check=True)
    if BUILD_ID not in said.stdout:
        pytest.skip("where another build of memcached keeps its table is not known here")
    shutil.copy(CHECKOUT / "tests/gdb/data/memcached-1-6-18.toml", tmp_path)
    commands = ("walklist --shape memcached-1-6-18 --check", "slabskew --shape memcached-1-6-18", "triage")
    walked, skew, triage = ask_bare(core, *commands, first=f"set gx shapes-folder {tmp_path}")
    [table] = walked["data"]["tables"]
    figures = (walked["data"]["total"], table["entries"], table["bins"])  # what was walked, what it counts itself
    assert figures == (statistics["curr_items"], statistics["curr_items"], 1 << statistics["hash_power_level"])
    assert walked["problems"] == [] and skew["data"]["verdict"] == "ok" and triage["data"]["findings"] == []


# ---- Debian's redis: stripped, but its dynamic symbols tell where its state begins ----

DB = 64  # of redisServer, to the first of its databases, whose first member is the dict: redis 7.0.15, server.h


def test_the_keys_of_a_stripped_redis_are_counted(tmp_path):
    core, port = tmp_path / "core", free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path), "--save", "")
    with serving("redis-server", *options) as pid:
        with connected(port) as connection, connection.makefile("rwb") as stream:
            stream.write(b"".join(b"SET key:%d value\r\n" % number for number in range(KEYS)))
            stream.write(b"INFO server\r\nDBSIZE\r\n")
            stream.flush()
            said = b"".join(iter(stream.readline, b":%d\r\n" % KEYS))
        if b"redis_version:7.0." not in said:
            pytest.skip("where another redis than 7.0 keeps its databases is not known here")
        gdbrun.run_gdb(["-p", str(pid), "-ex", f"generate-core-file {core}"])
    program = shutil.which("redis-server", path="/usr/local/bin:/usr/bin")
    [answer] = ask_bare(
        core,
        f"walklist *(long *)*(long *)((char *)&server + {DB}) --shape redis-dict --check",
        executable=str(Path(program or "").resolve()),
    )
    assert answer["data"]["total"] == KEYS and answer["problems"] == []
    assert [table["entries"] for table in answer["data"]["tables"]] == [KEYS]

"""``gdbext fleet`` over real cores, by the program: equal causes share a signature, others do not."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from gdbext.fleet import kinds
from tests.support import gdbrun
from tests.support.cache import CHECKOUT
from tests.support.glibcs import Unavailable, glibc
from tests.support.objectstore import BUCKET, object_store
from tests.unit.fleet import made

SOURCE = CHECKOUT / "tests" / "containers" / "causes.c"
CRASHES = ("header", "route", "twice", "promise")
OTHERS = ("requests", "sessions", "orders", "again", "table", "overrun")
KIND_NAMES = [kind.name for kind in kinds.KINDS]
KINDS = {
    **dict.fromkeys(CRASHES, "crash"), "requests": "leak", "sessions": "leak", "orders": "deadlock",
    "again": "self-deadlock", "overrun": "corruption",
}  # fmt: skip
# How a core is made: flags, work before, whether addresses vary, on which glibc.
USUAL = {"one": (("-O0",), 0, True, "system"), "two": (("-O2", "-no-pie"), 20000, True, "system")}
ALL = {**USUAL, "three": (("-O1",), 3000, False, "system"), "four": (("-O2",), 500, True, "trixie")}

pytestmark = pytest.mark.skipif(not (find_spec("pyarrow") and find_spec("duckdb")), reason="needs pyarrow and duckdb")


def fleet(*words, status=0):
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "bin" / "gdbext"), "fleet", *map(str, words)], capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """The folder of what is read of files, which no other run has."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield Path(os.environ["XDG_CACHE_HOME"], "gdbext")


def query(dataset, text):
    return [tuple(row) for row in json.loads(fleet("sql", dataset, text, "--json"))["data"]["rows"]]


def build(folder, flags, suite):
    libc = glibc(suite)
    more = [f"-Wl,--dynamic-linker={libc.loader}", f"-Wl,-rpath,{libc.libdir}"] if libc.root else []
    folder.mkdir(parents=True)
    program = folder / "causes"
    line = ["gcc", "-g", *flags, "-w", "-fno-builtin", "-pthread", str(SOURCE), "-o", str(program), *more]
    subprocess.run(line, check=True)
    return program


def dump(program, cause, work, varying):
    """Have the program come to a cause, and leave a core beside it; return its name."""
    place = program.parent / cause
    place.mkdir()
    line = [str(program), cause, str(work)] if varying else ["setarch", "-R", str(program), cause, str(work)]
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    process = subprocess.Popen(
        line, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
    )  # fmt: skip
    with process:
        if cause in OTHERS:
            assert process.stdout.readline() == b"ready\n"
            taken = ["gcore", "-o", str(place / "core"), str(process.pid)]
            subprocess.run(taken, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            process.send_signal(signal.SIGKILL)
    (core,) = place.glob("core*")
    return core


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, request):
    """The ten causes, each in several cores, and what is no core; a host for each way."""
    try:
        gdbrun.gdb_program()
    except Unavailable as reason:
        pytest.skip(str(reason))
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern not in ("core", "core.%p"):
        pytest.skip(f"the kernel puts cores elsewhere: core_pattern is {pattern}")
    folder = tmp_path_factory.mktemp("fleet")
    ways = ALL if request.config.getoption("--boards") == "full" else USUAL
    for name, (flags, work, varying, suite) in ways.items():
        program = build(folder / "cores" / name, flags, suite)
        for cause in (*CRASHES, *OTHERS):
            dump(program, cause, work, varying)
    cut = folder / "cores" / "one" / "cut"
    cut.write_bytes((folder / "cores" / "one" / "header").joinpath("core").read_bytes()[:100])
    said = fleet("run", folder / "cores" / "**" / "c[ou][rt]*", "-o", folder / "data", "--host", "cores/([^/]+)/")
    assert f"{10 * len(ways) + 1} cores examined" in said and "1 of them without an answer" in said
    return folder / "data", len(ways)


def test_equal_causes_share_a_signature_and_others_do_not(dataset):
    data, ways = dataset
    found = query(data, "SELECT path, signature, cause FROM cores WHERE status <> 2")
    signatures = {}
    for path, signature, cause in found:
        signatures.setdefault(os.path.basename(os.path.dirname(path)), set()).add((signature, cause))
    assert len(found) == 10 * ways and all(len(each) == 1 for each in signatures.values()), signatures
    assert len(set.union(*signatures.values())) == 10, signatures


def test_a_cause_says_what_it_is(dataset):
    data, _ = dataset
    rows = query(data, "SELECT DISTINCT path, kind, causes.cause FROM causes JOIN cores USING (core) WHERE rank = 0")
    causes = {os.path.basename(os.path.dirname(path)): (kind, cause) for path, kind, cause in rows}
    assert {name: kind for name, (kind, _) in causes.items() if name in KINDS} == KINDS
    wanted = {"header": "parse_header", "route": "find_route", "requests": "struct request", "promise": "check_state",
              "sessions": "struct session", "orders": "audit", "again": "reload", "table": "names"}  # fmt: skip
    assert all(word in causes[name][1] for name, word in wanted.items()), causes


def test_top_and_new(dataset):
    data, ways = dataset
    top = json.loads(fleet("top", data, "--json"))["data"]
    rows = [dict(zip(top["columns"], row)) for row in top["rows"]]
    assert [row["cores"] for row in rows] == [ways] * 10 + [1]
    assert [row["hosts"] for row in rows] == [ways] * 10 + [1] and rows[-1]["cause"] == "no answer: bad-core"
    new = json.loads(fleet("new", data, "--since", "1d", "--json", status=1))
    assert new["status"] == 1 and len(new["data"]["rows"]) >= 10
    assert "names" in fleet("top", data)


def test_names_of_a_gdb_that_is_not_borrowed_are_not_known(dataset, tmp_path):
    data, _ = dataset
    ((core,),) = query(data, "SELECT path FROM cores WHERE path LIKE '%/one/header/%'")
    fleet("run", core, "-o", tmp_path / "data", "--no-gdb", "--commands", "blocks summary")
    assert query(tmp_path / "data", "SELECT debugger, status = 2, signal FROM cores") == [(False, False, "SIGSEGV")]
    assert query(tmp_path / "data", "SELECT command FROM answers ORDER BY 1") == [("blocks summary",), ("triage",)]


@pytest.mark.skipif(not (find_spec("s3fs") and find_spec("moto")), reason="needs s3fs and moto")
def test_cores_and_rows_in_an_object_store_are_those_in_folders(dataset, tmp_path, monkeypatch):
    data, _ = dataset
    some = "path LIKE '%/one/%' AND (path LIKE '%/header/%' OR path LIKE '%/sessions/%' OR path LIKE '%/cut')"
    cores = [sparse(Path(core), tmp_path) for (core,) in query(data, f"SELECT path FROM cores WHERE {some}")]
    fleet("run", *cores, "-o", tmp_path / "here")
    with object_store() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        put = f"import fsspec; fsspec.filesystem('s3').put({list(map(str, cores))}, {keys_of(cores)})"
        subprocess.run([sys.executable, "-c", put], check=True)
        fleet("run", f"s3://{BUCKET}/in", "-o", f"s3://{BUCKET}/out")
        assert "; 3 had rows before" in fleet("run", f"s3://{BUCKET}/in", "-o", f"s3://{BUCKET}/out")
        assert fleet("top", f"s3://{BUCKET}/out") and fleet("new", f"s3://{BUCKET}/out", status=1)
        assert named_rows(f"s3://{BUCKET}/out") == named_rows(tmp_path / "here")


def sparse(core, folder):
    """Return a copy of a core whose pages of zeros are holes: a store does not know which were."""
    copy = folder / "cores" / core.parent.name / core.name
    copy.parent.mkdir(parents=True)
    subprocess.run(["cp", "--sparse=always", core, copy], check=True)
    return copy


def keys_of(cores):
    return [f"{BUCKET}/in/{core.parent.name}/{core.name}" for core in cores]


def named_rows(data):
    """Return all rows of all kinds, without what is measured and when, by the last two names of their cores."""
    less = {"cores": "core, path, time, taken, seconds, cpu_seconds, peak_bytes"}
    text = " UNION ALL ".join(
        f"SELECT '{kind}', its_core, CAST(made AS VARCHAR) FROM "
        f"(SELECT core AS id, * EXCLUDE ({less.get(kind, 'core')}) FROM {kind}) AS made JOIN "
        "(SELECT core AS id, regexp_extract(path, '[^/]+/[^/]+$') AS its_core FROM cores) USING (id)"
        for kind in KIND_NAMES
    )
    return sorted(re.sub(r"'id': \w+|(s3:/|/tmp)[^ ']*/", "", " ".join(row)) for row in query(data, text))


def test_rows_are_the_same_without_what_was_kept_of_files(dataset, cache, tmp_path):
    data, _ = dataset
    some = ("header", "sessions", "orders", "table")
    found = query(data, "SELECT core, path FROM cores WHERE path LIKE '%/two/%'")
    cores = {core: path for core, path in found if os.path.basename(os.path.dirname(path)) in some}
    assert len(cores) == len(some) and len(list(cache.glob("*.json"))) > 4
    fleet("run", *cores.values(), "-o", tmp_path / "data", "--no-cache", "--host", "cores/([^/]+)/")
    with_cache = {kind: [row for row in rows if row[2:18] in cores] for kind, rows in made.rows_of(data).items()}
    assert made.rows_of(tmp_path / "data") == with_cache


def test_what_was_kept_is_used_and_what_is_damaged_is_made_anew(dataset, cache, tmp_path):
    data, _ = dataset
    core = query(data, "SELECT path FROM cores WHERE path LIKE '%/one/sessions/%'")[0][0]
    own = tmp_path / "own"
    fleet("run", core, "-o", tmp_path / "first", "--cache", own, "--commands", "blocks types")
    whole = {path.name: path.read_bytes() for path in own.iterdir()}
    assert any(name.endswith(".gdb-index") for name in whole)
    for number, damage in enumerate((lambda data: data, lambda data: data[:-1])):
        for path in own.iterdir():
            path.write_bytes(damage(whole[path.name]))
            os.utime(path, (1, 1))
        fleet("run", core, "-o", tmp_path / f"again-{number}", "--cache", own, "--commands", "blocks types")
        assert made.rows_of(tmp_path / f"again-{number}") == made.rows_of(tmp_path / "first")
        assert {path.name: path.read_bytes() for path in own.iterdir()} == whole
        assert all(path.stat().st_mtime > 1 for path in own.glob("*.json")), "it was not used"


@contextmanager
def cluster(folder, workers):
    """Have a scheduler and workers on the loopback; give its address and their processes."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s"}
    file, common = folder / "scheduler.json", {"env": environment, "cwd": folder, "stderr": subprocess.DEVNULL}
    line = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-show"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-nanny",
              "--no-dashboard", "--nthreads", "1", "--resources", "memory=2e9", "--host", "127.0.0.1"]  # fmt: skip
    line += ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    started = [subprocess.Popen(line, **common)]
    try:
        started += [subprocess.Popen(worker, **common) for _ in range(workers)]
        yield file, started[1:]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def address_of(file):
    while not (file.exists() and file.read_text()):
        time.sleep(0.05)
    return json.loads(file.read_text())["address"]


@pytest.mark.skipif(not find_spec("distributed"), reason="needs Dask")
def test_a_cluster_makes_the_same_rows_while_a_worker_dies(dataset, tmp_path):
    data, _ = dataset
    some = "path LIKE '%/one/header/%' OR signal = 'SIGABRT' OR status = 2"
    cores = [core for (core,) in query(data, f"SELECT path FROM cores WHERE {some}")]
    fleet("run", *cores, "-o", tmp_path / "here")
    with cluster(tmp_path, 3) as (file, workers):
        line = ["run", *cores, "-o", tmp_path / "there", "--scheduler", address_of(file)]
        process = subprocess.Popen([sys.executable, str(CHECKOUT / "bin" / "gdbext"), "fleet", *map(str, line)])
        while not any(children_of(worker.pid) for worker in workers):
            assert process.poll() is None
            time.sleep(0.02)
        next(worker for worker in workers if children_of(worker.pid)).kill()
        assert process.wait(200) == 0
    assert made.rows_of(tmp_path / "there") == made.rows_of(tmp_path / "here")


def children_of(pid):
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or [
            child for task in os.listdir(f"/proc/{pid}/task")
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        ]  # fmt: skip
    except OSError:
        return []

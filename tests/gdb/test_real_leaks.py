"""``blocks leaks`` on Debian's servers and Python at rest: next to nothing leaked, and what is, is known by name.

Nobody stated anything here: these programs are used by many and looked at with leak checkers, so what looks leaked in
them is ours to explain (docs/leaks.md, "Real programs").
"""

from __future__ import annotations

import contextlib

import pytest

from tests.gdb import realjemalloc
from tests.gdb.test_real_programs import (
    NO_DEBUG_INFO,
    PROGRAMS,
    PYTHON,
    WIDTH,
    Daemon,
    _may_attach,
    ask,
    require,
    running,
    wait_for,
)
from tests.support import gdbrun
from tests.support.rest import wait_for_rest
from tests.support.truth import address

pytestmark = pytest.mark.slow
__all__ = ("_may_attach",)

LEAKS = "blocks leaks --list --possible --limit 0"
MOST_LEAKED = 0.01  # of blocks
COMMON = ("types-without-debug-info",)


@contextlib.contextmanager
def redis(folder):
    with realjemalloc.redis(folder, 20_000) as running_redis:
        yield running_redis.daemon


@contextlib.contextmanager
def python_on_malloc(folder):
    """All its objects come from malloc."""
    exe = require("python3", "python3")
    (folder / "script.py").write_text(PYTHON)
    with running([exe, "-S", str(folder / "script.py")], folder, {"PYTHONMALLOC": "malloc"}) as process:
        wait_for(lambda: b"ready" in (folder / "output").read_bytes(), process, folder)
        wait_for_rest(process.pid)
        yield Daemon(process.pid, exe, (folder / "output",))


@contextlib.contextmanager
def varnish(folder):
    with realjemalloc.varnish(folder, {}) as daemon:
        yield daemon


@contextlib.contextmanager
def named(folder):
    with realjemalloc.named(folder, {}) as daemon:
        yield daemon


ALL = {**PROGRAMS, "redis": redis, "python-on-malloc": python_on_malloc, "named": named, "varnish": varnish}
# Programs of which nothing at all looks leaked, and those of which nothing is possibly leaked either.
NONE_LEAKED = ("memcached", "named", "nginx", "python", "python-on-malloc", "redis", "unbound")
NEVER_STILL = ("redis", "varnish")
NONE_MAYBE = ("memcached", "named", "redis", "unbound")


def figures(answers):
    data = answers.data(LEAKS)
    return data["totals"], [(row["address"], row["size"], row["state"]) for row in data["leaked"]]


def check(name, answers):
    envelope = answers.envelopes[LEAKS]
    assert envelope["complete"] and answers.data(LEAKS)["missing"] == []
    assert [one for one in envelope["problems"] if one["kind"] not in COMMON] == []
    assert [one for one in answers.data("triage")["findings"] if one["kind"] == "leak"] == []
    totals = answers.data(LEAKS)["totals"]
    assert totals["blocks"] > 100
    assert totals["leaked_blocks"] <= MOST_LEAKED * totals["blocks"]
    if name in NONE_LEAKED:
        assert totals["leaked_blocks"] == 0
    if name in NONE_MAYBE:
        assert totals["possibly_leaked_blocks"] == 0


@pytest.mark.parametrize("name", ALL)
def test_what_looks_leaked_is_known(name, tmp_path):
    with ALL[name](tmp_path) as daemon:
        live = ask(["-p", str(daemon.pid)], tmp_path, LEAKS, "triage")
        core = tmp_path / "core"
        gdbrun.run_gdb(["-p", str(daemon.pid), "-ex", f"gcore {core}"], cwd=tmp_path)
        texts = leaked_texts(daemon, live, tmp_path) if name == "varnish" else None
    check(name, live)
    assert [line for line in live.text.splitlines() if len(line) > WIDTH] == []
    if texts is not None:  # vectors of words (VAV_Parse) of the manager's options, there since before the fork
        assert texts <= {"malloc", "64m", "default", "critbit", ""}
    bare = ask([*NO_DEBUG_INFO, "-core", str(core)], tmp_path, LEAKS, "triage")
    check(name, bare)
    if name not in NEVER_STILL:
        assert figures(bare) == figures(live)


def leaked_texts(daemon, answers, folder):
    """The texts in small leaked blocks, as gdb reads them."""
    rows = [row for row in answers.data(LEAKS)["leaked"] if row["size"] <= 16]
    asked = [word for row in rows for word in ("-ex", f'printf "TEXT %s\\n", (char *) {address(row["address"])}')]
    said = gdbrun.run_gdb(["-p", str(daemon.pid), *asked], cwd=folder).out.splitlines()
    return {line[5:] for line in said if line.startswith("TEXT ")}

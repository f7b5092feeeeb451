"""Commands on Debian's servers on jemalloc: sums agree, a core tells what the process told, nothing is found."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.gdb.realjemalloc import KEYS, SERVERS, Redis, redis
from tests.gdb.test_real_programs import NO_DEBUG_INFO, WIDTH, Answers, ask, kernel_rss

pytestmark = pytest.mark.slow

# figures that a core of the same moment has as well
COMMANDS = (
    "gx jemalloc arenas",
    "gx jemalloc bins",
    "gx jemalloc extents",
    "gx jemalloc large",
    "gx jemalloc tcache",
    "gx jemalloc check",
    "blocks summary",
)
MORE = ("triage", "rss", "gx jemalloc decay")
TRIES = 5


@pytest.fixture(autouse=True)
def _may_attach() -> None:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and int(scope.read_text()) > (2 if os.geteuid() == 0 else 0):
        pytest.skip("this machine forbids gdb to attach to what it did not start")


def check_healthy(answers: Answers) -> None:
    for command, envelope in answers.envelopes.items():
        assert envelope["problems"] == [], command
        assert envelope["complete"] and not envelope["findings"], command
    assert answers.data("triage")["findings"] == []
    assert answers.data("gx jemalloc check")["corrupt"] == 0
    assert [line for line in answers.text.splitlines() if len(line) > WIDTH] == []


def total(rows: list[dict[str, Any]], name: str) -> int:
    return sum(row[name] for row in rows)


def check_arenas(answers: Answers) -> dict[str, int]:
    """The sums of `jemalloc arenas`, held to the reports on bins and on large blocks."""
    arenas, bins, large = (answers.data(f"gx jemalloc {name}") for name in ("arenas", "bins", "large"))
    totals: dict[str, int] = arenas["totals"]
    for name in set(totals) - {"arenas"}:
        assert totals[name] == total(arenas["arenas"], name), name
    assert totals["small"] == bins["used_bytes"] == total(bins["bins"], "used_bytes")
    assert totals["large"] == large["bytes"] == total(large["classes"], "bytes")
    assert totals["allocated"] == totals["small"] + totals["large"]
    assert totals["active"] == totals["allocated"] + totals["fragmentation"]
    return totals


def check_sums(answers: Answers) -> None:
    totals, blocks = check_arenas(answers), answers.data("blocks summary")["totals"]
    assert totals["allocated"] == blocks["used_bytes"] + blocks["tcache_bytes"]
    states = {row["state"]: row["bytes"] for row in answers.data("gx jemalloc extents")["states"]}
    for name in ("active", "dirty", "muzzy", "retained"):
        assert states.get(name, 0) == totals[name], name
    cached = answers.data("gx jemalloc tcache")
    assert cached["bytes"] == totals["tcache_bytes"] == blocks["tcache_bytes"]
    assert cached["objects"] == total(cached["threads"], "objects") == blocks["tcache_blocks"]
    check_ledger(answers, totals, blocks)


def check_ledger(answers: Answers, totals: dict[str, int], blocks: dict[str, int]) -> None:
    ledger = answers.data("rss")
    assert ledger["residual"] == 0
    assert total(ledger["entries"], "bytes") == ledger["total"]
    owned = {entry["owner"]: entry["bytes"] for entry in ledger["entries"]}
    told = {
        "jemalloc in use": blocks["used_bytes"],
        "jemalloc tcache": blocks["tcache_bytes"],
        "jemalloc dirty": totals["dirty"],
        "jemalloc retained": totals["retained"],
    }
    assert {name: owned.get(name, 0) for name in told} == told
    active = ("in use", "tcache", "free regions", "slab and size-class slack")
    assert sum(owned.get(f"jemalloc {name}", 0) for name in active) == totals["active"]


def check_residency(ledger: dict[str, Any], kernel: int) -> None:
    assert ledger["rss"] >= kernel // 2
    if os.geteuid() == 0:  # others are not told which pages are shared
        assert total(ledger["entries"], "resident") == ledger["rss"]
        assert ledger["rss_difference"] == 0


def figures(answers: Answers) -> dict[str, Any]:
    """Return the data by command, without the names of threads, which a core does not have."""
    return {command: _nameless(answers.data(command)) for command in COMMANDS}


def _nameless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _nameless(each) for key, each in value.items() if key != "name"}
    return [_nameless(each) for each in value] if isinstance(value, list) else value


def check_both(pid: int, folder: Path) -> Answers:
    """Look at a process and at a core of the same moment; return what was said of the process."""
    core, before = folder / "core", kernel_rss(pid)
    core.unlink(missing_ok=True)
    live = ask(["-p", str(pid), "-ex", f"gcore {core}"], folder, *COMMANDS, *MORE)
    bare = ask([*NO_DEBUG_INFO, "-core", str(core)], folder, *COMMANDS, *MORE)
    for answers in (live, bare):
        check_healthy(answers)
        check_sums(answers)
    assert figures(live) == figures(bare)
    check_residency(live.data("rss"), before)
    return live


@pytest.mark.parametrize("name", SERVERS)
def test_reports_on_a_server_agree(name, tmp_path):
    with SERVERS[name](tmp_path, {}) as daemon:
        live = check_both(daemon.pid, tmp_path)
    assert len(live.data("gx jemalloc arenas")["arenas"]) > 1
    assert len(live.data("gx jemalloc decay")["threads"]) > 4


def test_reports_on_redis_agree_with_what_it_says(tmp_path):
    with redis(tmp_path, KEYS) as server:
        live = _resting(server, tmp_path)
        glibc = ask(["-p", str(server.daemon.pid)], tmp_path, "glibc arenas")
    assert glibc.envelopes["glibc arenas"]["error"]["kind"] == "no-heap"
    assert re.search(r"^No findings", live.text, re.M)


def _resting(server: Redis, folder: Path) -> Answers:
    for _ in range(TRIES):
        said = server.settled()
        live = check_both(server.daemon.pid, folder)
        totals = live.data("gx jemalloc arenas")["totals"]
        if said == {name: totals[name] for name in said}:
            return live
    raise AssertionError(f"redis said {said}, we say {totals}")

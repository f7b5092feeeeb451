"""What the ``jemalloc`` commands say of a program, against what its jemalloc said of itself just before it parked.

Every pair of target, symbols, version and configuration; then each other build and option once. Figures must be equal;
the differences that there are by nature are derived in :mod:`tests.support.jecommands`.
"""

from __future__ import annotations

import pytest

from tests.support import jecommands
from tests.support.jecommands import ask
from tests.support.jestages import JeBoard, JeStage

CONFS = ("", "narenas:1", "tcache:false", "narenas:1,tcache:false")
FOUND_BY = {"debug": "symbols", "symtab": "symbols", "stripped": "structure", "gone": "structure"}


def check_told(here: JeStage) -> jecommands.Answers:
    """Hold the commands to every figure, and to the arenas of the threads."""
    answers = ask(here)
    assert jecommands.differences(answers, here.je) == []
    assert sum(1 for _ in jecommands.figures(answers, here.je)) > 400
    told = {
        one["tid"]: one["arena"] for one in here.je.threads if one["alive"] and one.get("arena") is not None
    }
    arenas = answers["arenas"]["data"]["arenas"]
    bound = {thread["lwp"]: row["index"] for row in arenas for thread in row["threads"]}
    assert {tid: bound.get(tid) for tid in told} == told
    return answers


def evidence(answers: jecommands.Answers) -> str:
    return " ".join(one["message"] for one in answers["arenas"]["evidence"])


@pytest.mark.jeboards(conf=CONFS, once=("gdbserver",))
def test_every_figure_is_told(jestage, jeboard, conf):
    here = jestage("jemalloc_zoo", conf=conf)
    options = here.je.stats["opt"]
    assert (options["narenas"] == 1, options["tcache"]) == ("narenas:1" in conf, "tcache:false" not in conf)
    answers = check_told(here)
    assert f"found by {FOUND_BY[jeboard.symbols]}" in evidence(answers)


BUILDS = {
    JeBoard("core", "stripped", "5.2.1-vaddr57"): ("57 address bits", "found by structure"),
    JeBoard("core", "debug", "5.1.0-page16"): ("pages of 65536", "debug info"),
    JeBoard("core", "symtab", "5.3.0-je"): ("prefix 'je_'",),
    JeBoard("gcore", "symtab", "5.3.0-static"): ("prefix '_rjem_je_'", "jemalloc_zoo"),
    JeBoard("attach", "stripped", "5.3.0-static"): ("found by structure", "jemalloc_zoo"),
    JeBoard("gdbserver", "stripped", "debian"): ("found by build-id of libjemalloc2",),
    JeBoard("core", "gone", "debian-trixie"): ("found by build-id of libjemalloc2", "57 address bits"),
}


# A real build with tree bitmaps; readers of 64 KiB pages have unit tests too. Debian's newest has 57 address bits.
SELDOM = {JeBoard("core", "debug", "5.1.0-page16"), JeBoard("core", "stripped", "5.2.1-vaddr57")}


@pytest.mark.parametrize(
    "build", [pytest.param(one, marks=[pytest.mark.full] * (one in SELDOM), id=str(one)) for one in BUILDS]
)
def test_every_figure_is_told_of_other_builds(jestages, build):
    answers = check_told(jestages(build, "jemalloc_zoo", "--threads=2"))
    for words in BUILDS[build]:
        assert words in evidence(answers)


# A background thread that never purges: between jemalloc's statement and the core, it would.
IDLE_BACKGROUND = "background_thread:true,dirty_decay_ms:-1,muzzy_decay_ms:-1"
SHARDS = "bin_shards:8-128:4|256-1024:3"
OPTIONS = (
    ("5.1.0", IDLE_BACKGROUND),
    ("5.1.0", "dirty_decay_ms:0"),
    ("5.2.1", SHARDS),
    ("5.2.1", "oversize_threshold:0"),
    ("5.2.1", "percpu_arena:percpu"),
    ("5.3.0", "muzzy_decay_ms:-1,dirty_decay_ms:0"),
    ("5.3.0", "hpa:true"),
    ("5.3.0", IDLE_BACKGROUND),
    ("5.3.1", "hpa:true,tcache:false,hpa_sec_nshards:2"),
    ("5.3.1", "percpu_arena:phycpu"),
    ("5.3.1", SHARDS),
)


@pytest.mark.parametrize(("version", "conf"), OPTIONS)
def test_every_figure_is_told_whatever_the_options(jestages, version, conf):
    """With arenas made through mallctl as well, the first with extent hooks of its own."""
    hooks = ["--arenas=2", "--hooks"] if "hpa" not in conf else []
    here = jestages(JeBoard("core", "symtab", version), "jemalloc_zoo", *hooks, conf=conf)
    known = {name: _text(value) for name, value in here.je.stats["opt"].items()}
    asked = dict(pair.split(":") for pair in conf.split(",") if conf != SHARDS)
    assert {name: known.get(name, value) for name, value in asked.items()} == asked
    if conf == SHARDS:
        assert {row["nshards"] for row in here.je.stats["arenas"]["bin"]} == {1, 3, 4}
    answers = check_told(here)
    if "hpa" in conf:
        assert any(row["sec_bytes"] for row in answers["arenas"]["data"]["arenas"])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_without_statistics_extents_speak(jestages):
    here = jestages(JeBoard("core", "debug", "5.1.0-nostats"), "jemalloc_zoo", "--threads=2")
    answers = ask(here)
    assert all(answer["problems"] == [] and answer["complete"] for answer in answers.values())
    data = {name: answer["data"] for name, answer in answers.items()}
    totals = data["arenas"]["totals"]
    taken = sum(here.je.live.values()) + sum(here.je.cached.values())
    assert taken <= totals["allocated"] <= totals["active"]
    large = {start: usable for start, usable in here.je.live.items() if usable > here.je.bin_sizes[-1]}
    blocks = {int(row["address"], 16): row["bytes"] for row in data["large"]["largest"]}
    assert large.items() <= blocks.items()
    assert (totals["metadata"], totals["mapped"], totals["resident"]) == (None, None, None)
    assert {row["curregs"] for row in data["bins 0"]["bins"]} == {None}
    assert {row["dirty"]["sweeps"] for row in data["decay"]["arenas"]} == {None}

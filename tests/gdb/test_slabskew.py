"""Hash tables spoilt in every way, on every board, against what was counted when they were filled."""

from __future__ import annotations

import time

import pytest

from tests.gdb.answers import ask
from tests.support.boards import Board
from tests.support.glibcs import Unavailable
from tests.support.truth import address

ANY_GLIBC = {"glibc": ("system",)}
TYPED = {"info": ("debug", "plain"), **ANY_GLIBC}
KERNEL = Board("core", "debug", "system")
SMALL = ("--entries", "1500", "--bins", "64")

# The verdict on each group, and what triage calls it.
VERDICTS = {
    "stale": "stale-hash",
    "incident": "stale-hash",
    "wildcard": "weak-hash",
    "weak": "weak-hash",
    "low": "weak-hash",
    "attack": "hot-bin",
    "skewed": "slab-skew",
    "small": "table-too-small",
    "duplicate": "equal-hash-flood",
    "misplaced": "misplaced",
    "miscounted": "ok",
    "unlisted": "ok",
    "growing": "mid-rehash",
    "healthy": "ok",
}
KINDS = {
    "stale-hash": "stale-hash",
    "weak-hash": "weak-hash",
    "hot-bin": "hot-bin",
    "equal-hash-flood": "hot-bin",
    "slab-skew": "slab-skew",
}
GARBAGE = ("garbage_cache", "huge_table")
FIGURES = ("bins", "entries", "walked", "nonempty", "max_len", "histogram", "distinct_hashes", "misplaced")


@pytest.fixture(scope="module")
def saved(stages, tmp_path_factory):
    """The command that makes the tables' shapes known in numbers, saved where the program has types."""
    folder = tmp_path_factory.mktemp("saved")
    try:
        here = stages.get(KERNEL, "hash_tables", SMALL)
    except Unavailable as reason:
        pytest.skip(str(reason))
    slabs, dictionary = folder / "raw-slabs.toml", folder / "raw-dict.toml"
    here.text(f"gx shapes save 'struct slabhash' {slabs}", f"gx shapes save redis-dict {dictionary}")
    return f"set gx shapes-folder {folder}"


@pytest.fixture
def core(stages):
    """The kernel's core of a program on the machine's own glibc."""

    def take(program, *arguments):
        try:
            return stages.get(KERNEL, program, arguments)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return take


def places(here, bare):
    """Return the expression for each group."""
    groups = here.truth.details["groups"]
    if not bare:
        return {name: "keyspace" if name == "rehash" else f"{name}_cache" for name in groups}
    shape = {name: "raw-dict" if name == "rehash" else "raw-slabs" for name in groups}
    return {name: f"--raw --shape {shape[name]} {group['address']}" for name, group in groups.items()}


def ask_skew(here, bare, saved):
    expressions = places(here, bare)
    answers = ask(here, *(f"slabskew {text}" for text in expressions.values()), before=[saved])
    return dict(zip(expressions, answers))


def check_figures(table, told):
    """The figures of one table are those that were counted when it was filled."""
    assert {name: table[name] for name in FIGURES} == {name: told[name] for name in FIGURES}
    assert address(table["address"]) == address(told["address"])
    assert table["max_bin"] == (told["max_bin"] if told["walked"] else None)
    if table["worst_bins"]:
        worst = table["worst_bins"][0]
        found = [worst[name] for name in ("bin", "len", "distinct_hashes", "distinct_keys")]
        assert found == [told[name] for name in ("max_bin", "max_len", "worst_hashes", "worst_keys")]


def check_tables(answer, group):
    data = answer["data"]
    assert data["total"] == sum(table["walked"] for table in group["tables"])
    assert len(data["tables"]) == len(group["tables"])
    for table, told in zip(data["tables"], group["tables"]):
        check_figures(table, told)


def told_problems(answer):
    return [one for one in answer["problems"] if one["kind"] not in ("absent-file", "no-build-id")]


@pytest.mark.boards(once=("gdbserver",), **ANY_GLIBC)
def test_every_way_to_spoil_a_table_has_its_verdict(stage, board, saved):
    here = stage("hash_tables", *SMALL)
    groups = here.truth.details["groups"]
    answers = ask_skew(here, board.info == "bare", saved)
    verdicts = {name: answer["data"]["verdict"] for name, answer in answers.items()}
    assert verdicts == {**VERDICTS, "rehash": "mid-rehash"}
    for name, answer in answers.items():
        assert answer["complete"], name
        assert answer["findings"] == (VERDICTS.get(name, "ok") not in ("ok", "mid-rehash")), name
        if name != "rehash":
            check_tables(answer, groups[name])
    check_dict(answers["rehash"]["data"], groups["rehash"])
    for name in ("miscounted", "growing"):
        (problem,) = told_problems(answers[name])
        assert address(problem["address"]) == address(groups[name]["spoilt"])


def check_dict(data, told):
    """Bins of both arrays, numbered through."""
    (table,) = data["tables"]
    for name in ("bins", "entries", "walked", "nonempty", "max_len", "max_bin", "histogram"):
        assert table[name] == told[name], name


@pytest.mark.boards(target=("attach", "gdbserver", "core"), info=("debug", "bare"), **ANY_GLIBC)
def test_the_healthy_twin_is_silent(stage, board, saved):
    here = stage("hash_tables", "--healthy", *SMALL)
    answers = ask_skew(here, board.info == "bare", saved)
    for name, answer in answers.items():
        assert answer["data"]["verdict"] == "ok", name
        assert {table["verdict"] for table in answer["data"]["tables"]} == {"ok"}, name
        assert not answer["findings"] and told_problems(answer) == [], name
        if name != "rehash":
            check_tables(answer, here.truth.details["groups"][name])


@pytest.mark.boards(target=("attach", "core"), **TYPED)
def test_garbage_of_a_tables_type_is_refused_at_once(stage, board):
    here = stage("hash_tables", *SMALL)
    begun = time.monotonic()
    commands = [f"{command} {name}" for command in ("walklist", "slabskew") for name in GARBAGE]
    for command, answer in zip(commands, ask(here, *commands)):
        assert answer["data"] is None and answer["error"]["message"], command
    assert time.monotonic() - begun < 20


def test_a_million_sound_entries_are_silent(core):
    """Some of them have equal hashes, by chance."""
    here = core("hash_tables", "--healthy", "--modes", "healthy", "--entries", "1000000")
    group = here.truth.details["groups"]["healthy"]
    assert sum(table["distinct_hashes"] for table in group["tables"]) < 1_000_000
    skew, triage = ask(here, "slabskew cache", "triage")
    assert skew["data"]["verdict"] == "ok" and skew["data"]["explanations"] == []
    check_tables(skew, group)
    assert triage["data"]["findings"] == []


@pytest.mark.boards(target=("attach", "core"), **TYPED)
def test_triage_finds_the_tables_by_itself(stage, board):
    here = stage("hash_tables", *SMALL)
    (triage,) = ask(here, "triage")
    found = {}
    for finding in triage["data"]["findings"]:
        name = finding["evidence"][-1].partition(" ")[2]
        found.setdefault(name, set()).add(finding["kind"])
    wanted = {f"{mode}_cache": {KINDS[verdict]} for mode, verdict in VERDICTS.items() if verdict in KINDS}
    wanted.pop("stale_cache")
    first = [name for name in ("cache", "stale_cache") if name in found]
    assert len(first) == 1 and found.pop(first[0]) == {"stale-hash"}  # told once, by one of its names
    assert found == wanted


@pytest.mark.boards(target=("attach", "core"), **TYPED)
def test_triage_has_nothing_to_say_of_sound_tables(stage, board):
    here = stage("hash_tables", "--healthy", *SMALL)
    (triage,) = ask(here, "triage")
    assert triage["data"]["findings"] == []


def test_the_incident_is_explained_without_an_argument(core):
    """Table, bin and count are in the finding, as the incident's script printed them."""
    here = core("hash_tables", "--modes", "incident", "--entries", "20000")
    (triage,) = ask(here, "triage")
    (finding,) = triage["data"]["findings"]
    worst = max(here.truth.details["groups"]["incident"]["tables"], key=lambda table: table["max_len"])
    assert finding["kind"] == "stale-hash" and finding["severity"] == "critical" and finding["remedy"]
    summary = finding["summary"].replace(" ", "")
    for part in (f"table{worst['index']}", f"bin{worst['max_bin']}", str(worst["max_len"]), "cache"):
        assert part in summary

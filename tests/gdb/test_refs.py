"""``blocks refs``, ``path`` and ``retained`` on a program that states what points at each of its blocks."""

from __future__ import annotations

import pytest

from tests.gdb.answers import ask
from tests.support.boards import Board
from tests.support.glibcs import Unavailable
from tests.support.truth import address

A, A1, A2, B, B1, S, S1 = range(7)
ROOTS = ("of_main", "alone", "local", "in_frame", "in_register", "of_page")


def numbers(stage):
    """gdb's numbers of the threads, by the names that the program gives them."""
    threads = stage.python("for t in gdb.selected_inferior().threads(): print('T', t.num, t.ptid[1] or t.ptid[0])")
    rows = (line.split() for line in threads.splitlines() if line.startswith("T "))
    return {stage.truth.tids[int(row[2])]: int(row[1]) for row in rows}


# The first test runs on most boards (test_leaks.py has them all); what follows from the same search on fewer.
FEW = {"target": ("attach", "core"), "glibc": ("bullseye", "system", "sid")}


@pytest.mark.boards(glibc=("bullseye", "system", "experimental"), once=("gdbserver",))
def test_each_root_by_its_name(stage, board):
    here = stage("who_points")
    details = here.truth.details
    answers = ask(here, *(f"blocks refs {details[name]}" for name in ROOTS))
    assert all(answer["data"]["block"] == details[name] for name, answer in zip(ROOTS, answers))
    mine, alone, local, in_frame, in_register, of_page = (answer["data"]["references"] for answer in answers)
    assert [row["address"] for row in alone] == [details["lonely"]] and alone[0]["kind"] == "global"
    assert [row["kind"] for row in in_register] == ["register"]
    assert in_register[0]["place"].split(" of ")[0] == "r12"
    threads = numbers(here)
    assert in_register[0]["thread"] == threads["register"]
    assert [row["address"] for row in of_page] == [hex(address(details["page"]) + 5 * here.truth.raw["word"])]
    assert of_page[0]["kind"] == "anonymous"
    if board.info == "bare":
        offset = address(details["lonely"]) - program_base(here)
        assert alone[0]["place"] == f"data of who_points +{offset:#x}"
    else:
        assert alone[0]["place"] == "static lonely of who_points"
    if board.target == "gcore" and here.glibc.minor >= 42:  # gdb 13 writes zeros where a mapping has a guard in it
        return
    assert [row["thread"] for row in local] == [threads["local"]]
    assert [row["thread"] for row in in_frame] == [threads["worker"]] and in_frame[0]["kind"] == "stack"
    if board.info == "bare":
        assert in_frame[0]["place"].startswith(f"stack of thread {threads['worker']}")
        return
    assert local[0]["place"] == f"thread-local current of thread {threads['local']}" and local[0]["kind"] == "tls"
    if unwinds(here, 1, "main"):
        assert [row["place"].partition(" ")[0] for row in mine] == ["thread"]
        assert mine[0]["place"].endswith(" main, variable mine")
    if unwinds(here, threads["worker"], "work"):
        assert in_frame[0]["place"].startswith(f"thread {threads['worker']}, frame ")
        assert in_frame[0]["place"].endswith(" work, variable item")


def program_base(stage):
    """Where the program is mapped, by its own mappings."""
    code = (
        "import re\n"
        "text = gdb.execute('info proc mappings', to_string=True)\n"
        "print('BASE', min(int(line.split()[0], 16) for line in text.splitlines() if line.endswith('/who_points')))"
    )
    return int(stage.python(code).partition("BASE ")[2].split()[0])


def unwinds(stage, thread, function):
    """Does gdb itself come as far as the function with the variable?"""
    return f" {function} (" in stage.gdb(f"thread {thread}", "backtrace").out


@pytest.mark.boards(**FEW)
def test_chains_and_their_first_root(stage, board):
    here = stage("who_points")
    details = here.truth.details
    first, second, third = details["chain"]
    tree, path = ask(here, f"blocks refs {third} --depth 9", f"blocks path {third}")
    rows = [(row["depth"], row["block"], row["offset"]) for row in tree["data"]["references"][:2]]
    assert rows == [(1, second, here.truth.raw["word"]), (2, first, here.truth.raw["word"])]
    head = hex(address(details["cache"]) + 3 * here.truth.raw["word"])
    assert [row["address"] for row in tree["data"]["references"][2:]] == [head]
    steps = path["data"]["steps"]
    assert [row["to"] for row in steps] == [first, second, third]
    links = [hex(address(at) + here.truth.raw["word"]) for at in (first, second)]
    assert [row["address"] for row in steps] == [head, *links]
    assert path["data"]["from_root"] and path["data"]["depth"] == 3
    if board.info != "bare":
        offset = 3 * here.truth.raw["word"]
        assert steps[0]["place"] == f"global cache.head (+{offset:#x}) of who_points"
        assert path["data"]["kept_by"] == f"{steps[0]['place']}, by 3 pointers"
        usable, word = details["usable"], here.truth.raw["word"]
        assert steps[2]["place"] == f"block {second} (struct item, {usable} bytes) +{word:#x} next"
        assert [row["type"] for row in steps[1:]] == ["struct item"] * 2


@pytest.mark.boards(twin=("broken", "healthy"), **FEW)
def test_the_middle_of_a_block_and_freed_ones(stage, twin):
    here = stage("who_points", *(["--healthy"] if twin == "healthy" else []))
    details, word = here.truth.details, here.truth.raw["word"]
    middle, inside, path = ask(
        here, f"blocks refs {details['of_middle']}", f"blocks refs {details['of_middle']} --interior",
        f"blocks path {details['of_middle']}",
    )  # fmt: skip
    assert middle["data"]["references"] == [] and middle["data"]["interior"] == 1
    assert [(row["address"], row["into"]) for row in inside["data"]["references"]] == [(details["inside"], 3 * word)]
    assert [(row["address"], row["interior"]) for row in path["data"]["steps"]] == [(details["inside"], True)]
    if twin == "healthy":
        assert not {"freed", "leaked"} & set(details)
        return
    dangling, held, kept = ask(
        here, f"blocks refs {details['freed']}", f"blocks refs {details['of_freed']}",
        f"blocks path {details['leaked'][1]}",
    )  # fmt: skip
    assert "These are dangling pointers" in dangling["data"]["what"] and dangling["data"]["reach"] is None
    rows = dangling["data"]["references"]
    assert [row["address"] for row in rows if row["kind"] == "global"] == [details["dangling"]]
    assert held["data"]["references"] == [] and held["data"]["reach"] == "leaked"
    stale = [row["address"] for row in held["data"]["stale_references"]]
    assert stale == [hex(address(details["freed_holder"]) + 8 * word)]
    steps = [(row["block"], row["to"]) for row in kept["data"]["steps"]]
    assert steps == [tuple(details["leaked"])] and not kept["data"]["from_root"]


@pytest.mark.boards(**FEW)
def test_what_only_one_root_keeps(stage, board):
    here = stage("who_points")
    details = here.truth.details
    nodes, sizes = details["nodes"], details["node_bytes"]
    (answer,) = ask(here, "blocks retained --top 0")
    data = answer["data"]
    assert data["kept_by_one"] + data["shared"] == data["reached"]
    assert sum(row["retained"] for row in data["roots"]) == data["kept_by_one"]
    blocks = {row["address"]: (row["retained"], row["blocks"], row["by"]) for row in data["blocks"]}
    shared_by = "several roots" if board.info != "bare" else "data of who_points"  # where that is all one
    assert blocks[nodes[S]] == (sizes[S] + sizes[S1], 2, shared_by)
    assert blocks[nodes[A]][:2] == (sizes[A] + sizes[A1] + sizes[A2], 3)
    assert blocks[nodes[B]][:2] == (sizes[B] + sizes[B1], 2)
    assert blocks[nodes[A1]] == (sizes[A1], 1, f"block {nodes[A]}")
    roots = {row["root"]: (row["retained"], row["blocks"]) for row in data["roots"]}
    if board.info != "bare":
        assert blocks[nodes[A]][2] == "global owner_a of who_points"
        assert roots["global owner_a of who_points"] == (sizes[A] + sizes[A1] + sizes[A2], 3)
        assert roots["global owner_b of who_points"] == (sizes[B] + sizes[B1], 2)
        assert roots["global cache of who_points"] == (3 * details["usable"], 3)
    else:
        assert blocks[nodes[A]][2] == "data of who_points"
        assert roots["data of who_points"][0] >= sum(sizes)


def test_of_chains_through_several_roots(stages):
    here = stages.get(Board("core", "debug", "system"), "who_points")
    nodes = here.truth.details["nodes"]
    one, both = ask(here, f"blocks path {nodes[S1]}", f"blocks path {nodes[S1]} --roots 0")
    ways = [[nodes[at] for at in way] for way in ((A, A2, S, S1), (B, B1, S, S1))]
    assert [row["to"] for row in one["data"]["steps"]] in ways
    assert both["data"]["chains"] == 2
    chains = {row["place"]: row["to"] for row in both["data"]["steps"] if row["kind"] == "global"}
    assert chains == {"global owner_a of who_points": nodes[A], "global owner_b of who_points": nodes[B]}


@pytest.mark.parametrize("selected", ["thread 1", "thread 2"])
def test_the_selection_stays(stages, selected):
    here = stages.get(Board("core", "debug", "system"), "who_points")
    details = here.truth.details
    show = "python f = gdb.selected_frame(); print('AT', gdb.selected_thread().num, f.level(), f.name())"
    commands = [f"blocks refs {details[name]}" for name in ROOTS] + ["blocks retained"]
    out = here.text(selected, "frame 1", show, *commands, show).out
    told = [line for line in out.splitlines() if line.startswith("AT")]
    assert len(told) == 2 and told[0] == told[1]


def test_a_program_of_32_bits(stages):
    try:
        here = stages.get(Board("core", "plain", "system"), "who_points", variant="i386")
    except Unavailable as reason:
        pytest.skip(str(reason))
    details = here.truth.details
    frame, register, path = ask(
        here, f"blocks refs {details['in_frame']}", f"blocks refs {details['in_register']}",
        f"blocks path {details['chain'][2]}",
    )  # fmt: skip
    assert [row["kind"] for row in frame["data"]["references"]] == ["stack"]
    assert [row["place"].split(" ")[0] for row in register["data"]["references"]] == ["esi"]
    assert path["data"]["steps"][0]["place"] == "global cache.head (+0xc) of who_points"


def test_what_was_asked_wrongly(stages):
    here = stages.get(Board("core", "debug", "system"), "who_points")
    for command, message in (
        ("blocks refs", "an address is missing"),
        ("blocks path", "an address is missing"),
        ("blocks path 5", "0x5 is in no block"),
        ("blocks path &cache", "is in no block"),
        ("blocks refs nosuch", "cannot evaluate 'nosuch'"),
        ("blocks retained --top x", "--top"),
    ):
        assert message in here.text(command).err, command

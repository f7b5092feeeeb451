"""Lists, broken in every way, on every board, against what their program says of them."""

from __future__ import annotations

import re

import pytest

from tests.gdb.answers import ask
from tests.support.boards import Board
from tests.support.glibcs import Unavailable
from tests.support.truth import address

ANY_GLIBC = {"glibc": ("system",)}
KERNEL = Board("core", "debug", "system")
ABSENT = ("absent-file", "no-build-id")  # files that a core only names
SOUND = ("null", "head")
KINDS = {
    "cycle": "list-cycle",
    "bad-pointer": "list-pointer",
    "decode-error": "list-misaligned",
    "forbidden": "list-marker",
}

# Shapes of one's own. `item` is written in names, `raw-item` in numbers: for programs without types.
SHAPES = {
    "item": """
        kind = "list"
        types = ["struct item"]
        [list]
        first = "self"
        [node]
        next = "next"
        prev = "prev"
        [link]
        forbidden = [-1, 1]
        """,
    "raw-item": """
        kind = "list"
        types = []
        [list]
        first = "self"
        [node]
        next = "+0x0"
        prev = "+0x8"
        [link]
        forbidden = [-1, 1]
        alignment = 8
        """,
    "counted": """
        kind = "list"
        types = ["struct counted_list"]
        [list]
        first = "first"
        last = "last"
        entries = "count"
        [node]
        next = "next"
        prev = "prev"
        """,
    "raw-counted": """
        kind = "list"
        types = []
        [list]
        first = "+0x0"
        last = "+0x8"
        entries = "+0x10"
        [node]
        next = "+0x0"
        prev = "+0x8"
        """,
    "xor": """
        kind = "list"
        types = ["struct xor_item"]
        [list]
        first = "self"
        [node]
        next = "both"
        [link]
        xor = true
        """,
    "raw-xor": """
        kind = "list"
        types = []
        [list]
        first = "self"
        [node]
        next = "+0x0"
        [link]
        xor = true
        """,
}

# How the lists of each kind are counted: by names where the program has types, else by numbers.
TYPED = {
    "item": "{name} next --shape own-item",
    "tagged": "{name} next --mask 3",
    "mangled": "{name} next --mangled",
    "xor": "{name} both --shape own-xor",
    "counted": "{name} next",
    "jobs": "{name} next",
    "parcels": "{name} at.tqe_next",
}
RAW = {
    "item": "{first} 0 --shape own-raw-item",
    "tagged": "{first} 0 --raw --mask 3",
    "mangled": "{first} 0 --shape own-raw-item --mangled",
    "xor": "{first} 0 --shape own-raw-xor",
    "counted": "{variable} 0 --shape own-raw-counted",
    "jobs": "{variable} 0 --raw --end head",
    "parcels": "{variable} 8 --raw --head 0",
}


@pytest.fixture(scope="module")
def own_shapes(tmp_path_factory):
    """The command that makes shapes of one's own known."""
    folder = tmp_path_factory.mktemp("shapes")
    for name, text in SHAPES.items():
        lines = [line.strip() for line in text.strip().splitlines()]
        head = [f'name = "own-{name}"', 'summary = "of the tests"', 'source = "testprogs/broken_lists.c"']
        (folder / f"own-{name}.toml").write_text("\n".join([*head, *lines]) + "\n")
    return f"set gx shapes-folder {folder}"


@pytest.fixture
def core(stages):
    """The kernel's core of a program on the machine's own glibc."""

    def take(program, *arguments, board=KERNEL, **how):
        try:
            return stages.get(board, program, arguments, **how)
        except Unavailable as reason:
            pytest.skip(str(reason))

    return take


def count_commands(here, bare):
    commands = {}
    for name, told in here.truth.details["lists"].items():
        words = {**told, "name": name, "first": told["first"] or 0}
        commands[name] = "listcount " + (RAW if bare else TYPED)[told["kind"]].format(**words)
    return commands


def found_end(answer):
    data = answer["data"]
    return data["count"], data["end"], data["address"], data["cycle"]


def told_end(told):
    held = told["held"] if told["end"] != "null" else None
    return told["nodes"], told["end"], held, told["cycle"] or None


def counts_of(here, own_shapes, bare):
    commands = count_commands(here, bare)
    answers = ask(here, *commands.values(), before=[own_shapes])
    return dict(zip(commands, answers))


@pytest.mark.boards(once=("gdbserver",), **ANY_GLIBC)
def test_every_list_ends_as_its_program_says(stage, board, own_shapes):
    here = stage("broken_lists")
    lists = here.truth.details["lists"]
    answers = counts_of(here, own_shapes, board.info == "bare")
    told = {name: told_end(told) for name, told in lists.items()}
    check_guarded(board, answers.pop("guarded"), told.pop("guarded"))
    assert {name: found_end(answer) for name, answer in answers.items()} == told
    for name, answer in answers.items():
        assert answer["complete"], name
        check_problems(answer, lists[name])


def check_problems(answer, told):
    """An end that is not sound is told, with the place; a sound one is not."""
    problems = [one for one in answer["problems"] if one["kind"] not in (*ABSENT, "list-count")]
    if told["end"] in SOUND:
        assert problems == []
        return
    (problem,) = problems
    assert problem["kind"] == KINDS[told["end"]] and problem["address"] == told["held"]
    assert str(told["nodes"]) in problem["message"].replace("\u202f", "").replace(" ", "")


def check_guarded(board, answer, told):
    """A page that nobody may read; gdb's own core has it as a page of zeros."""
    if board.target != "gcore":
        assert found_end(answer) == told and answer["complete"]


@pytest.mark.boards(target=("attach", "core"), info=("debug", "bare"), **ANY_GLIBC)
def test_a_healthy_list_is_told_without_a_problem(stage, board, own_shapes):
    here = stage("broken_lists", "--healthy")
    for name, answer in counts_of(here, own_shapes, board.info == "bare").items():
        assert found_end(answer) == told_end(here.truth.details["lists"][name]), name
        assert [one for one in answer["problems"] if one["kind"] not in ABSENT] == [], name


# Checks.


CHECKED = {
    "backward": "--next next --prev prev",
    "truncated": "",
    "short_counted": "",
    "wrong_tail": "",
    "jobs_backward": "",
    "parcels_tail": "",
    "parcels_backward": "",
}


def numbers_in(problem):
    """The numbers of a problem's message, and its address."""
    text = problem["message"].replace("\u202f", "")
    found = {int(number, 16) for number in re.findall(r"0x[0-9a-f]+", text)}
    found |= {int(number) for number in re.findall(r"\b[0-9]+\b", text)}
    return found | ({address(problem["address"])} if problem["address"] else set())


@pytest.mark.boards(target=("attach", "core"), info=("debug", "plain"), twin=("", "--healthy"), **ANY_GLIBC)
def test_a_check_finds_what_disagrees(stage, board, twin, own_shapes):
    here = stage("broken_lists", *filter(None, [twin]))
    lists = here.truth.details["lists"]
    sound = dict.fromkeys(("jobs", "parcels"), "")
    commands = {name: f"walklist {name} --check {options}" for name, options in {**CHECKED, **sound}.items()}
    for name, answer in zip(commands, ask(here, *commands.values(), before=[own_shapes])):
        told = lists[name]
        problems = [one for one in answer["problems"] if one["kind"] not in ABSENT]
        assert answer["data"]["total"] == told["nodes"], name
        assert answer["findings"] == bool(told["wrong"]), name
        if not told["wrong"]:
            assert problems == [], name
            continue
        wrong, numbers = address(told["wrong"]), set().union(*map(numbers_in, problems))
        assert {wrong, told["says"], told["should"]} & numbers, (name, problems)


# Tables and options without a shape.


@pytest.mark.boards(target=("attach", "gdbserver", "core"), info=("debug", "bare"), **ANY_GLIBC)
def test_bins_by_options_only(stage, board):
    here = stage("broken_lists")
    told, offsets = here.truth.details, here.truth.details["offsets"]
    named = "walklist slots --head chain --next next"
    places = f"--stride {offsets['slot']} --head {offsets['slot.chain']} --next 0"
    numbered = f"walklist {told['slots']} --raw --bins 16 {places}"
    commands = [numbered] if board.info == "bare" else [numbered, named]
    for answer in ask(here, *commands):
        (table,) = answer["data"]["tables"]
        ends = {reason: told["slot_ends"].count(reason) for reason in set(told["slot_ends"])}
        assert table["end"] == ends
        assert (table["bins"], table["walked"]) == (16, sum(told["slot_nodes"]))
        assert table["max_len"] == max(told["slot_nodes"]) == told["slot_nodes"][table["max_bin"]]
        assert len([one for one in answer["problems"] if one["corruption"]]) == 3


def test_elements_of_a_container(core):
    here = core("broken_lists")
    container = "--container 'struct job' link"
    addresses, some, each, fields = ask(
        here,
        f"walklist jobs -a {container}",
        f"walklist jobs -a {container} --where '$elem->number % 10 == 3'",
        f"walklist jobs {container} --where '$elem->number >= 38' --each 'print $elem->cost'",
        f"listprint jobs next --end head {container} --field number --field name --limit 2",
    )
    every = [row["address"] for row in addresses["data"]["elements"]]
    chosen = [row["address"] for row in some["data"]["elements"]]
    link = here.truth.details["offsets"]["job.link"]
    assert len(every) == 40 and address(every[0]) + link == address(
        here.truth.details["lists"]["jobs"]["first"]
    )
    assert chosen == every[3::10]
    assert "38000" in str(each["data"]) and "39000" in str(each["data"]) and "37000" not in str(each["data"])
    assert "job 1" in str(fields["data"]) and "job 2" not in str(fields["data"])


@pytest.mark.boards(target=("attach", "core"), info=("debug",), **ANY_GLIBC)
def test_thirty_two_bits(stages, board, own_shapes):
    try:
        here = stages.get(board, "broken_lists", (), variant="i386")
    except Unavailable as reason:
        pytest.skip(str(reason))
    told = {name: told_end(told) for name, told in here.truth.details["lists"].items()}
    answers = counts_of(here, own_shapes, bare=False)
    check_guarded(board, answers.pop("guarded"), told.pop("guarded"))
    assert {name: found_end(answer) for name, answer in answers.items()} == told


# Variables that the selected frame does not have.

SELECT = """python
for thread in gdb.selected_inferior().threads():
    if thread.ptid[1] == {tid}:
        thread.switch()
frame = gdb.newest_frame()
while frame.name() != "{function}":
    frame = frame.older()
frame.select()
end"""
HIDDEN = ("table", "private_group", "daemon->env->rrset_cache->table", "*daemon->env->msg_cache")


def selected(here, selection):
    """What a user may have selected: nothing, the walker's innermost frame of its own, the keeper's."""
    told = here.truth.details
    return {
        "none": "",
        "walker": SELECT.format(tid=told["table"]["tid"], function=told["walker"]["function"]),
        "keeper": SELECT.format(tid=told["private_group"]["tid"], function=told["private_group"]["function"]),
    }[selection]


def where_found(answer):
    """How the expression was found, or None when it simply was in the selected frame."""
    return next((item["message"] for item in answer["evidence"] if item["subject"] == "expression"), None)


@pytest.mark.boards(info=("debug", "plain"), selection=("none", "walker", "keeper"), **ANY_GLIBC)
def test_variables_of_other_frames_and_threads(stage, board, selection, tmp_path):
    here = stage("hidden_table", "--entries", "2000")
    told = here.truth.details
    script = tmp_path / "select.gdb"
    script.write_text(f"{selected(here, selection)}\n")
    answers = ask(here, *(f"walklist {name}" for name in HIDDEN), before=[f"source {script}"])
    for name, answer in zip(HIDDEN, answers):
        assert answer["data"] and answer["data"]["total"] == 2000, (name, answer.get("error"))
    tables = [[row["address"] for row in answer["data"]["tables"]] for answer in answers]
    assert tables[0] == [told["table"]["address"]]
    assert [len(each) for each in tables[1:]] == [4, 4, 4]
    assert (selection == "keeper") == (where_found(answers[1]) is None)
    assert "of thread" in where_found(answers[0])


@pytest.mark.boards(target=("attach", "core"), info=("debug", "plain"), twin=("", "--healthy"), **ANY_GLIBC)
def test_triage_looks_into_frames_and_behind_pointers(stage, board, twin):
    here = stage("hidden_table", *filter(None, [twin]))
    (triage,) = ask(here, "triage")
    named = [finding["evidence"][-1] for finding in triage["data"]["findings"]]
    if twin:
        assert named == []
        return
    assert {finding["kind"] for finding in triage["data"]["findings"]} == {"stale-hash"}
    assert sorted(text.split()[-1].lstrip("*") for text in named) == [
        "daemon->env->rrset_cache->table",
        "table",
    ]


# Conduct.

STATE = """python
def state():
    thread, frame = gdb.selected_thread(), gdb.selected_frame()
    found = [thread.num, frame.level(), gdb.execute("show language", to_string=True)]
    for each in gdb.selected_inferior().threads():
        each.switch()
        found.append(gdb.execute("info registers", to_string=True))
    thread.switch()
    frame.select()
    for line in gdb.execute("info proc mappings", to_string=True).splitlines():
        fields = line.split()
        if len(fields) > 4 and "rw-" in fields[4] and fields[0].startswith("0x"):
            start, end = int(fields[0], 16), int(fields[1], 16)
            found.append(hashlib.md5(gdb.selected_inferior().read_memory(start, end - start)).hexdigest())
    return found
import hashlib
if "kept" in globals():
    print("SAME", state() == kept)
else:
    kept = state()
end"""


def test_nothing_of_a_live_target_changes(core, own_shapes, tmp_path):
    here = core("hidden_table", "--entries", "2000", board=Board("attach", "debug", "system"))
    script = tmp_path / "state.gdb"
    script.write_text(f"{STATE}\n")
    commands = [
        *(f"{command} {name}" for command in ("walklist --check", "slabskew") for name in HIDDEN),
        "walklist table -a --where '$elem->hash == 0x2d5a17'",
        "walklist table --each 'print *$elem' --limit 3",
        "listcount table->lru_start lru_next",
        "listprint table->lru_start lru_next --field hash",
        "gx shapes guess 'struct lruhash_entry'",
        "triage",
    ]
    steps = [
        step for command in commands for step in (f"gx safe {command} --json=/dev/null", f"source {script}")
    ]
    output = here.text(own_shapes, "thread 2", "frame 1", f"source {script}", *steps)
    same = [line for line in output.out.splitlines() if line.startswith("SAME")]
    assert same == ["SAME True"] * len(commands), output

"""``gx breakpoints``: the program goes on to its end whatever fails, and events are as many as it counted."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from tests.gdb.bridged import DATA, gdb, need_gdb
from tests.support.gdbrun import read_envelope

EVENT = r"^[\d:]{8}\.\d{3} thread (?P<thread>\d+) \((?P<name>[^)]+)\) breakpoint (?P<number>\d+): (?P<figures>.*)$"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    need_gdb()
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    path = tmp_path_factory.mktemp("chains") / "chains"
    source = str(DATA / "chains.c")
    subprocess.run(["gcc", "-g", "-O0", "-pthread", "-Wall", "-Werror", source, "-o", str(path)], check=True)
    return path


def line_of(mark):
    lines = (DATA / "chains.c").read_text().splitlines()
    return f"chains.c:{next(number for number, line in enumerate(lines, 1) if mark in line)}"


INSERTED, COMPUTED = line_of("/* inserted */"), line_of("/* computed */")
CHAIN = f"gx breakpoints chain {INSERTED} --head 'bins[bin]' --next next --longer 8"
HASH = f"gx breakpoints hash {INSERTED} --stored entry->hash --computed-at {COMPUTED} --computed value"
EVERY = "gx breakpoints every insert --hits 7 --head 'bins[bin]' --next next"


def played(program, *commands):
    """Run commands, the program among them; return its own count, the events and gdb's output."""
    output = gdb(*commands, options=[str(program)])
    assert "Traceback" not in output.err, output
    found = re.search(r'\{"visits.*?\}', output.out)
    events = [match.groupdict() for match in re.finditer(EVENT, output.out, re.MULTILINE)]
    return json.loads(found[0]) if found else None, events, output


def test_a_chain_that_grows_too_long(program):
    truth, events, output = played(program, CHAIN, "run")
    assert "exited normally" in output.out, output
    assert len(events) == truth["longer"] > 0
    lengths = [int(re.fullmatch(r"(\d+) entries from bins\[bin\]", event["figures"])[1]) for event in events]
    assert min(lengths) == 9 and {event["number"] for event in events} == {"1"}
    assert {event["thread"] for event in events} == {"2", "3"} and {event["name"] for event in events} == {"chains"}


def test_a_hash_that_was_not_computed_anew(program):
    truth, events, output = played(program, HASH, "run")
    assert len(events) == truth["stale"] == 12, output
    for event in events:
        stored, computed = re.fullmatch(r"stored (0x\w+), computed last (0x\w+)", event["figures"]).groups()
        assert stored != computed


def test_the_healthy_twin_is_silent(program):
    """The same breakpoints where nothing is too long and every hash is the last computed."""
    healthy = f"gx breakpoints hash {COMPUTED} --stored value --computed-at finish_hash --computed value"
    _, events, output = played(program, CHAIN.replace("--longer 8", "--longer 500"), healthy, "run")
    assert events == [] and "exited normally" in output.out, output


def test_every_kth_hit(program):
    truth, events, output = played(program, EVERY, "run")
    assert len(events) == truth["inserted"] // 7, output
    hits = [int(re.match(r"hit (\d+), \d+ entr(y|ies) from ", event["figures"])[1]) for event in events]
    assert hits == [7 * (number + 1) for number in range(len(events))]


def test_it_goes_on_whatever_fails(program):
    """Expressions without a value, a command that does not exist, one that fails: all told, none stops it."""
    fails = "--run nosuch --run 'print *(int *)0' --run 'gx safe x' --run 'echo went on\\n'"
    commands = [
        f"gx breakpoints chain visit --head head --next nosuch --longer 1 {fails}",
        f"gx breakpoints every {line_of('/* visited */')} --hits 1 --head 'where[0]->next' --next next {fails}",
        f"gx breakpoints hash visit --stored where[0]->hash --computed-at visit --computed where[1]->hash {fails}",
    ]
    truth, events, output = played(program, *commands, "run")
    assert truth["visits"] == 9 and "exited normally" in output.out, output
    every = [event for event in events if event["number"] == "2"]
    assert len(every) == 9 and len(re.findall("^went on$", output.out, re.MULTILINE)) == 9
    assert sum("? entries from where[0]->next (Cannot access memory at" in event["figures"] for event in every) == 7
    assert output.err.count('Undefined command: "nosuch"') >= 9
    assert "struct node has no member nosuch" in output.err
    assert "Error in testing" not in output.err


def test_the_plain_commands_do_the_same(program, tmp_path):
    """What the answer prints can be sourced in place of the command."""
    output = gdb(CHAIN, EVERY, options=[str(program)])
    script = tmp_path / "plain.gdb"
    blocks = re.findall(r"^break .*?^end$", output.out, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2 and all("continue" in block and "gx safe" in block for block in blocks), output
    script.write_text("\n".join(blocks) + "\n")
    truth, events, output = played(program, f"source {script}", "run")
    by_number = [sum(event["number"] == number for event in events) for number in "12"]
    assert by_number == [truth["longer"], truth["inserted"] // 7], output


def test_quotes_in_expressions(program):
    quoted = CHAIN.replace("'bins[bin]'", """"bins[bin + ('a' - 'a') + (\\"x\\"[1])]\"""")
    truth, events, output = played(program, quoted, "run")
    assert len(events) == truth["longer"] > 0, output
    assert all("from bins[bin + ('a' - 'a') + (\"x\"[1])]" in event["figures"] for event in events)


def test_stop_stops(program):
    _, events, output = played(program, CHAIN + " --stop", "run", "print bin", "info breakpoints")
    assert len(events) == 1 and "$1 = " in output.out and "exited normally" not in output.out, output
    assert "breakpoint already hit 1 time" in output.out


def test_listing_and_deleting(program, tmp_path):
    files = [tmp_path / f"{number}.json" for number in range(5)]
    listing = "gx breakpoints list --json="
    played(
        program, f"{CHAIN} --json={files[0]}", HASH, EVERY, "disable 1", f"{listing}{files[1]}", "run",
        f"{listing}{files[2]}", f"gx breakpoints delete 3 --json={files[3]}", "delete 1", f"{listing}{files[4]}",
    )  # fmt: skip
    rows = [read_envelope(file, None)["data"]["breakpoints"] for file in files]
    assert [row["number"] for row in rows[0]] == [1]
    assert rows[0][0]["script"].startswith(f"break {INSERTED} if $gx_listlen(")
    kinds = [("chain", "disabled"), ("note", "enabled"), ("hash", "enabled"), ("every", "enabled")]
    assert [(row["kind"], row["state"]) for row in rows[1]] == kinds
    assert [row["events"] for row in rows[1]] == [0, 0, 0, 0]
    assert [row["events"] for row in rows[2]] == [0, 0, 12, 17]
    assert [row["number"] for row in rows[3]] == [1, 4], "a hash goes with what it compares with"
    assert [row["number"] for row in rows[4]] == [4]


def test_one_is_deleted_without_the_others(program):
    mistake = HASH.replace("entry->hash", "nosuch")  # its breakpoint for the computed value is taken back
    _, _, output = played(program, CHAIN, EVERY, mistake, "gx breakpoints delete 1", "info breakpoints")
    left = output.out.split("Num")[-1]
    assert "$gx_every" in left and "$gx_listlen" not in left and "$gx_note" not in left, output


def test_deleting_all(program):
    _, _, output = played(program, "break main", CHAIN, EVERY, "gx breakpoints delete all", "info breakpoints")
    left = output.out.split("Breakpoints: none")[1]
    assert " in main at " in left and "insert" not in left and "chains.c:" in left, output


def test_a_location_to_come(program):
    _, _, output = played(
        program, "set breakpoint pending on", CHAIN.replace(INSERTED, "nosuch"), "gx breakpoints list", "run"
    )
    assert "pending" in output.out and "exited normally" in output.out, output


MISTAKES = [
    ("", "an action is missing; write chain, hash, every, list or delete"),
    ("chian x", "no action 'chian'; write chain, hash, every, list or delete"),
    ("chain", "chain takes a location; gx breakpoints chain LOCATION …"),
    ("chain insert if bin", "chain takes one location, got 3: quote it; gx breakpoints chain LOCATION …"),
    ("chain 'insert if bin' --head entry --next next --longer 1",
     "'insert if bin' has a condition of its own; name the location alone"),
    ("chain insert", "--head and --next and --longer missing; gx breakpoints -h has an example of each"),
    ("chain nosuch --head a --next b --longer 1",
     "Function \"nosuch\" not defined; `set breakpoint pending on` allows libraries to come"),
    ("chain insert --head nosuch --next b --longer 1", "'nosuch' at insert: No symbol \"nosuch\" in current context"),
    ("chain insert --head bin=1 --next b --longer 1", "'bin=1' would assign; gdbext never writes"),
    ("chain insert --head bin --next b --longer x", "--longer: 'x' is not a number"),
    ("every insert --hits 0 --head entry --next next", "--hits is 0; write 1 or more"),
    ("hash insert --stored entry->hash --computed-at finish_hash --computed nosuch",
     "'nosuch' at finish_hash: No symbol \"nosuch\" in current context"),
    ("hash insert --stored nosuch --computed-at finish_hash --computed value",
     "'nosuch' at insert: No symbol \"nosuch\" in current context; `info scope insert` lists what has a name there"),
    ("list 3", "list takes no argument, got '3'; gx breakpoints list"),
    ("delete", "which?; gx breakpoints delete NUMBER…, or delete all"),
    ("delete 77", "breakpoint 77 was not set by gx breakpoints; there is none"),
    ("delete x", "'x' is not a number; write 0 or more, or 0x…"),
]  # fmt: skip


def test_mistakes_are_one_line_and_leave_no_breakpoint(program):
    commands = [f"gx breakpoints {text}" for text, _ in MISTAKES]
    output = gdb("start", *commands, "info breakpoints", options=[str(program)])
    told = [line for line in output.err.splitlines() if line.startswith("gdbext: ")]
    assert len(told) == len(MISTAKES), output
    for line, (_, message) in zip(told, MISTAKES):
        assert line.startswith(f"gdbext: gx breakpoints: {message}"), line
    assert "No breakpoints or watchpoints." in output.out


def test_two_at_one_place_are_told(program):
    """gdb itself drops the commands of one when the other's go on."""
    _, _, output = played(program, CHAIN, HASH, EVERY)
    assert output.out.count("breakpoint 1 is at the same place: of two that act at once, gdb") == 1, output
    assert "is at the same place" not in output.out.split("break insert")[1]


def test_only_those_of_ours_are_deleted(program):
    output = gdb("break main", CHAIN, "gx breakpoints delete 1", options=[str(program)])
    assert "breakpoint 1 was not set by gx breakpoints; those are 2" in output.err, output

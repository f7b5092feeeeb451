"""``$gx_listlen`` and its neighbours: right on sound lists, 0 on broken ones, and never the end of a condition.

The program counts for itself what a breakpoint should meet.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from tests.gdb.bridged import DATA, gdb, need_gdb, python

LIMIT = 1_000_000  # as documented


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    need_gdb()
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    path = tmp_path_factory.mktemp("chains") / "chains"
    source = str(DATA / "chains.c")
    subprocess.run(["gcc", "-g", "-O0", "-pthread", "-Wall", "-Werror", source, "-o", str(path)], check=True)
    return path


def counting(where, condition):
    """Return the commands that count the hits with a true condition in $met, and go on."""
    return [f"break {where} if {condition}", "commands\nsilent\nset $met = $met + 1\ncontinue\nend"]


def sourced(folder, *lines):
    path = folder / "lines.gdb"
    path.write_text("\n".join(lines) + "\n")
    return f"source {path}"


def ran(program, folder, *lines, after=()):
    """Run the program to its end under breakpoints; return its own words, and gdb's."""
    script = sourced(folder, "set $met = 0", *lines, "run", 'printf "MET %d\\n", $met', *after)
    output = gdb(script, options=[str(program)])
    assert "exited normally" in output.out, output
    truth = json.loads(re.search(r'\{"visits.*?\}', output.out)[0])
    return truth, int(re.search(r"^MET (\d+)$", output.out, re.MULTILINE)[1]), output


@pytest.fixture(scope="module")
def asked(program, tmp_path_factory):
    """Return a function: the answer and the reason of each expression, at a place where all lists are built."""
    folder = tmp_path_factory.mktemp("asked")

    def ask(*expressions):
        code = ["import gdb", "def one(text):", "    print('ANSWER', gdb.parse_and_eval(text), end=' ')"]
        code += ["    why = gdb.convenience_variable('gx_why')", "    print(why and why.string())"]
        code += [f"one({text!r})" for text in expressions]
        output = gdb(
            f"file {program}", "break visit", "run", "up", python(folder / "ask.py", "\n".join(code) + "\n")
        )
        lines = re.findall(r"^ANSWER (\S+) (.*)$", output.out, re.MULTILINE)
        assert len(lines) == len(expressions), output
        return [(int(number), None if why == "None" else why) for number, why in lines], output

    return ask


SOUND = [
    ('$gx_listlen(sound, "next")', 40),
    ('$gx_listlen("sound", "next")', 40),
    ('$gx_listlen(sound, "other")', 40),  # of an anonymous structure
    ('$gx_listlen(sound, "as_number")', 40),
    ('$gx_listlen(sound, &((struct node *)0)->next)', 40),
    ('$gx_listlen((unsigned long)sound, 8)', 40),
    ('$gx_listlen((unsigned long)sound, "+0x8")', 40),
    ('$gx_listlen(*sound, "next")', 39),  # a structure is a head: what follows is counted
    ('$gx_listlen(ring, "next")', 7),
    ('$gx_listlen(ring, "prev")', 7),
    ('$gx_listlen("ring", "next")', 7),
    ('$gx_listlen(empty_ring, "next")', 0),
    ("$gx_listlen(ring)", 7),  # by the shape of its type
    ('$gx_listlen("empty_ring")', 0),
    ('$gx_listlen(circle, "link.next")', 3),  # links that lead to links
    ('$gx_listlen(&circle[1].link, "next")', 2),
    ('$gx_listlen((struct node *)0, "next")', 0),
]  # fmt: skip


def test_sound_lists(asked):
    answers, _ = asked(*(expression for expression, _ in SOUND))
    assert answers == [(number, None) for _, number in SOUND]


BROKEN = [
    ('$gx_listlen(self_loop, "next")', LIMIT, "a cycle of 1 nodes"),
    ('$gx_listlen(self_loop, "next", 17)', 17, "a cycle of 1 nodes"),
    ('$gx_listlen(rho, "next")', LIMIT, "a cycle of 27 nodes"),
    ('$gx_listlen(ring.next, "next")', LIMIT, "a cycle of 8 nodes"),  # nothing tells that one is the head
    ('$gx_listlen(sound, "next", 30)', 30, "stopped at the limit of 30 nodes"),
    ('$gx_listlen(sound, "next", 40)', 40, None),
    ('$gx_listlen(dangling, "next")', 0, "bad pointer 0x[0-9a-f]+ after 25 nodes"),
    ('$gx_listlen(cut, "next")', 0, "bad pointer 0x[0-9a-f]+ after 0 nodes"),
    ('$gx_listlen(wild, "next")', 0, "bad pointer 0x10 after 0 nodes"),
    ('$gx_listlen(misled, "next")', 0, "bad pointer"),
    ('$gx_listlen((unsigned long)-1, 8)', 0, "bad pointer 0xffffffffffffffff after 0 nodes"),
    ('$gx_listlen("wild->next->next", "next")', 0, "Cannot access memory at address 0x18"),
    ('$gx_listlen("*wild", "next")', 0, "cannot read 8 bytes of memory at 0x18"),
    ('$gx_listlen(sound, "nxt")', 0, "struct node has no member nxt"),
    ('$gx_listlen(sound, "hash")', 0, "hash of struct node is no pointer but uint32_t|unsigned int"),
    ('$gx_listlen(sound, "next.next")', 0, "has no member next"),
    ('$gx_listlen(sound, "0xzz")', 0, "'0xzz' is no offset; write it as 0x38"),
    ('$gx_listlen("nosuch", "next")', 0, "cannot evaluate 'nosuch': No symbol 'nosuch' in current context"),
    ('$gx_listlen("visit(0, 0)", "next")', 0, "cannot evaluate .*Cannot call functions in the program"),
    ('$gx_listlen("sound = 0", "next")', 0, "'sound = 0' would assign; gdbext never writes"),
    ('$gx_listlen("", "next")', 0, "."),
    ('$gx_listlen($nothing, "next")', 0, "the value is void"),
    ('$gx_listlen(1.5, "next")', 0, "a value of type double is no head of a list"),
    ('$gx_listlen(1, "next")', 0, "a value of type int has no member next"),
    ('$gx_listlen(sound, 1.5)', 0, "a value of type double is no number"),
    ('$gx_listlen(sound, "next", 0)', 0, "LIMIT is 0; write 1 or more"),
    ('$gx_listlen(sound, "next", -1)', 0, "LIMIT is -1; write 1 or more"),
    ('$gx_listlen(sound, "next", 1, 2)', 0, "4 arguments; write .gx_listlen"),
    ("$gx_listlen()", 0, "0 arguments; write .gx_listlen"),
    ("$gx_listlen(sound)", 0, "no shape fits struct node"),
    ("$gx_maxbin(sound)", 0, "no shape fits struct node"),
    ("$gx_maxbin(ring)", 0, "is no table; .gx_listlen is for lists"),
    ('$gx_maxbin("*wild")', 0, "no shape fits struct node"),
    ("$gx_maxbin(5)", 0, "is a plain address"),
    ("$gx_maxbin()", 0, "0 arguments; write .gx_maxbin"),
    ('$gx_container_of(circle, "struct item", "nosuch")', 0, "struct item has no member nosuch"),
    ('$gx_container_of(circle, "struct nosuch", "link")', 0, "No struct type named nosuch"),
    ('$gx_container_of(circle, 5, "link")', 0, "TYPE is no text; write it in double quotes"),
    ('$gx_container_of(0, "struct item", "link")', 0, "null pointer"),
    ('$gx_every("zero", 0)', 0, "COUNT is 0"),
    ('$gx_differs("never noted", 1)', 0, "this thread has noted nothing"),
    ('$gx_note("x", ring)', 0, "a value of type struct list_head is no number"),
]  # fmt: skip


def test_what_cannot_be_answered_is_0_and_says_why(asked):
    answers, output = asked(*(expression for expression, _, _ in BROKEN))
    for (expression, number, why), answer in zip(BROKEN, answers):
        assert answer[0] == number, (expression, answer)
        told = answer[1] and answer[1].replace('\\"', "'").replace('"', "'")
        assert told is None if why is None else re.search(why, told), (expression, answer)
    assert "Traceback" not in output.err and "defect" not in output.err


def test_a_mistake_is_told_once(asked):
    mistake = '$gx_listlen(sound, "nxt")'
    _, output = asked(mistake, mistake, mistake, '$gx_listlen(wild, "next")')
    told = [line for line in output.err.splitlines() if "gx_listlen" in line]
    assert told == ['gdbext: $gx_listlen(HEAD, "MEMBER", LIMIT): struct node has no member nxt'], output


def test_container_of_notes_and_counts(asked):
    answers, _ = asked(
        '$gx_container_of(ring.next, "struct item", "link") == (unsigned long)&items[6]',
        '$gx_container_of("ring.prev", "struct item", "link.next") == (unsigned long)&items[0]',
        '$gx_note("n", 5)',
        '$gx_differs("n", 5)',
        '$gx_differs("n", (char)5)',
        '$gx_differs("n", 6)',
        '$gx_note("n", narrow)',
        '$gx_differs("n", negative)',  # the same four bytes
        '$gx_differs("n", "(unsigned long)narrow + 0x500000000")',  # the same in four bytes
        '$gx_note("n", "nosuch")',
        '$gx_differs("n", 77)',  # what could not be noted is unknown
        *['$gx_every("e", 3)'] * 7,
    )
    assert [number for number, _ in answers] == [1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0]


def test_the_longest_bin_of_a_broken_table(tmp_path):
    """Bins of three entries, a cycle of two, and one that leads nowhere; then a table that is none."""
    program = tmp_path / "printed"
    subprocess.run(["gcc", "-g", "-O0", str(DATA / "printed.c"), "-o", str(program)], check=True)
    asked = ("$gx_maxbin(table)", "$gx_why", "$gx_bin", "$gx_maxbin(wild_table)", "$gx_why", "$gx_bin",
             "$gx_maxbin(&zero_table)")  # fmt: skip
    steps = [step for one in asked for step in (f"output {one}", "echo \\n")]
    output = gdb(f"file {program}", "break built", "run", *steps, "set var bins[3].overflow_list = 0", *steps[:6])
    lines = output.out.splitlines()[-10:]
    assert lines[0] == str(LIMIT) and lines[1].startswith('"bin 3 is a cycle') and lines[2] == "3", output
    assert lines[3] == "0" and "1152921504606846976 bins" in lines[4] and lines[5] == "void", output
    assert lines[6] == "0", output
    assert lines[7] == "3" and lines[8] == '"bin 5 cannot be followed to its end"' and lines[9] == "1", output


# In conditions of breakpoints.


def test_a_condition_is_false_on_a_bad_pointer(program, tmp_path):
    """Of nine lists two are longer than 30, the rho list is endless; the program is not stopped once."""
    truth, met, output = ran(program, tmp_path, *counting("visit", '$gx_listlen(head, "next", 50) > 30'))
    assert truth["visits"] == 9 and met == 4, output  # sound, self_loop, rho, sound->next
    assert "Error in testing" not in output.err


@pytest.mark.parametrize("condition, times", [
    # `where` is 0x18, or leads in turn to null, the rho list, an unmapped page, and code
    ('$gx_listlen("where[0]->next", "next") > 30', 1),
    ('$gx_listlen("(*where)->next->next->next", "next") > 30', 1),
    ('$gx_listlen("nosuch", "next") > 30', 0),
    ('$gx_listlen(head, "nosuch") > 30', 0),
    ("$gx_listlen() > 30", 0),
    ("$gx_maxbin(head) > 0", 0),
    ('$gx_maxbin("*where") > 0', 0),
    ('$gx_container_of("where[0]->next", "struct node", "hash") > 0', 2),
    ('$gx_note("a", "where[0]->hash")', 0),
    ('$gx_differs("never", "where[0]->hash")', 0),
])  # fmt: skip
def test_nothing_in_a_condition_stops_the_program(program, tmp_path, condition, times):
    truth, met, output = ran(program, tmp_path, *counting("visit", condition))
    assert truth["visits"] == 9 and met == times, output
    assert "Error in testing" not in output.err and "Traceback" not in output.err


def test_long_chains_are_met_as_often_as_the_program_says(program, tmp_path):
    condition = '$gx_listlen("bins[bin]", "next", 9) > 8'
    truth, met, output = ran(program, tmp_path, *counting(line_of("/* inserted */"), condition))
    assert truth["inserted"] == 120 and met == truth["longer"] > 0, output


def test_each_thread_notes_for_itself(program, tmp_path):
    noting = f'break {line_of("/* computed */")} if $gx_note("hash", value)'
    differs = counting(line_of("/* inserted */"), '$gx_differs("hash", entry->hash)')
    truth, met, output = ran(program, tmp_path, noting, *differs)
    assert truth["stale"] == met == 12, output


def test_every_kth_hit(program, tmp_path):
    truth, met, output = ran(program, tmp_path, *counting("insert", '$gx_every("insert", 7)'))
    assert met == truth["inserted"] // 7, output


def line_of(mark):
    lines = (DATA / "chains.c").read_text().splitlines()
    return f"chains.c:{next(number for number, line in enumerate(lines, 1) if mark in line)}"


# Time.


def test_the_time_budget(program, tmp_path):
    """A budget of a second ends what would take longer; what was counted until then is the answer."""
    code = (
        "import gdb, time\nfrom gdbext.structures.walk import counting\ncounting._ROUND, counting._PAGE = 1, 16\n"
        "from gdbext.bridge.functions import parameters\nreal = parameters.memory_reader()\n"
        "def slow():\n    def read(address, size):\n        time.sleep(0.1)\n        return real(address, size)\n"
        "    return read\nparameters.memory_reader = slow\n"
        "began = time.monotonic()\n"
        "print('ANSWER', gdb.parse_and_eval('$gx_listlen(sound, \"next\")'), gdb.convenience_variable('gx_why'))\n"
        "print('TOOK', time.monotonic() - began < 5)\n"
    )
    slower = python(tmp_path / "slow.py", code)
    output = gdb(f"file {program}", "break visit", "run", "set gx function-seconds 1", slower)
    number, why = re.search(r"^ANSWER (\d+) (.*)$", output.out, re.MULTILINE).groups()
    assert 0 < int(number) < 40 and f"stopped after 1 s and {number} nodes" in why, output
    assert "TOOK True" in output.out


def test_help_says_how(program):
    output = gdb("help function gx_listlen", "help function gx_maxbin", "show gx function-seconds")
    assert 'Usage: $gx_listlen (HEAD, "MEMBER", LIMIT)' in output.out, output
    assert "Usage: $gx_maxbin (TABLE)" in output.out and ": 1" in output.out

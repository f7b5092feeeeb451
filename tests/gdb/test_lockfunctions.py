"""``$gx_waiters`` in conditions of breakpoints, where the other threads run on, and at a stop, where they do not."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.gdb.bridged import DATA, gdb, need_gdb, python

LOCKS = ("mutex", "rwlock", "condition", "semaphore", "spin")
COUNTS = ("mutexes", "rwlocks", "conditions", "semaphores", "spins")
TICKS = 10
RIGHT = " && ".join(f"$gx_waiters({lock}) == {count}" for lock, count in zip(LOCKS, COUNTS))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    need_gdb()
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    path = tmp_path_factory.mktemp("waiters") / "waiters"
    flags = ["-g", "-O1", "-pthread", "-Wall", "-Werror"]
    subprocess.run(["gcc", *flags, str(DATA / "waiters.c"), "-o", str(path)], check=True)
    return path


def counted(folder, condition, start, program):
    """Return how often a condition was true, and what gdb wrote."""
    script = folder / "lines.gdb"
    lines = ["set $met = 0", *start, f"break tick if {condition}"]
    lines += ["commands", "silent", "set $met = $met + 1", "continue", "end", "continue", 'printf "MET %d\\n", $met']
    script.write_text("\n".join(lines) + "\n")
    output = gdb(f"source {script}", options=[str(program)])
    assert "exited normally" in output.out, output
    return int(re.search(r"^MET (\d+)$", output.out, re.MULTILINE)[1]), output


@pytest.mark.parametrize("how", ["native", "gdbserver"])
def test_every_lock_is_counted_at_every_hit(program, tmp_path, how):
    start = ["break main", "run"]
    if how == "gdbserver":
        if not shutil.which("gdbserver"):
            pytest.skip("no gdbserver on this machine")
        start = [f"target remote | exec gdbserver --once - {program}"]
    met, output = counted(tmp_path, RIGHT, start, program)
    assert met == TICKS
    met, _ = counted(tmp_path, "$gx_waiters(&mutex) == 2", start, program)
    assert met == TICKS - 5  # from the sixth thread on


def test_at_a_stop_and_with_nonsense(program, tmp_path):
    asked = {
        "mutex": "2 None",
        "&mutex": "2 None",
        "(unsigned long)&mutex": "2 None",
        '"mutex"': "2 None",
        "spin": "2 None",
        '"&spin"': "2 None",
        "guard": "0 None",
        "0": "0 null pointer",
        "16": "0 cannot read 4 bytes of lock at 0x10",
        '"nosuch"': "0 cannot evaluate 'nosuch': No symbol \"nosuch\" in current context",
        "1.5": "0 a value of type double is no number",
        "$nothing": "0 the value is void",
        "mutex, 1": "0 2 arguments; write $gx_waiters(LOCK)",
    }
    code = ["import gdb", "def one(text):"]
    code += ["    print('ANSWER', gdb.parse_and_eval(f'$gx_waiters({text})'), end=' ')"]
    code += ["    why = gdb.convenience_variable('gx_why')", "    print(why and why.string())"]
    code += [f"one({text!r})" for text in asked]
    path = tmp_path / "ask.py"
    stop = ["break tick if spins == 2", "run", "thread 2", "up"]
    place = ["python print('AT', gdb.selected_thread().num, gdb.selected_frame().level())"]
    output = gdb(f"file {program}", *stop, *place, python(path, "\n".join(code) + "\n"), *place)
    assert re.findall(r"^ANSWER (.*)$", output.out, re.MULTILINE) == list(asked.values()), output
    assert re.findall(r"^AT (.*)$", output.out, re.MULTILINE) == ["2 1"] * 2
    assert "Traceback" not in output.out + output.err


def test_without_a_process(program):
    output = gdb(f"file {program}", "print $gx_waiters(1)", "print $gx_why", "help function gx_waiters")
    assert "$1 = 0" in output.out and "there is no process" in output.out
    assert "Usage: $gx_waiters (LOCK)" in output.out

"""Names that are made to harm a terminal: none of their bytes reaches one, whatever is asked and whoever prints it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gdbext.grammar.catalogue import COMMANDS
from tests.gdb.bridged import gdb, need_gdb, python
from tests.support import gdbrun
from tests.support.cache import CHECKOUT

SOURCE = Path(__file__).parent / "data" / "hostile_names.c"
HARM = b"\x1b[31m\x07\n\r\x7f\xc2\x9b\xff\xe2\x80\xae"  # colours, bell, lines, DEL, a C1 control, no character, bidi
WORDS = {"blocks at": "$sp", "walklist": "$sp next", "listprint": "$sp next", "listcount": "$sp next"}


class Named:
    def __init__(self, folder):
        self.folder = os.fsencode(folder) + b"/" + HARM
        os.mkdir(self.folder)
        self.exe, self.core = self.folder + b"/p" + HARM, self.folder + b"/core" + HARM
        subprocess.run(["gcc", "-g", "-pthread", "-o", self.exe, SOURCE], check=True)
        threads = [b"t" + HARM[:14], HARM[:15], HARM[9:]]
        words = [self.exe, self.folder + b"/f" + HARM, *threads]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdout.readline() == b"ready\n"
        plain = os.path.join(folder, "plain")
        gdbrun.run_gdb(["-p", str(self.process.pid), "-ex", f"generate-core-file {plain}"])
        os.rename(plain, self.core)


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    need_gdb()
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    made = Named(tmp_path_factory.mktemp("names"))
    yield made
    gdbrun.kill_group(made.process)


def check_harmless(output):
    text = output.decode("utf-8")
    wrong = sorted({char for char in text if not char.isprintable() and char not in "\n\t"})
    assert not wrong, (wrong, text)
    return text


def ask(*words):
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "LC_ALL": "C.UTF-8"}
    line = [sys.executable, "-m", "gdbext.cli", *words, "--gdb", gdbrun.gdb_program()]
    done = subprocess.run(line, capture_output=True, env=environment, timeout=120)
    check_harmless(done.stderr)
    assert b"Traceback" not in done.stderr, done.stderr
    return done.returncode, check_harmless(done.stdout), done.stderr.decode()


@pytest.mark.parametrize("how", [(), ("--json",)])
@pytest.mark.parametrize("command", ["triage", "rss", "lockwait", "blocks types"])
def test_the_program_over_a_core(named, command, how):
    for exe in ([], ["--exe", named.exe]):
        status, out, _ = ask(*command.split(), named.core, *exe, *how)
        assert status in (0, 1, 3)
        assert "\\xff" in out
        if how:
            json.dumps(json.loads(out), ensure_ascii=False).encode("utf-8")  # no half of a surrogate


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_the_program_over_a_process(named, how):
    for command in ("triage", "lockwait", "rss"):
        status, out, err = ask(command, "-p", str(named.process.pid), *how)
        assert status in (0, 1, 3), err
        assert command != "rss" or "\\xff" in out


def test_every_command_in_gdb(named, tmp_path):
    link = tmp_path / "core"
    link.symlink_to(os.fsdecode(named.core))
    exe = tmp_path / "exe"
    exe.symlink_to(os.fsdecode(named.exe))
    asked = [f"gx {spec.name} {WORDS.get(spec.name, '')}" for spec in COMMANDS if spec.name != "breakpoints"]
    marks = [step for line in asked for step in ("-ex", f"gx safe {line}")]
    out, err = tmp_path / "out", tmp_path / "err"
    to = f"((1, {str(out)!r}), (2, {str(err)!r}))"
    begin = f"python import os; [os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), to) for to, path in {to}]"
    line = ["-se", str(exe), "-core", str(link), *gdbrun.load_pack(), "-ex", begin, *marks]
    gdbrun.run_gdb(line, timeout=240)
    said = check_harmless(err.read_bytes())
    assert "Traceback" not in said and "\\xff" in check_harmless(out.read_bytes())


NAMES = """
import gdb
from gdbext.starting import dependencies
dependencies.load(*dependencies.NEEDED)
from gdbext.bridge.ports.rootnames import GdbRootNames
from gdbext.bridge.ports.typeclues import GdbClues
for name in ("_Z1a\\nshell touch harmed", "_Z1a\\n!touch harmed", "_Z\\udcff"):
    print(GdbRootNames(None, None).readable(name) == name, GdbClues(None, None, None, 0).demangle(name))
"""


def test_a_name_that_ends_the_line_is_no_command_of_gdbs(tmp_path):
    """Linkers' names and those of type information are given to gdb's ``demangle``; gdb runs line by line."""
    output = gdb(python(tmp_path / "names.py", NAMES), cwd=tmp_path)
    assert output.out.count("True None\n") == 3 and not (tmp_path / "harmed").exists(), output

"""The ``gdbext`` program with a gdb that does what the test says."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import lzma
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from pathlib import Path

import pytest

from gdbext import __version__
from gdbext.errors import TooLargeError
from gdbext.grammar import catalogue
from gdbext.grammar.usage import shell_help
from tests.support.rest import wait_until

from .elfs import Maker
from .test_corefile import BASE, OTHER, OWN

ROOT = Path(__file__).resolve().parents[3]
FAKE = Path(__file__).with_name("fakegdb.py")
ENVELOPE = {
    "schema": "gdbext/triage/2",
    "tool": {"version": "9"},
    "target": {"exe": None, "build_id": None, "pid": None, "core": None, "time": None},
    "data": {"x": 1},
    "evidence": [],
    "problems": [],
    "held_seconds": None,
    "complete": True,
    "findings": False,
    "status": 0,
}


def envelope(**changes):
    return json.dumps({**ENVELOPE, **changes}) + "\n"


def trailer(status=0, error=None):
    return {"status": status, "complete": status in (0, 1), "findings": status == 1, "error": error}


def error(kind="no-heap", message="m", hint=None):
    return {"kind": kind, "message": message, "hint": hint}


class Program:
    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "log.json"
        self.gdb = folder / "fake gdb"
        self.gdb.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
        self.gdb.chmod(0o755)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.core = folder / "core"
        self.core.write_bytes(Maker().core([(BASE, str(folder / "p"), Maker().executable(OWN))]))

    def start(self, *arguments, gdb=True, stdout=None, errors=None, **plan):
        answers = {"json": plan.pop("document", envelope()), "text": plan.pop("text", "text\n")}
        plan = {"answers": answers, "trailer": trailer(), **plan}
        told = self.folder / "plan.json"
        told.write_text(json.dumps({"log": str(self.log), **plan}))
        ours = {"PYTHONPATH": str(ROOT), "FAKE_GDB": str(told), "TMPDIR": str(self.temporary)}
        line = [sys.executable, "-m", "gdbext.cli", *map(str, arguments)]
        return subprocess.Popen(
            line + ([f"--gdb={self.gdb}"] if gdb else []),
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE if errors is None else errors,
            text=True,
            env={**os.environ, **ours},
            cwd=self.folder,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # in the background it is ignored
        )

    def run(self, *arguments, **plan):
        process = self.start(*arguments, **plan)
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in err or "Traceback" in plan.get("stderr", "")
        assert not list(self.temporary.iterdir())
        return process.returncode, out, err

    def fails(self, *arguments, **plan):
        """Run with --json; return the error, having checked all that must come with one."""
        status, out, err = self.run(*arguments, "--json", **plan)
        document = json.loads(out)
        assert status == 2
        assert document["data"] is None
        assert document["complete"] is False
        assert set(document) == {*ENVELOPE, "error"}
        assert document["error"]["message"] in err
        return document["error"]

    @property
    def arguments(self):
        return json.loads(self.log.read_text())["arguments"]

    @property
    def environment(self):
        return json.loads(self.log.read_text())["environment"]

    @property
    def question(self):
        return json.loads(self.log.read_text())["question"]


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path)


def test_help_and_version(program):
    assert program.run("--version") == (0, f"gdbext {__version__}\n", "")
    status, out, err = program.run("--help")
    assert (status, err) == (0, "")
    assert out.startswith("Usage: gdbext CORE... [OPTIONS]\n")
    assert all(f"\n  {spec.name} " in out for spec in catalogue.COMMANDS if not spec.raw)
    assert all(f"--{option.name}" in out for option in catalogue.SHELL_OPTIONS)
    assert max(map(len, out.splitlines())) <= 80


def test_json_goes_to_stdout_as_it_is(program):
    status, out, err = program.run("triage", "--core", program.core, "--json")
    assert (status, out) == (0, envelope())


def test_json_to_a_file(program):
    status, out, err = program.run("triage", "--core", program.core, "--json=out file.json")
    assert (status, out) == (0, "")
    assert (program.folder / "out file.json").read_text() == envelope()


def test_text_is_what_the_command_printed_and_nothing_of_gdb(program):
    status, out, err = program.run("triage", "--core", program.core, text="one\n\ntwo …\n")
    assert (status, out) == (0, "one\n\ntwo …\n")


def test_long_text(program):
    text = "0123456789abcdef\n" * 200_000
    assert program.run("triage", "--core", program.core, text=text)[1] == text


@pytest.mark.parametrize("how", [(), ("--json",)])
@pytest.mark.parametrize("status", [0, 1, 3])
def test_the_status_is_that_of_the_answer(program, how, status):
    done = program.run("triage", "--core", program.core, *how, trailer=trailer(status))
    assert done[:2] == (status, envelope() if how else "text\n")


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_an_error_from_gdb_is_passed_on(program, how):
    document = envelope(error=error())
    plan = {"document": document, "text": "", "trailer": trailer(2, error())}
    status, out, err = program.run("triage", "--core", program.core, *how, **plan)
    assert (status, out) == (2, document if how else "")
    assert err.splitlines()[-1] == "gdbext: triage: m"


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_an_answer_without_its_end_is_none(program, how):
    status, out, err = program.run("triage", "--core", program.core, *how, trailer=None)
    assert status == 2 and err.splitlines()[-1].startswith("gdbext: triage: gdb gave no answer: ")
    assert json.loads(out)["status"] == 2 if how else out == ""


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_an_answer_that_was_lost_is_none(program, how):
    cut = {**trailer(), "size": 10_000}
    assert program.run("triage", "--core", program.core, *how, trailer=cut)[0] == 2


def test_gdb_is_started_without_the_users_or_the_cores_scripts(program, monkeypatch):
    monkeypatch.setenv("DEBUGINFOD_URLS", "somewhere")
    exe = program.folder / "p"
    exe.write_bytes(Maker().executable(OWN))
    program.run("glibc", "chunks", "--state=in use", "0x1000 + 16", "--core", program.core, "--json")
    line = program.arguments
    assert line[:4] == ["-nx", "-batch", "-iex", "set auto-load off"]
    assert line.index(f"-se={exe}") < line.index(f"-core={program.core}")
    assert program.question["command"] == "glibc chunks"
    assert program.question["options"] == {"state": "in use"}
    assert program.question["expression"] == "0x1000 + 16"
    assert "DEBUGINFOD_URLS" not in program.environment


def test_options_for_gdb(program):
    folders = (f"--sysroot={program.folder}", "--debug-dir", program.folder)
    program.run("gx", "rss", "--pid", os.getpid(), *folders, "--json")
    assert f"set sysroot {program.folder}" in program.arguments
    assert f"set debug-file-directory {program.folder}" in program.arguments
    assert not [word for word in program.arguments if word.startswith("-pid")]
    assert (program.question["command"], program.question["pid"]) == ("rss", os.getpid())


def test_help_of_a_command_starts_no_gdb(program):
    for line in (("glibc", "bins", "--help"), ("-h", "glibc", "bins"), ("gx", "glibc", "bins", "x", "-h", "--core=x")):
        status, out, err = program.run(*line)
        assert (status, out, err) == (0, shell_help(catalogue.find_command("glibc bins")), "")
    assert not program.log.exists()


def test_help_of_several_commands(program):
    status, out, err = program.run("glibc", "-h")
    assert (status, err) == (0, "") and out.startswith(catalogue.PREFIXES["glibc"])
    assert "\n  glibc bins " in out and "jemalloc" not in out and not program.log.exists()
    assert program.run("safe", "-h")[0] == 0


def test_commands_need_no_target(program):
    for line in ("shapes list", "shapes show std-map"):
        status, out, err = program.run(*line.split())
        assert (status, err) == (0, "") and "std-map" in out
    assert not program.log.exists()  # gdb adds nothing
    assert program.run("commands", text="a table\n")[:2] == (0, "a table\n")  # who owns which name, gdb knows


def test_a_shape_is_shown_as_it_is_written(program):
    shown = program.run("shapes", "show", "linux-list")[1]
    file = textwrap.dedent(shown.partition("File:\n")[2])
    assert file.rstrip("\n") == (ROOT / "shapes" / "linux-list.toml").read_text().rstrip("\n")


def test_standard_error_that_takes_nothing_changes_no_answer(program):
    with open("/dev/full", "w") as full:
        said = {"text": "the answer\n", "stderr": "warning: x\n"}
        process = program.start("triage", "--core", program.core, errors=full, **said)
        assert process.communicate(timeout=60)[0] == "the answer\n" and process.returncode == 0
        wrong = program.start("nonsense", errors=full)
        wrong.communicate(timeout=60)
    assert wrong.returncode == 2


@pytest.mark.parametrize(
    "arguments, message, hint",
    [
        ([], "no command is named", "gdbext --help shows how it is written"),
        (
            ["--limit", "3"],
            "--limit: options stand after the command and its core",
            "gdbext --help shows how it is written",
        ),
        (["glibc", "--core=x"], "glibc is several commands", "gdbext glibc -h lists them"),
        (["triage"], "nothing to examine", "name a core, or a process with --pid"),
        (["triage", "--core"], "--core needs a value", "write --core CORE"),
        (["triage", "--core="], "--core: '' is not a name", None),
        (["triage", "--pid", "x"], "--pid: 'x' is not a process id", None),
        (["triage", "--pid=1", "--core=x"], "--core and --pid exclude each other", None),
        (["triage", "--core=x", "--timeout=x"], "--timeout: 'x' is not a number of seconds", "0 is for ever"),
        (["triage", "--core=x", "--sysroot=/no/dir"], "--sysroot: /no/dir is not a directory", None),
        (["blocks", "at", "a\nshell id", "--core=x"], "a command is one line", None),
        (["blocks", "list", "--arena=1\nshell id", "--core=x"], "a command is one line", None),
        (["triage", "--core=x", "--lmit=3"], "unknown option --lmit", "did you mean --limit?"),
        (["triage", "--core=x", "--limit", "x"], "--limit: 'x' is not a number", "write 0 or more, or 0x…"),
        (["triage", "--core=x", "y"], "takes no argument, got 'y'", "-h shows how it is written"),
        (["glibc", "chunk", "--core=x"], "there is no command glibc chunk", "did you mean gdbext glibc chunks?"),
        (["blocks", "at", "--core=x"], "an address is missing", "blocks at ADDRESS"),
        (["xyzzy"], "there is no command xyzzy", "gdbext --help lists the commands"),
        (["core.1"], "there is no command and no core core.1", "gdbext --help lists the commands"),
        (["walklist", "missing", "x"], "nothing to examine", "name a core, or a process with --pid"),
        (["shapes", "list", "x"], "takes no argument, got 'x'", "-h shows how it is written"),
        (["safe", "rss", "--core=x"], "safe is for gdb alone", None),
    ],
)
def test_usage_errors(program, arguments, message, hint):
    status, out, err = program.run("--json", *arguments, gdb=False)
    assert status == 2
    assert json.loads(out)["error"] == {"kind": "usage", "message": message, "hint": hint}
    assert len(err.splitlines()) == 1


def test_options_after_the_command_only(program):
    error = program.fails("glibc", "--limit", "3", "chunks", "--core", program.core)
    assert error["message"] == "'glibc --limit 3 chunks': options stand after the command's name"


def test_unwritable_output(program):
    status, out, err = program.run("triage", "--core", program.core, "--json=/no/such/dir/x")
    assert status == 2
    assert "gdbext: triage: cannot write /no/such/dir/x: No such file or directory; name another file\n" in err


def test_missing_core(program):
    error = program.fails("triage", "--core", "missing")
    assert error["kind"] == "bad-core"
    assert error["message"] == f"{program.folder}/missing does not exist"


def test_a_core_alone_is_triaged(program):
    status, out, err = program.run("core", "--limit", "3")
    assert (status, out) == (0, "text\n")
    question = program.question
    assert (question["command"], question["core"]) == ("triage", str(program.core))
    assert question["options"] == {"limit": 3} and question["expression"] == ""
    assert program.run("-p", os.getpid())[0] == 0
    assert (program.question["command"], program.question["pid"]) == ("triage", os.getpid())


def test_commands_win_over_files_of_their_names(program):
    (program.folder / "lockwait").write_bytes(program.core.read_bytes())
    assert program.run("lockwait", "lockwait")[0] == 0
    assert (program.question["command"], program.question["core"]) == ("lockwait", str(program.folder / "lockwait"))
    assert program.run("./lockwait")[0] == 0
    assert program.question["command"] == "triage"


def test_the_first_word_is_the_core_by_its_place(program):
    """What follows may be called like it: a variable."""
    assert program.run("blocks", "at", "core", "core", "+", "8")[0] == 0
    assert (program.question["core"], program.question["expression"]) == (str(program.core), "core + 8")
    assert program.run("listcount", "core", "(struct x *) core", "next")[0] == 0
    assert program.question["words"] == ["(struct x *) core", "next"]
    assert program.run("blocks", "at", "core", "-c", "core")[0] == 0
    assert (program.question["core"], program.question["expression"]) == (str(program.core), "core")
    assert program.run("blocks", "at", "core", "-p", os.getpid())[0] == 0
    assert (program.question["core"], program.question["expression"]) == (None, "core")
    assert "no shape core" in program.run("shapes", "show", "core")[2]


SHOW = """#!/bin/sh
for word; do echo "$word"; case $word in -core=*) cmp "${word#-core=}" core;; esac; done
exit 7
"""


@pytest.fixture
def shown(program):
    """Return a function that runs the program with a gdb that prints its arguments; it returns these."""
    show = program.folder / "show"
    show.write_text(SHOW)
    show.chmod(0o755)

    def run(*arguments):
        status, out, err = program.run(*arguments, "--gdb", show, gdb=False)
        assert (status, err) == (7, ""), err  # gdb's own
        return out.splitlines()

    return run


@pytest.mark.parametrize("line", [("open", "core"), ("open", "-c", "core"), ("--core=core", "open")])
def test_a_core_is_opened_in_gdb(program, shown, line):
    exe = program.folder / "p"
    exe.write_bytes(Maker().executable(OWN))
    words = shown(*line, f"--sysroot={program.folder}", "--debug-dir", program.folder, "--exe", exe)
    settings = [f"set sysroot {program.folder}", f"set debug-file-directory {program.folder}"]
    loading = f"source {ROOT / 'gdbext' / 'load.py'}"
    assert words == ["-iex", settings[0], "-iex", settings[1], f"-se={exe}", f"-core={program.core}", "-ex", loading]


def test_a_packed_core_is_opened_in_gdb(program, shown):
    packed = program.folder / "core.gz"
    packed.write_bytes(gzip.compress(program.core.read_bytes()))
    (program.folder / "p").write_bytes(Maker().executable(OWN))
    (path,) = [word for word in shown("open", packed) if word.startswith("-core=")]
    assert path.startswith(f"-core={program.temporary}")


@pytest.mark.parametrize("line", [("open", "{pid}"), ("open", "--pid={pid}"), ("open", "-p", "{pid}", "--swapped")])
def test_a_process_is_opened_in_gdb(shown, line):
    words = shown(*(word.format(pid=os.getpid()) for word in line))
    assert words[words.index("-p") + 1] == str(os.getpid()) and f"-se={os.path.realpath('/proc/self/exe')}" in words
    assert (words[-1] == "set gx swapped 1") is ("--swapped" in line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("open", "nothing to open; gdbext open CORE, or gdbext open PID"),
        ("open core 1", "one core or process is opened; gdbext open CORE, or gdbext open PID"),
        ("open core --limit 3", "unknown option --limit; -h lists the options"),
        ("open core --gdb /no", "cannot run /no: No such file or directory; install gdb, or name one with --gdb"),
        ("open missing", "{folder}/missing does not exist"),
    ],
)
def test_what_cannot_be_opened(program, line, message):
    (program.folder / "p").write_bytes(Maker().executable(OWN))
    status, out, err = program.run(*line.split(), gdb=False)
    assert (status, out, err) == (2, "", f"gdbext: open: {message.format(folder=program.folder)}\n")


def test_what_is_no_core(program):
    (program.folder / "notes").write_text("no core")
    assert program.fails("notes")["message"] == f"{program.folder}/notes is not a core"
    assert program.fails("blocks", "at", "notes", "8")["message"] == f"{program.folder}/notes is not a core"


def others(program, count):
    paths = [program.folder / f"core.{number}" for number in range(1, count + 1)]
    for path in paths:
        path.write_bytes(program.core.read_bytes())
    return paths


def test_several_cores_one_after_the_other(program):
    first, second = others(program, 2)
    program.folder.joinpath("p").write_bytes(Maker().executable(OWN))
    for line in ((first, second), ("triage", first, second), ("triage", "-c", first, "--core", second)):
        status, out, err = program.run(*line)
        assert (status, err) == (0, "")
        assert out == f"==> {first} <==\ntext\n\n==> {second} <==\ntext\n"


@pytest.mark.parametrize("at", (0, 1, 2))
def test_of_compared_cores_the_one_that_is_at_fault_is_named_alone(program, at):
    cores = others(program, 3)
    program.folder.joinpath("p").write_bytes(Maker().executable(OWN))
    cores[at].write_text("no core")
    status, _, err = program.run("compare", *cores)
    assert status == 2 and err.startswith(f"gdbext: compare: {cores[at]} is not"), err
    assert not any(str(core) in err for core in cores if core != cores[at])


def test_of_compared_cores_the_one_without_an_answer_is_named(program):
    first, second = others(program, 2)
    program.folder.joinpath("p").write_bytes(Maker().executable(OWN))
    status, _, err = program.run("compare", first, second, trailers={str(first): trailer(2, error())})
    assert status == 2 and err.startswith(f"gdbext: compare: {first}: "), err


@pytest.mark.parametrize("file", [None, "out"])
def test_several_cores_are_lines_of_json(program, file):
    first, second = others(program, 2)
    spread = json.dumps(json.loads(envelope(data={"x": "a\nb"})), indent=1) + "\n"
    (program.folder / "out").write_text("old")
    status, out, err = program.run(
        first, "missing", second, f"--json={file}" if file else "--json", document=spread, trailer=trailer(1)
    )
    lines = (program.folder / file).read_text().splitlines() if file else out.splitlines()
    documents = [json.loads(line) for line in lines]
    assert status == 2 and len(documents) == 3
    assert [document["data"] for document in documents] == [{"x": "a\nb"}, None, {"x": "a\nb"}]
    assert documents[1]["target"]["core"] == f"{program.folder}/missing"
    assert f"gdbext: triage: {program.folder}/missing does not exist" in err


@pytest.mark.parametrize(
    ("statuses", "worst"), [((0, 3), 3), ((3, 1), 1), ((1, 0), 1), ((1, 2, 3), 2), ((0, 0), 0), ((2, 1), 2)]
)
def test_the_worst_status_of_several_cores(program, statuses, worst):
    paths = others(program, len(statuses))
    ends = {str(path): trailer(status, error() if status == 2 else None) for path, status in zip(paths, statuses)}
    assert program.run(*paths, trailers=ends)[0] == worst


def test_an_interrupt_ends_several_cores(program):
    first, second = others(program, 2)
    process = program.start(first, second, sleep=60)
    wait_until(lambda: list(program.temporary.rglob("answer")), "gdb works on the question")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert "stopped before the last 1 of the cores" in err and str(second) not in out


def test_wrong_executable(program):
    other = program.folder / "other"
    other.write_bytes(Maker().executable(OTHER))
    error = program.fails("triage", "--core", program.core, "--exe", other)
    assert error["kind"] == "wrong-exe"
    assert error["hint"]


def test_no_such_process(program):
    child = subprocess.Popen(["true"])
    child.wait()
    error = program.fails("triage", "--pid", child.pid)
    assert error == {
        "kind": "no-target", "message": f"there is no process {child.pid}", "hint": "ps -e lists them",
    }  # fmt: skip


def test_no_such_gdb(program):
    error = program.fails("triage", "--core", program.core, "--gdb", "/no/gdb", gdb=False)
    assert error["kind"] == "gdb-failed"
    assert error["message"] == "cannot run /no/gdb: No such file or directory"
    assert error["hint"] == "install gdb, or name one with --gdb"


@pytest.mark.parametrize(
    "told, kind, message",
    [
        ("ptrace: Operation not permitted.\n", "no-permission", "process {pid} may not be examined"),
        ("ptrace: No such process.\n", "no-target", "there is no process {pid}"),
        ("Python scripting is not supported in this copy of GDB.\n", "gdb-failed", "{gdb} has no Python"),
        ("Traceback (most recent call last):\nKeyError: 1\n", "internal", "gdbext failed inside gdb"),
        ("gdbext: gdb's Python is older than 3.9; use\n", "gdb-failed", "the Python of {gdb} is older than 3.9"),
        (
            "gdb: error while loading shared libraries: libm.so.6: failed to map segment from shared object\n",
            "too-large",
            "there is not enough memory for an answer",
        ),
        ("Traceback (most recent call last):\nOSError: [Errno 24] Too many open files\n", "gdb-failed",
         "too many open files"),
        ("something odd\n", "gdb-failed", "gdb gave no answer: something odd"),
        ("", "gdb-failed", "gdb gave no answer: it ended with status 0"),
    ],
)
def test_gdb_without_an_answer(program, told, kind, message):
    error = program.fails("triage", "--in-place", "--pid", os.getpid(), document=None, stderr=told)
    assert error["kind"] == kind
    assert error["message"] == message.format(pid=os.getpid(), gdb=program.gdb)


def test_a_process_that_gdb_may_not_attach_to(program):
    refused = error("debugger", "ptrace: Operation not permitted")
    plan = {"document": envelope(error=refused), "trailer": trailer(2, refused)}
    assert program.fails("triage", "--in-place", "--pid", os.getpid(), **plan)["kind"] == "no-permission"


def test_gdb_killed(program):
    error = program.fails("triage", "--core", program.core, signal=signal.SIGKILL)
    assert error["kind"] == "gdb-failed"
    assert error["message"] == "gdb was ended by SIGKILL before it answered"


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_a_core_that_shrinks_under_gdb_is_named(program, how):
    half = program.core.stat().st_size // 2
    status, out, err = program.run("triage", "--core", program.core, *how, cut=half, signal=signal.SIGBUS)
    assert status == 2 and "SIGBUS" not in err
    assert err.splitlines()[-1] == "gdbext: triage: the core shrank while it was read; copy it, and examine the copy"
    assert json.loads(out)["error"]["kind"] == "bad-core" if how else out == ""


def test_a_gdb_that_a_page_of_the_core_has_ended(program):
    error = program.fails("triage", "--core", program.core, signal=signal.SIGBUS)
    assert error["message"] == "gdb was ended by SIGBUS before it answered"
    assert error["hint"].startswith(f"the disk may not give {program.core}, or it was cut meanwhile: copy what")
    assert program.fails("lockwait", "--in-place", "--pid", os.getpid(), signal=signal.SIGBUS)["hint"] is None


def test_what_a_gdb_prints_as_it_dies_is_not_shown(program):
    words = "warning: kept\n\nFatal signal: Segmentation fault\n----- Backtrace -----\n0x55 ???\nThis is a bug\n"
    status, out, err = program.run("triage", "--core", program.core, stderr=words, signal=signal.SIGSEGV)
    assert (status, out) == (2, "") and "Backtrace" not in err
    assert err.endswith("warning: kept\ngdbext: triage: gdb was ended by SIGSEGV before it answered\n")
    status, _, err = program.run(
        "triage", "--core", program.core, stderr="a.c:1: internal-error: b: Assertion\nA problem internal to GDB has\n",
        text=None,
    )  # fmt: skip
    assert err.splitlines()[-1] == "gdbext: triage: gdb gave no answer: a.c:1: internal-error: b: Assertion"


def test_a_process_that_gdb_attached_to_in_part_goes_on(program):
    refused = error("debugger", "Couldn't get registers: No such process")
    with subprocess.Popen(["sleep", "5"]) as process:
        document = envelope(data=None, complete=False, error=refused)
        plan = {"document": document, "trailer": trailer(2, refused), "stops": process.pid}
        assert program.fails("triage", "--in-place", "--pid", process.pid, **plan) == refused
        wait_until(lambda: "T" not in state_of(process.pid), "it goes on")
        process.kill()


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_gdb_killed_when_it_has_written_all_but_the_end(program, how):
    status, out, err = program.run("triage", "--core", program.core, *how, signal_in_answer=signal.SIGKILL)
    assert status == 2 and "gdb was ended by SIGKILL before it answered" in err
    assert json.loads(out)["data"] is None if how else out == ""


def test_timeout_ends_all_of_gdb(program):
    child = program.folder / "child"
    started = time.monotonic()
    plan = {"sleep": 60, "child": str(child), "stubborn": True}
    error = program.fails("triage", "--core", program.core, "--timeout=1", **plan)
    assert error == {
        "kind": "timeout", "message": "no answer within 1 s", "hint": "--timeout gives more",
    }  # fmt: skip
    assert time.monotonic() - started < 20
    assert not Path(f"/proc/{child.read_text()}").exists() or "Z" in state_of(child.read_text())


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


@pytest.mark.parametrize("how", [(), ("--json",)])
@pytest.mark.parametrize("status", [1, 3])
def test_timeout_with_a_partial_answer(program, how, status):
    end = {"sleep": 60, "on_interrupt": ["partial\n", {**trailer(status), "complete": False}]}
    done, out, err = program.run("triage", "--core", program.core, *how, "--timeout=1", **end)
    assert (done, out) == (status, "partial\n")
    assert "gdbext: triage: stopped; the answer holds what there was until then" in err


def test_an_answer_that_is_complete_is_not_said_to_be_cut(program):
    process = program.start("triage", "--core", program.core, sleep=60, on_interrupt=["whole\n", trailer(0)])
    wait_until(lambda: list(program.temporary.rglob("answer")), "gdb works on the question")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "whole\n") and "stopped" not in err


def test_timeout_with_an_error_for_an_answer(program):
    stopped = error("interrupted", "interrupted")
    end = {"sleep": 60, "on_interrupt": [envelope(error=stopped), trailer(2, stopped)]}
    assert program.fails("triage", "--core", program.core, "--timeout=1", **end)["kind"] == "timeout"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_from_outside(program, number):
    process = program.start("triage", "--core", program.core, "--json", sleep=60)
    wait_until(lambda: list(program.temporary.rglob("answer")), "gdb works on the question")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == -number
    assert json.loads(out)["error"]["message"] == "stopped before there was an answer"
    assert not list(program.temporary.iterdir())


def test_noise_is_kept_away_and_news_is_not(program):
    truncated = "BFD: warning: core is truncated: expected core file size >= 2, found: 1"
    news = f"{truncated}\nwarning: Section `.reg/30003' in core file too small."
    noise = (
        "warning: Unexpected size of section `.reg-xstate/1' in core file.\n"
        "warning: Section `.reg-xstate/30003' in core file too small.\n"
        "warning: Couldn't find x87 floating-point registers in core file.\n"
        "gdb: warning: Couldn't determine a path for the index cache directory.\n"
        "warning: Could not load vsyscall page because no executable was specified\n"
        "warning: Can't open file /dev/zero (deleted) during file-backed mapping note processing\n"
        "44\t./nptl/pthread_kill.c: No such file or directory.\n"
        "\n"
    )
    (program.folder / "p").write_bytes(Maker().executable(OWN))
    told = f"{noise}{news}\n" * 2
    assert program.run("triage", "--core", program.core, "--json", stderr=told)[2] == news + "\n"


def test_a_closed_pipe_is_no_traceback(program):
    process = program.start("triage", "--core", program.core, text="x\n" * 1_000_000)
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.wait(30)
    process.stderr.close()


PACKERS = {
    "gz": lambda path: gzip.compress(path.read_bytes()),
    "xz": lambda path: lzma.compress(path.read_bytes()),
    "zst": lambda path: packed_by("zstd", path),
    "lz4": lambda path: packed_by("lz4", path),
}


def packed_by(name, path):
    if not shutil.which(name):
        pytest.skip(f"no program {name}")
    return subprocess.run([name, "-c", path], check=True, capture_output=True).stdout


@pytest.mark.parametrize("ending", PACKERS)
def test_packed_cores(program, ending):
    packed = program.folder / f"core.{ending}"
    packed.write_bytes(PACKERS[ending](program.core))
    kept = program.folder / "kept"
    spy = program.folder / "spy"
    spy.write_text(f'#!/bin/sh\nfor a; do case $a in -core=*) cp "${{a#-core=}}" "{kept}";; esac; done\n'
                   f'exec "{program.gdb}" "$@"\n')  # fmt: skip
    spy.chmod(0o755)
    status, out, err = program.run("triage", "--core", packed, "--json", "--gdb", spy, gdb=False)
    assert status == 0
    assert kept.read_bytes() == program.core.read_bytes()


def test_a_packed_core_has_the_name_that_the_user_gave_it(program):
    packed = program.folder / "core.gz"
    packed.write_bytes(gzip.compress(program.core.read_bytes()))
    (program.folder / "p").write_bytes(Maker().executable(OWN))
    status, out, err = program.run("triage", "--core", packed, stderr="warning: {core} is odd\n")
    assert (status, err) == (0, f"warning: {packed} is odd\n")
    assert program.question["core"] == str(packed)


@pytest.mark.parametrize("ending", PACKERS)
def test_packed_cores_that_are_damaged(program, ending):
    packed = program.folder / f"core.{ending}"
    packed.write_bytes(PACKERS[ending](program.core)[:-30])
    error = program.fails("triage", "--core", packed)
    assert error["kind"] == "bad-core"
    assert error["message"].startswith(f"{packed} cannot be unpacked: ")
    assert error["hint"] == "was it copied whole?"


def test_a_packed_file_that_is_no_core(program):
    packed = program.folder / "core.gz"
    packed.write_bytes(gzip.compress(b"no core"))
    assert program.fails("triage", "--core", packed)["message"] == f"{packed} is not a core"


def test_unpacker_that_is_missing(program, monkeypatch):
    monkeypatch.setenv("PATH", "/no/bin")
    packed = program.folder / "core.zst"
    packed.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(50))
    error = program.fails("triage", "--core", packed)
    assert error["message"] == f"{packed} is packed with zstd, and there is no program zstd"
    assert error["hint"] == "install zstd, or unpack the core first"


def test_holes_stay_holes(tmp_path):
    from gdbext.cli.unpack import find_packing, unpack

    packed = tmp_path / "x.gz"
    packed.write_bytes(gzip.compress(b"a" + bytes(8 << 20)))
    unpack(str(packed), find_packing(str(packed)), str(tmp_path / "x"), None)
    facts = os.stat(tmp_path / "x")
    assert facts.st_size == (8 << 20) + 1
    assert facts.st_blocks * 512 < 1 << 20


def test_unpacking_takes_no_longer_than_the_timeout(tmp_path):
    from gdbext.cli.unpack import find_packing, unpack
    from gdbext.starting.failures import TimeOutError

    packed = tmp_path / "x.gz"
    packed.write_bytes(gzip.compress(bytes(100)))
    with pytest.raises(TimeOutError, match="the time was up before the core was unpacked"):
        unpack(str(packed), find_packing(str(packed)), str(tmp_path / "x"), time.monotonic() - 1)


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_core_that_is_too_large(program, ending):
    bomb = program.folder / "bomb"
    bomb.write_bytes(program.core.read_bytes() + b"x" * (8 << 20))
    packed = program.folder / f"core.{ending}"
    packed.write_bytes(PACKERS[ending](bomb))
    error = program.fails("triage", "--core", packed, "--max-unpacked=4M")
    assert error["kind"] == "too-large"
    assert error["message"] == f"{packed} unpacks to more than the 4 MiB allowed"
    assert error["hint"] == "--max-unpacked SIZE allows more, TMPDIR names another place"
    assert list(program.temporary.iterdir()) == []
    assert program.run("triage", "--core", packed, "--max-unpacked=9M")[0] == 0


def test_the_disk_is_not_filled(tmp_path, monkeypatch):
    from gdbext.cli.unpack import find_packing, unpack

    packed, folder = tmp_path / "x.gz", tmp_path / "ours"
    folder.mkdir()
    packed.write_bytes(gzip.compress(b"x" * (1 << 20) + bytes(1 << 30)))
    room = os.statvfs_result((4096, 4096, 900, 300, 266, 0, 0, 0, 0, 255))
    monkeypatch.setattr("os.statvfs", lambda path: room if path == str(folder) else None)
    unpack(str(packed), find_packing(str(packed)), str(folder / "x"), None, 1 << 20)
    with pytest.raises(TooLargeError) as caught:
        unpack(str(packed), find_packing(str(packed)), str(folder / "x"), None)
    assert str(caught.value) == (
        f"{packed} unpacks to more than the 958 KiB that are nine tenths of what is free in {tmp_path}; "
        "--max-unpacked SIZE allows more, TMPDIR names another place"
    )


def test_a_full_disk(tmp_path):
    from gdbext.cli.unpack import find_packing, unpack
    from gdbext.starting.failures import GdbFailedError

    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    packed = tmp_path / "x.gz"
    packed.write_bytes(gzip.compress(b"x" * (1 << 20)))
    with pytest.raises(GdbFailedError, match="in /: No space left on device; TMPDIR=FOLDER names a folder with room"):
        unpack(str(packed), find_packing(str(packed)), "/dev/full", None)


@pytest.mark.parametrize(
    ("arguments", "environment", "terminal", "color"),
    [
        ((), {}, True, True),
        ((), {}, False, False),
        ((), {"NO_COLOR": "1"}, True, False),
        ((), {"TERM": "dumb"}, True, False),
        (("--color=always",), {"NO_COLOR": "1"}, False, True),
        (("--color", "never"), {}, True, False),
    ],
)
def test_colour(program, monkeypatch, arguments, environment, terminal, color):
    for name, value in {"TERM": "xterm", "NO_COLOR": "", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("COLUMNS", raising=False)
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 123, 0, 0))
    process = program.start("triage", "--core", program.core, *arguments, stdout=writing if terminal else None)
    process.communicate(timeout=60)
    os.close(reading)
    os.close(writing)
    assert process.returncode == 0
    assert (program.question["color"], program.question["width"]) == (color, 123 if terminal else 100)


def test_width_by_the_environment(program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "77")
    program.run("triage", "--core", program.core)
    assert program.question["width"] == 77


def test_a_color_that_is_none(program):
    error = program.fails("triage", "--core", program.core, "--color=blue")
    assert error["message"] == "--color: 'blue' is not one of auto, always, never"


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_standard_output_that_is_full(program, how):
    with open("/dev/full", "w") as full:
        process = program.start("triage", "--core", program.core, *how, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "No space left on device" in err and "Traceback" not in err


def test_no_room_to_work_in(monkeypatch, capsys):
    from gdbext.cli import program
    from gdbext.starting import lockedfolder

    def full(prefix):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lockedfolder.tempfile, "mkdtemp", full)
    assert program.main(["commands", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["message"] == "no room to work in: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--version", ""),
        ("triage {core} --gdb /no/gdb", "cannot run /no/gdb: No such file or directory"),
        ("triage {core} --gdb {gdb}", ""),  # which answers in an existing one only
        ("triage -c core", "the current directory no longer exists; cd elsewhere"),
        ("triage {core} --exe p", "the current directory no longer exists; cd elsewhere"),
        ("triage {core} --sysroot s", "the current directory no longer exists; cd elsewhere"),
        ("triage {core} --gdb bin/gdb", "the current directory no longer exists; cd elsewhere"),
        ("triage {core} --json=x", "the current directory no longer exists; cd elsewhere"),
        ("lockwait {core} --dot x.svg", "the current directory no longer exists; cd elsewhere"),
        ("open core", "the current directory no longer exists; cd elsewhere"),
    ],
)
def test_a_current_directory_that_was_deleted(program, words, line):
    gdb = program.folder / "gdb"
    gdb.write_text('#!/bin/sh\n[ "$(readlink /proc/$$/cwd)" = / ] && exec "' + str(program.gdb) + '" "$@"\n')
    gdb.chmod(0o755)
    plan = program.folder / "plan.json"
    plan.write_text(json.dumps({"answers": {"text": "text\n"}, "trailer": trailer()}))
    gone = program.folder / "gone"
    gone.mkdir()
    run = "import os, sys; os.rmdir(os.getcwd()); from gdbext.cli.program import main; sys.exit(main(sys.argv[1:]))"
    ours = {"PYTHONPATH": str(ROOT), "FAKE_GDB": str(plan), "TMPDIR": str(program.temporary)}
    done = subprocess.run(
        [sys.executable, "-c", run, *words.format(core=program.core, gdb=gdb).split()],
        env={**os.environ, **ours}, cwd=gone, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert line in done.stderr and "Traceback" not in done.stderr
    assert done.returncode == (2 if line else 0), done.stderr
    assert not line or done.stderr.splitlines()[-1].startswith("gdbext: ")


@pytest.mark.parametrize("how", ["plain", "facts"])
def test_a_core_that_cannot_be_read_is_no_full_folder(program, monkeypatch, capsys, how):
    from gdbext.cli import job
    from gdbext.cli.program import main

    def refuse(*_):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    core, reason = "/proc/self/mem", "Input/output error"
    if how == "facts":
        core, reason = program.core, "Stale file handle"
        monkeypatch.setattr(job, "read_core", refuse)
    assert main(["triage", str(core)]) == 2
    line = f"cannot read {core}: {reason}; copy what can be read, and examine the copy"
    assert capsys.readouterr().err == f"gdbext: triage: {line}\n"


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (errno.EMFILE, "too many open files; raise ulimit -n"),
        (errno.EAGAIN, "no more processes; ulimit -u or the cgroup's pids.max bounds it"),
        (errno.EFBIG, "a file would be too large; ulimit -f bounds the size of files; raise it"),
        (errno.ENOMEM, "there is not enough memory for an answer; the machine, a cgroup or ulimit -v bounds it"),
    ],
)
def test_limits_are_neither_a_full_folder_nor_a_missing_gdb(program, monkeypatch, capsys, number, line):
    from gdbext.cli import children
    from gdbext.cli.program import main
    from gdbext.starting import lockedfolder

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(children.subprocess, "Popen", refuse)
        assert main(["triage", str(program.core)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"gdbext: triage: {line}"
    monkeypatch.setattr(lockedfolder.tempfile, "mkdtemp", refuse)
    assert main(["triage", str(program.core)]) == 2
    assert capsys.readouterr().err == f"gdbext: triage: {line}\n"


def test_files_may_be_open_as_many_as_the_hard_limit_allows(program):
    run = (
        "import resource as r, sys; most = r.getrlimit(r.RLIMIT_NOFILE)[1]; r.setrlimit(r.RLIMIT_NOFILE, (20, most))\n"
        "from gdbext.cli.program import main; main(sys.argv[1:])\n"
        "assert r.getrlimit(r.RLIMIT_NOFILE) == (most, most)"
    )
    subprocess.run([sys.executable, "-c", run, "triage", str(program.core), "--gdb=/no/gdb"], cwd=ROOT, check=True)


def test_a_gdb_that_crashes_writes_no_core_over_the_one_it_was_given(program):
    noted = program.folder / "limit"
    program.gdb.write_text(f"#!/bin/sh\nulimit -c > {noted}\n")
    run = ["bash", "-c", 'ulimit -S -c "$(ulimit -H -c)"; exec "$0" -m gdbext.cli "$@"', sys.executable]
    subprocess.run([*run, "triage", str(program.core), "--gdb", str(program.gdb)], cwd=ROOT, check=False)
    assert noted.read_text() == "0\n"


def test_a_gdb_that_is_no_program_is_not_to_be_installed(program):
    error = program.fails("triage", "--core", program.core, "--gdb", program.core, gdb=False)
    assert error["hint"] == "another is named with --gdb"


def test_what_nobody_has_thought_of_is_no_finding(monkeypatch, capsys):
    """Python's own exit status for it would be that of findings."""
    from gdbext.cli import program

    monkeypatch.setattr(program, "parse", lambda words: 1 / 0)
    assert program.main(["triage"]) == 2 and "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("which", ["core", "link", "hard", "second", "exe", "named by the core", "wrong line", "dot"])
def test_no_answer_replaces_what_it_is_made_from(program, which):
    folder, core = program.folder, program.core
    exe = folder / "p"
    exe.write_bytes(Maker().executable(OWN))
    (folder / "link").symlink_to(core)
    os.link(core, folder / "hard")
    shutil.copy(core, folder / "other")
    before = core.read_bytes(), exe.read_bytes()
    line, what = {
        "core": (["rss", "core", "--json=core"], "core"),
        "link": (["rss", "core", "--json=link"], "core"),
        "hard": (["rss", "hard", "--json=core"], "core"),
        "second": (["rss", "other", "core", "--json=core"], "core"),
        "exe": (["rss", "core", "--exe", "p", "--json=p"], "executable"),
        "named by the core": (["rss", "core", "--json=p"], "executable"),
        "wrong line": (["rss", "core", "--lmit=3", "--json=core"], None),
        "dot": (["lockwait", "core", "--dot=core"], "core"),
    }[which]
    status, out, err = program.run(*line)
    assert (status, out) == (2, "") and not program.log.exists()
    option = "--dot" if which == "dot" else "--json"
    assert what is None or err.endswith(f"{option} names the {what} itself; name another file\n")
    assert len(err.splitlines()) == 1 and (core.read_bytes(), exe.read_bytes()) == before
    assert (folder / "link").is_symlink()


@pytest.mark.parametrize("name", ["d", "fifo", ".", "/dev/null", "link"])
def test_what_is_no_file_alone_on_the_line(program, name):
    (program.folder / "d").mkdir()
    os.mkfifo(program.folder / "fifo")
    (program.folder / "link").symlink_to("d")
    alone, named = program.run(name), program.run("triage", name)
    assert alone == named and alone[0] == 2
    path = os.path.normpath(program.folder / name)
    assert alone[2] == f"gdbext: triage: {path} is not a file\n"


def test_a_folder_called_like_a_command(program):
    (program.folder / "glibc").mkdir()
    (program.folder / "rss").mkdir()
    assert "glibc is several commands" in program.run("glibc")[2]
    assert "rss: nothing to examine" in program.run("rss")[2]


def test_a_core_that_is_not_there_is_no_command(program):
    program.core.unlink()
    message = "there is no command and no core core; gdbext --help lists the commands"
    assert program.run("core")[2] == f"gdbext: core: {message}\n"
    assert not any(spec.name.startswith("core") for spec in (*catalogue.COMMANDS, *catalogue.OWN_COMMANDS))

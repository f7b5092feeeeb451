"""Where the program writes: streams that are full or closed, whose reader has left, or that have few characters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .test_program import FAKE, Program, envelope, trailer

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = "ev\x1b[31mil\x07\x9b\u202e\x7f\r\t\u2028\x85x"
TEXTS = {"answers": {"json": envelope(), "text": "text\n"}, "trailer": trailer()}


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path)


def prepare(program, arguments, environment, plan):
    told = program.folder / "plan.json"
    told.write_text(json.dumps({"log": str(program.log), **TEXTS, **plan}))
    ours = {"PYTHONPATH": str(ROOT), "FAKE_GDB": str(told), "TMPDIR": str(program.temporary), **dict(environment)}
    words = list(map(os.fsencode, arguments))
    needs_gdb = not any(word.startswith(b"--gdb") or word in (b"-h", b"completion") for word in words)
    line = [sys.executable, "-m", "gdbext.cli", *words, *([f"--gdb={program.gdb}"] if needs_gdb else [])]
    return line, {**os.environ, **ours}


def run(program, redirect, *arguments, environment=(), **plan):
    """Run the program by a shell that redirects; return its status, standard output and standard error, as bytes."""
    line, ours = prepare(program, arguments, environment, plan)
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirect}', "sh", *line],
        capture_output=True, env=ours, cwd=program.folder, timeout=60,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr
    assert not list(program.temporary.iterdir())
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def exe(program):
    """The core's executable is here: nothing is remarked on it."""
    from .elfs import Maker
    from .test_corefile import OWN

    (program.folder / "p").write_bytes(Maker().executable(OWN))


FULL = b"gdbext: standard output: No space left on device\n"
CLOSED = b"gdbext: standard output: Bad file descriptor\n"


@pytest.mark.parametrize(("redirect", "line"), [(">/dev/full", FULL), (">&-", CLOSED)])
@pytest.mark.parametrize(
    "words", ["core", "core --json", "core core", "-h", "triage -h", "--version", "completion bash", "completion fish"]
)
def test_standard_output_that_takes_nothing_is_one_line(program, exe, words, redirect, line):
    assert run(program, redirect, *words.split()) == (2, b"", line)


@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
def test_an_error_stays_said(program, redirect):
    status, _, err = run(program, redirect, "missing.core", "--json")
    assert status == 2 and err.count(b"\n") == 2 and b"missing.core" in err


@pytest.mark.parametrize("redirect", [">&-", "<&-", "<&- >&- 2>&-", ">/dev/full 2>&-"])
def test_an_answer_in_a_file_needs_no_standard_streams(program, exe, redirect):
    assert run(program, redirect, "core", "--json=out") == (0, b"", b"")
    assert (program.folder / "out").read_text() == envelope()


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"])
def test_standard_error_costs_no_answer(program, redirect):
    status, out, _ = run(program, redirect, "core", stderr="warning: x\n")
    assert (status, out) == (0, b"text\n")
    assert run(program, redirect, "core", answers={}, trailer=None)[0] == 2


@pytest.mark.parametrize("redirect", [">&- 2>&-", "<&- >&- 2>&-"])
def test_nothing_to_write_to_is_no_answer(program, redirect):
    assert run(program, redirect, "core") == (2, b"", b"")


def test_a_reader_that_has_left_ends_it_silently(program, exe):
    for words, text in ((["core"], "x\n" * 1_000_000), (["core", "--json"], "x"), (["-h"], "")):
        line, environment = prepare(program, words, (), {"answers": {"text": text, "json": text}})
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(line, stdout=writing, stderr=subprocess.PIPE, env=environment, cwd=program.folder)
        os.close(writing)
        assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


FILL = """
import os
from gdbext.starting.descriptors import fill_standard
fill_standard()
opened = os.open("opened", os.O_RDWR | os.O_CREAT)
for number in (1, 2):
    try:
        os.write(number, b"lost")
    except OSError as error:
        os.write(opened, b"%d refused " % number)
os.write(opened, b"%d" % opened)
"""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_number_of_a_closed_stream(tmp_path, closed):
    line = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", FILL]
    subprocess.run(line, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path, check=True, capture_output=True)
    refused, _, number = (tmp_path / "opened").read_text().rpartition(" ")
    assert refused == ("1 refused" if ">&-" in closed.split() else "") and int(number) > 2


# What is written.


def check_printable(*outputs):
    for output in outputs:
        text = output.decode("utf-8")
        wrong = [char for char in text if not char.isprintable() and char not in "\n\t"]
        assert not wrong, (wrong, text)


def test_what_gdb_says_is_printable(program, exe):
    names = "".join(f"warning: {part}\n" for part in ("a" + HOSTILE, "b\x1b]0;title\x07", "c\x00d", "tab\there"))
    status, out, err = run(program, "", "core", stderr=names)
    check_printable(out, err)
    assert err.decode().splitlines() == [
        "warning: aev\\x1b[31mil\\x07\\x9b\\u202e\\x7f\\r\t\\u2028\\x85x",
        "warning: b\\x1b]0;title\\x07",
        "warning: c\\x00d",
        "warning: tab\there",
    ]


def test_bytes_that_are_no_characters_are_printable_in_what_gdb_says(program, exe):
    program.gdb.write_text(f"#!/bin/sh\nprintf 'warning: \\377\\r\\n' >&2\nexec '{sys.executable}' '{FAKE}' \"$@\"\n")
    assert run(program, "", "core")[2] == b"warning: \\xff\\r\n"


NAMES = [b"bad\xff.core", b"new\nline", b"e\x1b[31m\x9b", "\u202etxt.core".encode(), b"d\xff\x1b/c\n", "größe".encode()]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_core_may_be_called_anything(program, exe, name):
    path = os.fsencode(program.folder) + b"/" + name
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(program.core.read_bytes())
    saved = b"--json=" + name + b".json"
    lines = (["triage", name], [name], ["--core", name, "rss"], [name, "core"], ["triage", name, saved])
    for words in lines:
        status, out, err = run(program, "", *words)
        assert (status, err) == (0, b"")
        check_printable(out)
    with open(path + b".json", "rb") as file:
        assert file.read().decode() == envelope()


@pytest.mark.parametrize("option", [b"--core=", b"--exe=", b"--sysroot=", b"--gdb=", b"--json=missing/", b"--x", b""])
def test_what_is_wrong_with_a_name_is_printable(program, option):
    name = b"d\xff\x1b[31m\n\x9b\x7f" + "\u202e\u2028größe".encode()
    core = [b"-c", b"core"] if option not in (b"--core=", b"") else []
    status, out, err = run(program, "", b"triage", option + name, *core, *([] if b"json" in option else [b"--json"]))
    assert status == 2 and err.count(b"\n") in (1, 2)
    check_printable(out, err)
    if out:
        json.loads(out)["error"]["message"].encode("utf-8")  # no half of a surrogate


@pytest.mark.parametrize("name", [b"0x1\xff", b"0x1\nshell id"])
def test_what_is_no_file_is_text_on_one_line(program, name):
    status, _, err = run(program, "", b"blocks", b"at", b"core", name)
    assert status == 2 and not program.log.exists()
    check_printable(err)


# Locales.

PLAIN = [
    {"LC_ALL": "C"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:strict"},
    {"LANG": "C"},
    {},
]


@pytest.fixture
def bare(monkeypatch):
    for name in ("LANG", "LC_ALL", "LC_CTYPE", "PYTHONUTF8", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("environment", PLAIN, ids=str)
def test_a_locale_without_more_gets_ascii(program, bare, environment):
    said = {"stderr": "warning: … größe\n", "environment": environment}
    lines = ("-h", "blocks -h", "breakpoints -h", "completion fish", "core", "x…", "core größe")
    for words in map(str.split, lines):
        _, out, err = run(program, "", *words, **said)
        assert out.isascii() and err.isascii(), (out, err)
    assert program.question["plain"] is True


@pytest.mark.parametrize("environment", [{"LC_ALL": "C.UTF-8"}, {"LC_CTYPE": "C.UTF-8"}, {"LANG": "C.UTF-8"}], ids=str)
def test_elsewhere_it_is_utf8(program, bare, environment):
    _, out, err = run(program, "", "core", stderr="warning: … größe\n", environment=environment)
    assert "… größe" in err.decode() and program.question["plain"] is False
    assert "…" in run(program, "", "breakpoints", "-h", environment=environment)[1].decode()

"""Completion in shells: the scripts are run by the shells that are here."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gdbext.grammar import catalogue

ROOT = Path(__file__).resolve().parents[3]


def script(shell):
    line = [sys.executable, "-m", "gdbext.cli", "completion", shell]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def complete(request, tmp_path_factory):
    """Return a function that completes a line in a shell: the words that it may go on with."""
    folder = tmp_path_factory.mktemp(request.param)
    shell = shutil.which(request.param)
    if shell is None:
        pytest.skip(f"no {request.param} on this machine")
    path = folder / "script"
    path.write_text(script(request.param))
    for name in ("core.1", "core 2", "other"):
        (folder / name).write_text("")
    (folder / "sub").mkdir()

    def run(line):
        done = subprocess.run(
            ASK[request.param](shell, path, line), cwd=folder, capture_output=True, text=True, timeout=60,
            env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "c"), "TERM": "dumb"},
        )  # fmt: skip
        assert not done.stderr, done.stderr
        return sorted(filter(None, set(done.stdout.splitlines())))

    return run


def ask_bash(shell, path, line):
    """bash breaks words at "=" too, and completes what follows the last."""
    words = [word for word in re.split(r"\s+|(=)", line) if word] + ([""] if line.endswith((" ",)) else [])
    code = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gdbext; printf "%s\\n" "${COMPREPLY[@]}"'
    return [shell, "--norc", "-c", code, "bash", str(path), *words]


ZSH = """
compdef() { }
_files() { [[ $1 == -/ ]] && print -l *(/N) || print -l *(N) }
compset() { if [[ $2 == '*=' ]]; then words[CURRENT]=${words[CURRENT]#*=}; else glued=${2//\\\\/}; fi }
compadd() { while [[ $1 != -- ]]; do shift; done; shift; local one; for one; do
    [[ $glued$one == ${words[CURRENT]}* ]] && print -r -- $glued$one
done; true }
source $1; shift
words=("$@"); CURRENT=$#
_gdbext
true
"""


def ask_zsh(shell, path, line):
    """Its completion system wants a terminal: what it offers is taken from the script's own calls."""
    return [shell, "-f", "-c", ZSH, "zsh", str(path), *line.split(" ")]


def ask_fish(shell, path, line):
    return [shell, "--no-config", "-c", f"source '{path}'; complete -C '{line}' | string replace -r '\\t.*' ''"]


ASK = {"bash": ask_bash, "zsh": ask_zsh, "fish": ask_fish}


def test_commands(complete):
    first = {spec.name.split()[0] for spec in (*catalogue.COMMANDS, *catalogue.OWN_COMMANDS) if not spec.raw}
    assert first <= set(complete("gdbext "))
    assert "triage" in complete("gdbext tri") and "rss" not in complete("gdbext tri")
    chunks = [spec.name.split()[1] for spec in catalogue.COMMANDS if spec.name.startswith("glibc ch")]
    assert complete("gdbext glibc ch") == sorted(chunks)
    assert complete("gdbext --core core.1 glibc ch") == sorted(chunks)
    assert complete("gdbext gx glibc ch") == sorted(chunks)


def test_options(complete):
    assert {"--state", "--limit", "--core", "--json"} <= set(complete("gdbext glibc chunks --"))
    assert complete("gdbext glibc chunks --stat") == ["--state"]
    assert "--state" not in complete("gdbext glibc bins --")
    assert {"--core", "--version"} <= set(complete("gdbext --"))
    assert "--leaks" in complete("gdbext core.1 --")


def values(found):
    return [word.rpartition("=")[2] for word in found]


def test_values(complete):
    assert complete("gdbext glibc chunks --state un") == ["unsorted"]
    assert values(complete("gdbext glibc chunks --state=un")) == ["unsorted"]
    assert complete("gdbext glibc chunks core.1 --state used,un") == ["used,unsorted"]
    assert values(complete("gdbext glibc chunks --state=used,un")) == ["used,unsorted"]
    assert complete("gdbext jemalloc extents --state mu") == ["muzzy"]
    assert complete("gdbext triage --color al") == ["always"]
    assert "std-map" in complete("gdbext walklist --shape std-")
    assert complete("gdbext completion z") == ["zsh"]
    assert complete("gdbext triage --limit ") == []


def test_files(complete):
    assert {"core.1", "core 2"} <= {name.replace("\\", "") for name in complete("gdbext triage --core ")}
    assert "core.1" in complete("gdbext triage ")
    folders = {name.rstrip("/") for name in complete("gdbext triage --sysroot ")}
    assert "sub" in folders and not {"core.1", "other"} & folders
    assert str(os.getpid()) in [word.strip() for word in complete("gdbext triage --pid ")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_there(shell):
    text = script(shell)
    for spec in (*catalogue.COMMANDS, *catalogue.OWN_COMMANDS):
        if spec.raw:
            continue
        assert spec.name in text, spec.name
        for option in spec.all_options:
            assert f"--{option.name}" in text or f"-l {option.name} " in text, option


def test_the_shells_that_are_known():
    line = [sys.executable, "-m", "gdbext.cli", "completion", "csh"]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)
    assert (done.returncode, done.stderr) == (
        2, "gdbext: completion: no completion for 'csh'; bash, zsh or fish\n",
    )  # fmt: skip


def test_bash_at_a_terminal(tmp_path):
    """The script with the real Tab: what bash makes of a line before it asks."""
    path = tmp_path / "script"
    path.write_text(script("bash"))
    child, terminal = pty.fork()
    if not child:
        os.execvpe("bash", ["bash", "--norc", "--noprofile"], {**os.environ, "PS1": "> ", "TERM": "dumb"})
    os.write(terminal, f"source {path}\ngdbext glibc chunks --state=used,uns\t --lim\t3\x01echo \n".encode())
    seen, until = b"", time.monotonic() + 30
    try:
        while b"\ngdbext glibc chunks --state=used,unsorted --limit 3" not in seen.replace(b"\r", b""):
            assert select.select([terminal], [], [], until - time.monotonic())[0], seen
            seen += os.read(terminal, 4096)
    finally:
        os.write(terminal, b"\nexit\n")
        os.close(terminal)
        os.waitpid(child, 0)

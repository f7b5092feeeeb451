"""What the program loads before it answers: every run pays for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .elfs import Maker
from .test_corefile import BASE, OWN

ROOT = Path(__file__).resolve().parents[3]
FOR_HELP = {
    "gdbext", "gdbext.grammar.arguments", "gdbext.grammar.catalogue", "gdbext.cli", "gdbext.cli.ending",
    "gdbext.cli.help", "gdbext.files",
    "gdbext.cli.options", "gdbext.cli.output", "gdbext.cli.program", "gdbext.errors", "gdbext.grammar",
    "gdbext.grammar.exchange", "gdbext.columns", "gdbext.report", "gdbext.starting", "gdbext.starting.failures",
    "gdbext.grammar.usage", "gdbext.version", "gdbext.wording", "gdbext.cli.streams", "gdbext.starting.descriptors",
}  # fmt: skip
FOR_GDB = FOR_HELP | {
    "gdbext.abi", "gdbext.cli.answer", "gdbext.cli.children", "gdbext.cli.workfolder",
    "gdbext.starting.parent",
    "gdbext.cli.gdbrun", "gdbext.cli.job", "gdbext.cli.run", "gdbext.cli.unpack",
    "gdbext.memory", "gdbext.memory.elf", "gdbext.memory.elf.corefacts", "gdbext.memory.corefile",
    "gdbext.memory.elf.corenotes", "gdbext.memory.hostfiles",
    "gdbext.memory.live", "gdbext.memory.live.mappings",
    "gdbext.memory.elf.elffile", "gdbext.memory.pieces", "gdbext.starting.corefile", "gdbext.starting.executable",
    "gdbext.starting.lockedfolder",
    "gdbext.starting.gdbjob", "gdbext.starting.process", "gdbext.starting.specialfiles", "gdbext.wording",
}  # fmt: skip
RUN = """
import json, sys
from gdbext.cli.program import main
status = main(sys.argv[1:])
sys.stdout.flush()
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
print("\\n" + json.dumps([status, files]))
"""


def loaded(*words, cwd):
    """Return the status, the modules of ours, and those that are neither ours nor Python's own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [sys.executable, "-S", "-c", RUN, *map(str, words)]
    done = subprocess.run(line, env={**environment, "PYTHONPATH": str(ROOT)}, cwd=cwd, capture_output=True, text=True)
    status, files = json.loads(done.stdout.splitlines()[-1])
    ours = {name for name in files if name.split(".")[0] == "gdbext"}
    foreign = {name for name, file in files.items() if file and "site-packages" in file}
    return status, ours, foreign | {"numpy", "tabulate", "argparse"} & set(files)


@pytest.mark.parametrize(
    ("line", "status"),
    [("-h", 0), ("triage -h", 0), ("glibc -h", 0), ("--version", 0), ("triage --lmit", 2), ("xyzzy", 2)],
)
def test_help_and_errors_of_usage(tmp_path, line, status):
    assert loaded(*line.split(), cwd=tmp_path) == (status, FOR_HELP, set())


def test_a_command(tmp_path):
    (tmp_path / "core").write_bytes(Maker().core([(BASE, "/no/p", Maker().executable(OWN))]))
    assert loaded("triage", "core", "--gdb", "/no/gdb", cwd=tmp_path) == (2, FOR_GDB, set())

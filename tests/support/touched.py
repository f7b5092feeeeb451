"""Which files of ours a command calls functions of: ``python3 -m tests.support.touched [-v] COMMAND CORE [EXE]``.

In gdb's process from loading the pack to the printed page; of the program, apart, all but gdb's run. Bodies of modules
and classes do not count; what they call while they are imported (declarations, tables) is counted by itself.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gdbext.cli.gdbrun import command_line
from gdbext.grammar.exchange import Question, answer_path, write_question
from gdbext.starting.gdbjob import GdbJob

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT}/{name}/" for name in ("gdbext", "commands", "printers"))
OPTIMIZED = 1  # the flag of a function's code; bodies of modules and classes have it not
WATCH = f"""
def watch():
    import atexit, json, os, sys
    found, imported, importing = {{}}, {{}}, 0
    root = {OURS!r}
    def note(frame, event, argument):
        nonlocal importing
        code = frame.f_code
        if code.co_name == "_find_and_load" and event in ("call", "return"):
            importing += 1 if event == "call" else -1
        elif event == "call" and code.co_flags & {OPTIMIZED} and code.co_filename.startswith(root):
            (imported if importing else found)[code.co_filename + ":" + str(code.co_firstlineno)] = code.co_name
    def write():
        sys.setprofile(None)
        loaded = sorted(name for name in sys.modules if name.split(".")[0] == "gdbext")
        with open(TARGET, "w") as file:
            json.dump([found, imported, loaded], file)
    leave = os._exit
    os._exit = lambda status: (write(), leave(status))
    atexit.register(write)
    sys.setprofile(note)
watch()
"""


def touched_by_gdb(command: str, core: str, exe: str | None) -> list:
    """Return the functions that were called, by place, those that imports called, and the modules that were loaded."""
    with tempfile.TemporaryDirectory() as folder:
        write_question(folder, Question(command, core=core))
        script = os.path.join(folder, "watch.py")
        Path(script).write_text(WATCH.replace("TARGET", repr(os.path.join(folder, "touched"))))
        line = command_line(GdbJob("gdb", core, exe), folder)
        at = line.index("-ex")
        done = subprocess.run([*line[:at], "-ex", f"source {script}", *line[at:]], capture_output=True, text=True)
        assert os.path.getsize(answer_path(folder)), done.stderr
        return json.loads(Path(folder, "touched").read_text())


def touched_by_program(command: str, core: str) -> list:
    """As :func:`touched_by_gdb`, of the program itself."""
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "touched")
        script = WATCH.replace("TARGET", repr(target)) + "from gdbext.cli.program import main\nmain(sys.argv[1:])\n"
        line = [sys.executable, "-c", "import sys\n" + script, *command.split(), core]
        subprocess.run(line, capture_output=True, cwd=ROOT, check=False)
        return json.loads(Path(target).read_text())


def print_touched(title: str, found: dict, imported: dict, loaded: list, verbose: bool) -> None:
    """Print the sums, and the files by folder."""
    files = collections.Counter(os.path.relpath(place.rpartition(":")[0], ROOT) for place in found)
    all_files = {place.rpartition(":")[0] for place in (*found, *imported)}
    print(f"{title}: {len(files)} files, {len(found)} functions; with imports {len(all_files)} files; "
          f"{len(loaded)} modules loaded")  # fmt: skip
    folders = collections.Counter(os.path.dirname(file) for file in files)
    print("  " + ", ".join(f"{folder} {count}" for folder, count in sorted(folders.items())))
    if verbose:
        print("".join(f"  {count:5} {file}\n" for file, count in sorted(files.items())))
        called = {os.path.splitext(file)[0].replace("/", ".") for file in files}
        print("  loaded alone:", *(name for name in loaded if name not in called))


if __name__ == "__main__":
    verbose, words = "-v" in sys.argv[1:], [word for word in sys.argv[1:] if word != "-v"]
    command, core = words[0], os.path.abspath(words[1])
    exe = os.path.abspath(words[2]) if len(words) > 2 else None
    print_touched("gdb's process", *touched_by_gdb(command, core, exe), verbose)
    print_touched("the program", *touched_by_program(command, core), verbose)

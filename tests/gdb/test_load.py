"""The loader: what it leaves in gdb, and what it must not."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from contextlib import suppress

import pytest

from tests.gdb.bridged import gdb, need_gdb, python
from tests.support.cache import CHECKOUT
from tests.support.gdbrun import LOADER


@pytest.fixture(autouse=True)
def _gdb():
    need_gdb()


def screen(*options):
    """Return what a person sees who sources the loader twice."""
    ours, theirs = pty.openpty()
    twice = [word for _ in range(2) for word in ("-ex", f"source {LOADER}")]
    with os.fdopen(ours, "rb", buffering=0) as reader:
        process = subprocess.Popen(
            ["gdb", "-nx", "-q", *options, *twice, "-ex", "quit"], stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # the end of a terminal
            while part := reader.read(1 << 12):
                seen += part
        assert process.wait(60) == 0
    return seen.decode()


def test_a_person_is_told_what_to_type():
    assert screen().count("gdbext: triage says what is wrong") == 1
    assert "gdbext" not in screen("-batch")
    assert "gdbext" not in gdb("echo fine", fresh=True).out  # not a terminal


BEFORE = """
import sys, types
class State: pass
state = sys.modules['state'] = State()
for name in ('commands', 'printers'):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].decoy = True
state.path, state.doc = list(sys.path), __doc__
state.names = None
state.names = set(vars())
"""

AFTER = """
import sys
state = sys.modules['state']
print('PATH', state.path == sys.path)
print('NAMES', sorted(set(vars()) - state.names))
print('DOC', state.doc == __doc__)
print('DECOYS', sys.modules['commands'].decoy, sys.modules['printers'].decoy)
print('NUMPY', 'numpy' in sys.modules, 'tabulate' in sys.modules)
import gdbext.grammar.catalogue, gdbext.commands, gdbext.printers, importlib.util
print('OURS', len(gdbext.grammar.catalogue.COMMANDS) > 1, hasattr(gdbext.commands, 'decoy'))
print('TESTS', importlib.util.find_spec('gdbext.tests'))
print('COPY', importlib.util.find_spec('gdbext.gdbext'))
import pkgutil
print('LISTED', 'gx' in [module.name for module in pkgutil.iter_modules(gdbext.commands.__path__)])
"""


def state_around(tmp_path, *loading):
    before, after = python(tmp_path / "before.py", BEFORE), python(tmp_path / "after.py", AFTER)
    return gdb(before, *loading, after, load=False)


EXPECTED = [
    "PATH True",
    "NAMES []",
    "DOC True",
    "DECOYS True True",
    "NUMPY False False",
    "OURS True False",
    "TESTS None",
    "COPY None",
    "LISTED True",
]


def test_it_leaves_the_interpreter_as_it_was(tmp_path):
    output = state_around(tmp_path, f"source {LOADER}")
    assert output.out.splitlines() == EXPECTED, output


def test_sourcing_twice_is_harmless(tmp_path):
    again = (f"source {LOADER}", "set gx min-finding-bytes 5K", f"source {LOADER}")
    output = state_around(tmp_path, *again, "gx commands", "show gx min-finding-bytes")
    assert "5K" in output.out and output.err == "", output
    assert "PATH True" in output.out and "NAMES []" in output.out


def test_from_another_script_and_by_a_symlink(tmp_path):
    (tmp_path / "link.py").symlink_to(LOADER)
    outer = python(tmp_path / "outer.py", "import gdb\ngdb.execute('source link.py')\n")
    output = gdb(outer, "gx commands", load=False, cwd=tmp_path)
    assert "gx commands" in output.out and output.err == "", output


def copy_pack(folder, inside=False):
    for name in ("gdbext", "commands", "printers"):
        into = folder / "gdbext" / name if inside and name != "gdbext" else folder / name
        shutil.copytree(CHECKOUT / name, into, ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "gdbext" / "load.py"


def test_the_tree_of_a_wheel(tmp_path):
    loader = copy_pack(tmp_path / "site", inside=True)
    where = python(tmp_path / "where.py", "import gdbext.commands, sys\nprint(gdbext.commands.__file__)\n"
                   "print([f for f in sys.meta_path if 'Checkout' in type(f).__name__])")  # fmt: skip
    output = gdb(f"source {loader}", where, load=False)
    assert output.out.splitlines() == [str(tmp_path / "site/gdbext/commands/__init__.py"), "[]"], output


WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ('numpy', 'tabulate'):
            sys.path_importer_cache.clear()
        return None
sys.meta_path.insert(0, Absent())
sys.path[:] = [p for p in sys.path if not p.endswith(('dist-packages', 'site-packages'))]
"""


def test_what_is_missing_is_said_in_one_line_with_what_to_run(tmp_path):
    loader = copy_pack(tmp_path / "checkout")
    installer = tmp_path / "checkout" / "install.sh"
    installer.write_text("")
    without = python(tmp_path / "without.py", WITHOUT)
    output = gdb(without, f"source {loader}", "gx commands", "gx safe echo still here\\n", load=False)
    told = [line for line in output.err.splitlines() if "gdbext" in line]
    assert len(told) == 3, output
    assert told[0].startswith("gdbext: gdb's Python ") and told[0].endswith(f"; run {installer}")
    assert "cannot import numpy, tabulate, tomli; run" in told[0]
    assert told[1].startswith("gdbext: gx commands: gdb's Python ") and "numpy" in told[1]
    assert "Traceback" not in output.err


DEPENDENCY = """
import sys
print('VERSION', sys.modules['numpy'].__version__)
print('INSIDE', any('.deps' in entry for entry in sys.path))
"""


def test_the_packs_own_copy_is_used_and_sys_path_restored(tmp_path):
    loader = copy_pack(tmp_path)
    version = gdb("python import sys; print('%d.%d' % sys.version_info[:2])", load=False).out.strip()
    for name, text in (("numpy", "__version__ = 'ours'\n"), ("tabulate", ""), ("tomli", "")):
        package = tmp_path / ".deps" / f"py{version}" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
    use = python(
        tmp_path / "use.py", "from gdbext.starting import dependencies\ndependencies.load()\n" + DEPENDENCY
    )
    output = gdb(f"source {loader}", use, load=False)
    assert output.out.splitlines() == ["VERSION ours", "INSIDE False"], output


def test_a_broken_dependency_is_one_line(tmp_path):
    loader = copy_pack(tmp_path)
    version = gdb("python import sys; print('%d.%d' % sys.version_info[:2])", load=False).out.strip()
    broken = "raise ImportError('built for another Python\\nlong story')\n"
    for name, text in (("numpy", broken), ("tabulate", ""), ("tomli", "")):
        package = tmp_path / ".deps" / f"py{version}" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
    output = gdb(f"source {loader}", "gx commands", load=False)
    own = f"--target {tmp_path}/.deps/py{version} --python-version {version} --only-binary=:all:"
    assert f"cannot import numpy (built for another Python); run python3 -m pip install {own} numpy\n" in output.err
    assert len(output.err.splitlines()) == 1, output
    assert "Traceback" not in output.err


def test_printers_are_registered_from_their_table(tmp_path):
    script = "import gdb, gdbext.printers\nours = [make().name for make in gdbext.printers.COLLECTIONS]\n"
    script += "print(ours, [one.name for one in gdb.pretty_printers if one.name in ours])\n"
    output = gdb(f"source {LOADER}", python(tmp_path / "t.py", script), fresh=True)
    assert output.out == "['gdbext'] ['gdbext']\n", output


THREADS = """
import os
from gdbext.starting import dependencies
before = set(os.listdir('/proc/self/task'))
dependencies.load()
for thread in set(os.listdir('/proc/self/task')) - before:
    text = open(f'/proc/self/task/{thread}/status').read()
    blocked = int(next(line.split()[1] for line in text.splitlines() if line.startswith('SigBlk')), 16)
    print('TAKES', blocked >> 16 & 1 == 0)  # SIGCHLD is 17
import signal
print('MASK', signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


@pytest.mark.parametrize("chosen", ["", "import os\nos.environ['OPENBLAS_NUM_THREADS'] = '2'\n"])
def test_threads_of_packages_take_no_signal(tmp_path, chosen):
    """One that took SIGCHLD would leave gdb asleep in `run`: seen once in sixty. Without a choice there are none."""
    output = gdb(python(tmp_path / "threads.py", chosen + THREADS), fresh=True)
    assert "TAKES True" not in output.out and "MASK set()" in output.out, output
    assert chosen or "TAKES" not in output.out, output


@pytest.mark.parametrize("chosen", [None, "2"])
def test_the_environment_is_as_it_was(tmp_path, chosen):
    script = "import os\nfrom gdbext.starting import dependencies\n"
    script += f"os.environ['OPENBLAS_NUM_THREADS'] = {chosen!r}\n" if chosen else ""
    script += "dependencies.load()\nprint('THREADS', os.environ.get('OPENBLAS_NUM_THREADS'))\n"
    assert f"THREADS {chosen}" in gdb(python(tmp_path / "environment.py", script), fresh=True).out


def test_help_and_tables_need_no_locale(tmp_path):
    """As in ``LC_ALL=C``: what gdb cannot encode would leave a command, and all that come after it, out."""
    table = python(
        tmp_path / "table.py",
        "from gdbext.bridge.commands import charset, command\n"
        "command._write(['\\u2026 3 more \\u2212 x\\n', 'caf\\xe9 \\u2588\\n'])\n"
        "print('CHARSET', charset._host_charset())\n"
        "if hasattr(gdb, 'host_charset'): del gdb.host_charset\n"
        "print('CHARSET', charset._host_charset())\n",
    )
    ascii_only = ["-iex", "set host-charset ASCII"]
    output = gdb("help gx breakpoints", "triage -h", "gx breakpoints delete", table, options=ascii_only, fresh=True)
    assert "delete NUMBER... or all" in output.out and "triage --json=" in output.out, output
    assert output.out.endswith("... 3 more - x\ncaf\\xe9 #\nCHARSET ASCII\nCHARSET ASCII\n"), output
    assert output.err.endswith("; gx breakpoints delete NUMBER..., or delete all\n"), output
    plain = gdb("help gx breakpoints", table)
    assert "delete NUMBER… or all" in plain.out and "… 3 more − x\ncafé █\n" in plain.out, plain

"""bin/gdbext: the program in a checkout, from any directory, through a link, on any Python that is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def program(tmp_path):
    """A checkout whose program prints what it sees of the world."""
    place = tmp_path / "check out"
    (place / "bin").mkdir(parents=True)
    shutil.copy(CHECKOUT / "bin" / "gdbext", place / "bin" / "gdbext")
    (place / "gdbext" / "cli").mkdir(parents=True)
    (place / "gdbext" / "__init__.py").write_text("")
    (place / "gdbext" / "cli" / "__init__.py").write_text("")
    (place / "commands").mkdir()
    (place / "commands" / "__init__.py").write_text("")
    (place / "gdbext" / "cli" / "__main__.py").write_text(
        "import importlib.util, sys\n"
        "print(__name__, sys.argv[1:], importlib.util.find_spec('commands') is None)\n"
        "sys.exit(1)\n"
    )
    return place / "bin" / "gdbext"


def run(path, *arguments, cwd):
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )


def test_runs_the_program_and_keeps_its_status(program, tmp_path):
    result = run(program, "triage", "--core", "a b", cwd=tmp_path)
    assert result.stdout == "__main__ ['triage', '--core', 'a b'] True\n"
    assert result.returncode == 1


def test_runs_through_a_link(program, tmp_path):
    link = tmp_path / "gdbext-link"
    link.symlink_to(program)
    assert run(link, "rss", cwd=tmp_path).stdout == "__main__ ['rss'] True\n"


def test_old_python_is_told_in_one_line(program, tmp_path):
    code = (
        "import runpy, sys; sys.version_info = (3, 8, 1); "
        f"sys.argv = ['gdbext']; runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stderr == "gdbext: Python 3.8 is too old; run it with Python 3.9 or later\n"


@pytest.mark.parametrize("script", ["bin/gdbext", "install.sh", ".ci/run"])
def test_is_executable(script: str):
    assert Path(CHECKOUT, script).stat().st_mode & 0o111 == 0o111


def test_scripts_are_clean():
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck")
    result = subprocess.run(
        ["shellcheck", "install.sh", ".ci/run"], cwd=CHECKOUT, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stdout

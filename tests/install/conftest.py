"""A copy of the checkout's installer, alone on a machine of fakes: nothing of the real one is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

TOOLS = ["bash", "cat", "dirname", "env", "find", "gcc", "grep", "head", "ln", "mkdir", "mv"]
TOOLS += ["readlink", "rm", "sed", "sort", "tail", "true"]

# Runs `-ex "python CODE"` by the tests' own Python, as if it were a Python 3.99 embedded in gdb 13.1.
FAKE_GDB = """#!{python}
import os, sys
from types import SimpleNamespace
if "--help" in sys.argv:
    sys.exit(print(os.environ.get("FAKE_GDB_HELP", "")))
code = next((a[len("python "):] for a in sys.argv if a.startswith("python ")), None)
if "FAKE_GDB_SAYS" in os.environ:
    sys.exit(print(os.environ["FAKE_GDB_SAYS"]))
for name in ("numpy", "tabulate", "tomli", "jinja2"):
    sys.modules.pop(name, None)
sys.path[:] = [p for p in sys.path if "site-packages" not in p and "dist-packages" not in p]
if os.environ.get("FAKE_DISTRIBUTION"):
    sys.path.append(os.environ["FAKE_DISTRIBUTION"])
sys.version_info = tuple(map(int, os.environ.get("FAKE_PYTHON", "3.99").split("."))) + (0,)
sys.base_prefix = "/nonexistent"
exec(code, {{"gdb": SimpleNamespace(VERSION=os.environ.get("FAKE_GDB_VERSION", "13.1"))}})
"""

# Logs its arguments; installs three tiny packages when pip is asked to, unless FAKE_PIP_ERROR is set.
FAKE_PYTHON = """#!/usr/bin/env bash
echo "python3 $*" >>"$FAKE_LOG"
case "$*" in
    "-c "*version_info*) echo "${FAKE_INTERPRETER:-3.7}" ;;
    "-c "*) ;;
    *"pip --version"*) ;;
    *"pip "*install*)
        [[ -z ${FAKE_PIP_ERROR:-} ]] || { echo "ERROR: $FAKE_PIP_ERROR"; exit 1; }
        [[ -z ${FAKE_NO_JINJA:-} || $* != *report.txt ]] || { echo "ERROR: no Jinja2"; exit 1; }
        wanted=$*
        while (($#)); do [[ $1 == --target ]] && target=$2; shift; done
        if [[ $wanted == *report.txt ]]; then
            mkdir -p "$target/jinja2"
            echo >"$target/jinja2/__init__.py"
            exit
        fi
        mkdir -p "$target/numpy" "$target/tabulate" "$target/tomli"
        echo "__version__ = '${FAKE_NUMPY:-2.0.2}'" >"$target/numpy/__init__.py"
        echo "__version__ = '0.9.0'" >"$target/tabulate/__init__.py"
        echo "__version__ = '2.0.1'" >"$target/tomli/__init__.py" ;;
esac
"""

FAKE_APT = """#!/usr/bin/env bash
echo "${0##*/} $*" >>"$FAKE_LOG"
exit "${FAKE_APT_STATUS:-0}"
"""

FAKE_SUDO = """#!/usr/bin/env bash
[[ $1 == -n ]] && shift
exec "$@"
"""


@dataclass
class Machine:
    """One checkout, one home directory, one PATH with nothing on it but what a test puts there."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def checkout(self) -> Path:
        return self.root / "check out"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def deps(self) -> Path:
        return self.checkout / ".deps"

    @property
    def log(self) -> str:
        log = self.root / "log"
        return log.read_text() if log.exists() else ""

    def add_program(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def remove_program(self, name: str) -> None:
        (self.root / "bin" / name).unlink()

    def add_apt(self) -> None:
        for name in ("apt-get", "dpkg-query", "apt-cache"):
            self.add_program(name, FAKE_APT)
        self.add_program("sudo", FAKE_SUDO)

    def add_distribution(self, numpy: str = "1.24.2") -> Path:
        """Make the packages of a distribution, which the fake gdb finds on its own path."""
        place = self.root / "dist-packages"
        (place / "numpy").mkdir(parents=True)
        (place / "numpy" / "__init__.py").write_text(f"__version__ = '{numpy}'\n")
        (place / "tabulate.py").write_text("__version__ = '0.8.9'\n")
        (place / "tomli").mkdir()
        (place / "tomli" / "__init__.py").write_text("__version__ = '2.0.1'\n")
        self.environment["FAKE_DISTRIBUTION"] = str(place)
        return place

    def install(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.checkout / "install.sh"), *arguments],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    for directory in (made.checkout / "bin", made.home, tmp_path / "bin"):
        directory.mkdir(parents=True)
    for name in ("install.sh", "bin/gdbext"):
        shutil.copy(CHECKOUT / name, made.checkout / name)
    shutil.copytree(CHECKOUT / "requirements", made.checkout / "requirements")
    for tool in TOOLS:
        found = shutil.which(tool)
        if found:
            (tmp_path / "bin" / tool).symlink_to(found)
    made.add_program("gdb", FAKE_GDB.format(python=os.path.realpath(sys.executable)))
    made.add_program("python3", FAKE_PYTHON)
    made.environment.update(PATH=str(tmp_path / "bin"), HOME=str(made.home), FAKE_LOG=str(tmp_path / "log"))
    return made

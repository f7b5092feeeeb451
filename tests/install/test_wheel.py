"""The wheel: every module of the package, `commands` and `printers` inside it, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PARTS = ("gdbext", "commands", "native", "printers", "shapes", "requirements")
FILES = ("MANIFEST.in", "pyproject.toml", "setup.py", "README.md")
LIBRARY = "gdbext/kernels/libgdbext_native.so"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("build", reason="the module build is not installed")
    pytest.importorskip("setuptools", minversion="70.1", reason="no setuptools that makes wheels by itself")
    source = tmp_path_factory.mktemp("source")
    for part in PARTS:
        shutil.copytree(CHECKOUT / part, source / part, ignore=shutil.ignore_patterns("__pycache__", "target"))
    for name in FILES:
        shutil.copy(CHECKOUT / name, source / name)
    # By way of the source distribution: what that forgets, the wheel lacks.
    made = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(source / "dist"), str(source)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (path,) = (source / "dist").glob("*.whl")
    return path


def modules_of_checkout():
    """Return the wheel's path of every module in the checkout."""
    own = (path.relative_to(CHECKOUT) for path in (CHECKOUT / "gdbext").rglob("*.py"))
    mounted = (
        Path("gdbext") / path.relative_to(CHECKOUT)
        for top in ("commands", "printers", "shapes") for path in (CHECKOUT / top).rglob("*.py")
    )
    return {str(path) for path in (*own, *mounted)}


def test_holds_every_module_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name for name in shipped if name.endswith(".py")} == modules_of_checkout()
    assert {name.split("/")[0] for name in shipped} == {"gdbext"}
    shapes = {f"gdbext/shapes/{path.name}" for path in (CHECKOUT / "shapes").glob("*.toml")}
    assert shapes and {"gdbext/canned.gdb", *shapes} <= shipped


def test_states_what_it_needs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(name).decode().splitlines()
    assert "Requires-Python: >=3.9" in lines
    floors = (CHECKOUT / "requirements" / "gdb.txt").read_text().split()
    assert {f"Requires-Dist: {floor}" for floor in floors} <= set(lines)


@pytest.mark.skipif(not shutil.which("cargo"), reason="no cargo on this machine")
def test_holds_the_native_kernels_for_every_python(wheel, tmp_path):
    assert re.fullmatch(r"gdbext-[^-]+-py3-none-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        assert LIBRARY in archive.namelist()
        archive.extractall(tmp_path)
    code = "from gdbext import kernels; print(kernels.IN_USE, kernels.WHY)"
    environment = {name: value for name, value in os.environ.items() if name != "GDBEXT_KERNELS"}
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert told.stdout.split() == ["native", str(tmp_path / LIBRARY)], told.stderr


def test_program_starts_from_the_wheel(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    result = subprocess.run(
        [sys.executable, "-m", "gdbext.pipeline", "--help"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert "gdbext" in result.stdout

"""The wheel: every module of the package, `commands` and `printers` inside it, and nothing else."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import gdbrun
from tests.support.glibcs import Unavailable

CHECKOUT = Path(__file__).resolve().parents[2]
PARTS = ("gdbext", "commands", "native", "printers", "shapes", "requirements")
FILES = ("LICENSE", "MANIFEST.in", "pyproject.toml", "setup.py", "README.md")
LIBRARY = "gdbext/kernels/libgdbext_native.so"


def copy_source(source):
    pytest.importorskip("build", reason="the module build is not installed")
    pytest.importorskip("setuptools", minversion="70.1", reason="no setuptools that makes wheels by itself")
    for part in PARTS:
        shutil.copytree(CHECKOUT / part, source / part, ignore=shutil.ignore_patterns("__pycache__", "target"))
    for name in FILES:
        shutil.copy(CHECKOUT / name, source / name)
    return source


def build(source, *options, **environment):
    """Build a wheel; return it, and what was said."""
    made = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(source / "dist"), str(source)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    (path,) = (source / "dist").glob("*.whl")
    return path, made.stdout + made.stderr


# Gives the kernels that this checkout has; that cargo builds them is test_native_build.py's.
CARGO = """#!/usr/bin/env bash
while (($#)); do [[ $1 == --target-dir ]] && target=$2; shift; done
mkdir -p "$target/release" && cp {library} "$target/release"
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder, built = tmp_path_factory.mktemp("bin"), CHECKOUT / "native" / "target" / "release" / Path(LIBRARY).name
    if built.exists():
        (folder / "cargo").write_text(CARGO.format(library=shlex.quote(str(built))))
        (folder / "cargo").chmod(0o755)
    # By way of the source distribution: what that forgets, the wheel lacks.
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return build(copy_source(tmp_path_factory.mktemp("source")), PATH=path)[0]


def modules_of_checkout():
    """Return the wheel's path of every module in the checkout."""
    own = (path.relative_to(CHECKOUT) for path in (CHECKOUT / "gdbext").rglob("*.py"))
    mounted = (
        Path("gdbext") / path.relative_to(CHECKOUT)
        for top in ("commands", "printers", "shapes")
        for path in (CHECKOUT / top).rglob("*.py")
    )
    return {str(path) for path in (*own, *mounted)}


def test_holds_every_module_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name for name in shipped if name.endswith(".py")} == modules_of_checkout()
    assert {name.split("/")[0] for name in shipped} == {"gdbext"}
    shapes = {f"gdbext/shapes/{path.name}" for path in (CHECKOUT / "shapes").glob("*.toml")}
    parts = ("page.html", "fleet.html", "head.html", "tables.html", "page.css", "page.js", "map.svg")
    page = {f"gdbext/render/page/{name}" for name in parts}
    assert shapes and {"gdbext/canned.gdb", *shapes, *page} <= shipped


def test_states_what_it_needs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(name).decode().splitlines()
    assert "Requires-Python: >=3.9" in lines
    floors = (CHECKOUT / "requirements" / "gdb.txt").read_text().split()
    assert {f"Requires-Dist: {floor}" for floor in floors} <= set(lines)
    assert [line for line in lines if "duckdb" in line and "fleet" in line and line.startswith("Requires-Dist: ")]
    assert [line for line in lines if "s3fs" in line and "s3" in line and line.startswith("Requires-Dist: ")]
    assert [line for line in lines if "jinja2" in line and "report" in line and line.startswith("Requires-Dist: ")]


def test_holds_its_license(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (text,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/LICENSE"))
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    assert text == (CHECKOUT / "LICENSE").read_text()
    assert "\nLicense: MIT\n" in metadata


def test_holds_the_native_kernels_for_every_python(wheel, tmp_path):
    if wheel.name.endswith("-any.whl"):
        pytest.skip("no native kernels in this checkout, and no cargo that runs")
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
        [sys.executable, "-m", "gdbext.cli", "--help"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert "gdbext" in result.stdout


RUSTUP = "error: rustup could not choose a version of cargo to run, because no default is configured."


@pytest.mark.parametrize("cargo", [f"echo '{RUSTUP}' >&2; exit 1", None])
def test_without_a_toolchain_it_holds_no_kernels_and_says_so_in_one_line(tmp_path, cargo):
    (tmp_path / "bin").mkdir()
    reason = "no cargo"
    if cargo:
        (tmp_path / "bin" / "cargo").write_text(f"#!/bin/sh\n{cargo}\n")
        (tmp_path / "bin" / "cargo").chmod(0o755)
        reason = f"{tmp_path}/bin/cargo: {RUSTUP}"
    source = copy_source(tmp_path / "source")
    stale = source / "build" / "lib" / "gdbext" / "of_an_older_version.py"
    stale.parent.mkdir(parents=True)
    stale.write_text("")
    path, said = build(source, "--wheel", PATH=str(tmp_path / "bin"))
    assert path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(path) as archive:
        assert {name for name in archive.namelist() if name.endswith(".py")} == modules_of_checkout()
        assert LIBRARY not in archive.namelist()
    (line,) = [line for line in said.splitlines() if "kernels will run" in line]
    assert line == f"gdbext: no native kernels: the slower reference kernels will run ({reason})"


WHERE = """
from gdbext.starting import dependencies
dependencies.load(*dependencies.NEEDED)
import numpy, tabulate, tomli
print(*(module.__file__ for module in (numpy, tabulate, tomli)))
"""


@pytest.fixture
def site(wheel, tmp_path):
    """What pip makes: a directory with the wheel's contents and, for this test's Python, all that it needs."""
    numpy = pytest.importorskip("numpy")
    site = tmp_path / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for path in Path(numpy.__file__).parents[1].iterdir():
        if path.name.startswith(("numpy", "tabulate", "tomli")) or "__mypyc" in path.name:
            (site / path.name).symlink_to(path)
    return site


def own_gdb():
    """Return a gdb that embeds the Python of this test."""
    try:
        version = gdbrun.run_gdb(["-ex", "python import sys; print('%d.%d' % sys.version_info[:2])"]).out.strip()
    except Unavailable as reason:
        pytest.skip(str(reason))
    if version != "%d.%d" % sys.version_info[:2]:
        pytest.skip(f"gdb embeds Python {version}, which is not this test's")


def test_gdb_finds_what_pip_put_beside_it(site):
    own_gdb()
    script = site.parent / "where.py"
    script.write_text(WHERE)
    output = gdbrun.run_gdb(["-ex", f"source {site}/gdbext/load.py", "-ex", f"source {script}"])
    places = output.out.split()
    assert len(places) == 3 and all(place.startswith(f"{site}/") for place in places), str(output)


def test_the_program_brings_its_own_packages_to_gdb(site, tmp_path):
    own_gdb()
    apart = tmp_path / "apart"
    apart.mkdir()
    (site / "gdbext").rename(apart / "gdbext")
    environment = {**os.environ, "PYTHONPATH": str(apart)}
    code = "import sys; sys.path.append(sys.argv.pop(1)); from gdbext.cli.program import main; sys.exit(main())"
    told = subprocess.run(
        [sys.executable, "-S", "-c", code, str(site), "commands"],
        cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (told.returncode, told.stderr) == (0, "")
    assert re.search(r"^numpy: +\d", told.stdout, re.M)

"""The native kernels: built offline by the oldest toolchain promised; and what is said where they cannot run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gdbext.kernels import native

CHECKOUT = Path(__file__).resolve().parents[2]
MANIFEST = CHECKOUT / "native" / "Cargo.toml"
DISTRIBUTION = Path("/usr/bin/cargo")


def built(cargo, folder, **environment):
    """Build with one cargo, without a network and without anything that it has fetched before."""
    options = ["--offline", "--manifest-path", str(MANIFEST), "--target-dir", str(folder)]
    made = subprocess.run(
        [*cargo, "build", *options], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return folder / "debug" / "libgdbext_native.so"


def test_debians_own_toolchain_builds_it(tmp_path):
    if not DISTRIBUTION.exists():
        pytest.skip("no cargo of a distribution on this machine")
    library = built(
        [str(DISTRIBUTION)], tmp_path / "target", PATH="/usr/bin:/bin", CARGO_HOME=str(tmp_path), RUSTC="/usr/bin/rustc"
    )
    assert library.stat().st_size > 10_000


def test_the_oldest_toolchain_that_is_promised_builds_it(tmp_path):
    floor = next(line.split('"')[1] for line in MANIFEST.read_text().splitlines() if line.startswith("rust-version"))
    if not shutil.which("rustup"):
        pytest.skip("no rustup on this machine")
    if subprocess.run(["rustup", "run", floor, "rustc", "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"rustup has no toolchain {floor}")
    built(["rustup", "run", floor, "cargo"], tmp_path / "target")


def test_no_dependencies_and_a_lock_file_that_old_toolchains_read():
    lock = (CHECKOUT / "native" / "Cargo.lock").read_text()
    assert "version = 3\n" in lock and lock.count("[[package]]") == 1


CODE = """
from gdbext.kernels import native
native.places = lambda: [{place!r}]
kernels, why = native.find_library()
print(kernels is None, why)
"""


def told(place):
    code = CODE.format(place=str(place))
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return answer.stdout


def test_a_missing_library_is_told_in_one_line(tmp_path):
    assert told(tmp_path / "none.so") == "True not built: install gdbext again where cargo runs\n"


def test_a_file_that_is_no_library_is_told_in_one_line(tmp_path):
    (tmp_path / "bad.so").write_bytes(b"\x7fELF no more")
    assert told(tmp_path / "bad.so").startswith("True cannot be used: ")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("unsigned gx_abi(void) { return 99; }", "cannot be used: "),
        (None, f"is of another version (99, not {native.ABI}): run ./install.sh again"),
    ],
)
def test_another_version_is_told_in_one_line(tmp_path, source, words):
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    if source is None:
        names = [name for name in native._SIGNATURES if name != "gx_abi"]
        source = "unsigned gx_abi(void) { return 99; }\n" + "".join(f"void {name}(void) {{}}\n" for name in names)
    (tmp_path / "other.c").write_text(source)
    library = tmp_path / "other.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "other.c")], check=True)
    answer = told(library)
    assert answer.startswith(f"True {words}") and answer.count("\n") == 1


def cut(data, size):
    return data[:size]


def zeroed(data, size):
    return data[:size].ljust(len(data), b"\0")


@pytest.mark.parametrize("how", [cut, zeroed])
@pytest.mark.parametrize("share", [0.01, 0.4, 0.9, 0.999])
def test_a_damaged_library_is_not_loaded(tmp_path, how, share):
    """Its missing pages would end gdb by SIGBUS, at the loader or at the first call."""
    whole = next((place for place in map(Path, native.places()) if place.exists()), None)
    if whole is None:
        pytest.skip("the native kernels are not built")
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(how(whole.read_bytes(), int(whole.stat().st_size * share)))
    assert told(damaged).startswith("True is damaged: ") and told(whole).startswith("False ")


def test_what_runs_instead_is_said_once(tmp_path):
    whole = next((place for place in map(Path, native.places()) if place.exists()), None)
    if whole is None:
        pytest.skip("the native kernels are not built")
    ours = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(CHECKOUT / "gdbext", tmp_path / "gdbext", ignore=ours)
    (tmp_path / "gdbext" / "kernels" / whole.name).write_bytes(whole.read_bytes()[:9000])
    code = "from gdbext import kernels as k; print(k.IN_USE, k.take_remark(), k.take_remark(), sep=', ')"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "GDBEXT_KERNELS": "native"}
    line = [sys.executable, "-c", code]
    answer = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    remark = "the library of native kernels is damaged: it ends after 9000 of "
    assert answer.stdout.startswith(f"reference, {remark}") and answer.stdout.endswith("kernels run, None\n")

"""install.sh: what it adds, that it adds it once, and that it takes away just that."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

def source_line(machine):
    return f"source {machine.checkout}/gdbext/load.py"


def test_packages_for_the_python_that_gdb_embeds(machine):
    result = machine.install()
    assert result.returncode == 0, result.stderr
    assert (machine.deps / "py3.99" / "numpy" / "__init__.py").exists()
    assert "--python-version 3.99 --only-binary=:all:" in machine.log
    assert result.stdout.splitlines()[-1] == source_line(machine)


def test_packages_by_the_very_interpreter(machine):
    assert machine.install(FAKE_INTERPRETER="3.99").returncode == 0
    assert "pip" in machine.log
    assert "--python-version" not in machine.log


def test_second_run_installs_nothing(machine):
    assert machine.install().returncode == 0
    result = machine.install()
    assert result.returncode == 0
    assert "in place" in result.stdout
    assert machine.log.count(" --target ") == 2  # what all need, and what pages need


def test_what_pages_need_is_left_out_when_nobody_wants_it(machine):
    assert machine.install("--no-report").returncode == 0
    assert machine.log.count(" --target ") == 1 and not (machine.deps / "py3.99" / "jinja2").exists()
    assert "installed Jinja2 for Python 3.99" in machine.install().stdout
    assert (machine.deps / "py3.99" / "jinja2").exists() and (machine.deps / "py3.99" / "numpy").exists()


def test_without_what_pages_need_all_else_is_installed(machine):
    result = machine.install(FAKE_NO_JINJA="1")
    assert result.returncode == 0, result.stderr
    assert "without Jinja2: gdbext report and heapmap --svg need it (ERROR: no Jinja2)" in result.stdout
    assert (machine.deps / "py3.99" / "numpy").exists()


def test_a_distributions_jinja_serves_when_pip_cannot(machine):
    distribution = machine.add_distribution()
    for name in ("jinja2", "markupsafe"):
        (distribution / name).mkdir()
        (distribution / name / "__init__.py").write_text("")
    result = machine.install(FAKE_PIP_ERROR="no registry")
    assert result.returncode == 0 and "without Jinja2" not in result.stdout
    links = {path.name: path.resolve() for path in machine.deps.glob("py*/*") if path.is_symlink()}
    assert links["jinja2"] == distribution / "jinja2" and links["markupsafe"] == distribution / "markupsafe"


def test_package_below_its_floor_is_replaced(machine):
    assert machine.install().returncode == 0
    package = machine.deps / "py3.99" / "numpy" / "__init__.py"
    package.write_text("__version__ = '1.18.5'\n")
    assert machine.install().returncode == 0
    assert "2.0.2" in package.read_text()


def test_home_is_left_alone_but_for_the_link(machine):
    (machine.home / ".gdbinit").write_text("set pagination off\n")
    assert machine.install().returncode == 0
    assert (machine.home / ".gdbinit").read_text() == "set pagination off\n"
    link = machine.home / ".local" / "bin" / "gdbext"
    assert os.path.realpath(link) == str(machine.checkout / "bin" / "gdbext")


def test_gdbinit_line_is_added_once_and_taken_away(machine):
    gdbinit = machine.home / ".gdbinit"
    gdbinit.write_text("set pagination off\n")
    for _ in range(2):
        assert machine.install("--gdbinit").returncode == 0
    assert gdbinit.read_text() == f"set pagination off\n{source_line(machine)}\n"
    assert machine.install("--uninstall").returncode == 0
    assert gdbinit.read_text() == "set pagination off\n"
    assert not machine.deps.exists()
    assert not (machine.home / ".local" / "bin" / "gdbext").is_symlink()


def test_gdbinit_without_final_newline_keeps_its_last_line(machine):
    gdbinit = machine.home / ".gdbinit"
    gdbinit.write_text("set pagination off")
    assert machine.install("--gdbinit").returncode == 0
    assert gdbinit.read_text().splitlines() == ["set pagination off", source_line(machine)]


def test_gdbinit_that_install_made_goes_with_it(machine):
    assert machine.install("--gdbinit").returncode == 0
    assert machine.install("--uninstall").returncode == 0
    assert not (machine.home / ".gdbinit").exists()


def test_line_that_the_user_wrote_stays(machine):
    gdbinit = machine.home / ".gdbinit"
    gdbinit.write_text(source_line(machine) + "\n")
    assert "already" in machine.install("--gdbinit").stdout
    assert machine.install("--uninstall").returncode == 0
    assert gdbinit.read_text() == source_line(machine) + "\n"


def test_line_goes_into_the_file_that_gdb_reads(machine):
    other = machine.home / "gdb init"
    other.write_text("")
    help_text = f"  * system-wide init files: /etc/gdb/gdbinit\n   * user-specific init file: {other}\n"
    assert machine.install("--gdbinit", FAKE_GDB_HELP=help_text).returncode == 0
    assert other.read_text() == source_line(machine) + "\n"
    assert not (machine.home / ".gdbinit").exists()


def test_foreign_program_of_our_name_stays(machine):
    foreign = machine.home / ".local" / "bin" / "gdbext"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine\n")
    result = machine.install()
    assert result.returncode == 0
    assert "is not ours" in result.stdout
    assert machine.install("--uninstall").returncode == 0
    assert foreign.read_text() == "mine\n"


def test_uninstall_without_install(machine):
    assert machine.install("--uninstall").returncode == 0


def test_uninstall_removes_what_cargo_built_and_no_sources(machine):
    native = machine.checkout / "native"
    for built in (native / "target", native / "fuzz" / "target"):
        (built / "release").mkdir(parents=True)
    (native / "fuzz" / "Cargo.toml").write_text("[package]\n")
    assert machine.install("--uninstall").returncode == 0
    assert [path.name for path in native.iterdir()] == ["fuzz"]
    assert [path.name for path in (native / "fuzz").iterdir()] == ["Cargo.toml"]


def test_native_kernels_are_no_matter_where_there_are_none(machine):
    assert " kernels" not in machine.install().stdout


RUSTUP = "error: rustup could not choose a version of cargo to run, because no default is configured."
SHIM = f"#!/usr/bin/env bash\necho '{RUSTUP}' >&2\necho 'help: run rustup default stable' >&2\nexit 1\n"
CARGO = """#!/usr/bin/env bash
echo "${0%/*}/cargo $* ${PATH%%:*} $RUSTUP_AUTO_INSTALL" >>"$FAKE_LOG"
[[ $1 == --version ]] || exit ${FAKE_CARGO_STATUS:-0}
"""


@pytest.fixture
def native(machine):
    """The kernels' sources in the checkout."""
    folder = machine.checkout / "native"
    (folder / "src").mkdir(parents=True)
    for name in ("Cargo.toml", "Cargo.lock", "src/lib.rs"):
        (folder / name).write_text("")
    return folder


def said_of_kernels(machine, **environment):
    result = machine.install(**environment)
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if "kernels" in line.replace(str(machine.root), "")]
    return line


def test_native_kernels_without_rust(machine, native):
    assert said_of_kernels(machine) == "gdbext: no Rust toolchain: the slower reference kernels will run"


def test_native_kernels_with_rustup_and_no_toolchain(machine, native):
    machine.add_program("cargo", SHIM)
    reason = f"no Rust toolchain that runs ({machine.root}/bin/cargo: {RUSTUP})"
    assert said_of_kernels(machine) == f"gdbext: {reason}: the slower reference kernels will run"


def test_a_distributions_toolchain_serves_behind_rustups(machine, native):
    machine.add_program("cargo", SHIM)
    other = machine.root / "distribution"
    other.mkdir()
    (other / "cargo").write_text(CARGO)
    (other / "cargo").chmod(0o755)
    machine.environment["PATH"] += f":{other}"
    assert said_of_kernels(machine) == "gdbext: built the native kernels"
    line = f"{other}/cargo build --offline --manifest-path {native}/Cargo.toml --target-dir {native}/target"
    assert f"{line} -q --release {other} 0\n" in machine.log  # with its own rustc first, and nothing fetched


def built_before(native, newer):
    library = native / "target" / "release" / "libgdbext_native.so"
    library.parent.mkdir(parents=True)
    library.write_text("")
    for path in native.rglob("*"):
        os.utime(path, (1000, 1000))
    os.utime(native / "src" / "lib.rs" if newer == "sources" else library, (2000, 2000))
    return library


def test_native_kernels_that_do_not_build(machine, native):
    library = built_before(native, newer="library")
    machine.add_program("cargo", CARGO)
    assert said_of_kernels(machine, FAKE_CARGO_STATUS="101") == (
        "gdbext: the native kernels did not build (see .deps/cargo.log): the slower reference kernels will run"
    )
    assert not library.exists()


def test_native_kernels_built_before_stay_while_they_are_of_these_sources(machine, native):
    library = built_before(native, newer="library")
    line = "gdbext: no Rust toolchain: the native kernels that were built before will run"
    assert said_of_kernels(machine) == line and library.exists()


def test_native_kernels_of_older_sources_go(machine, native):
    library = built_before(native, newer="sources")
    line = "gdbext: no Rust toolchain: the slower reference kernels will run"
    assert said_of_kernels(machine) == line and not library.exists()


def test_distribution_serves_when_pip_cannot(machine):
    distribution = machine.add_distribution()
    result = machine.install(FAKE_PIP_ERROR="no registry")
    assert result.returncode == 0, result.stderr
    assert "numpy, tabulate and tomli (ERROR: no registry); using the distribution's" in result.stdout
    (place,) = machine.deps.glob("py*")
    assert (place / "numpy").resolve().parent == (place / "tabulate.py").resolve().parent == distribution


def test_a_compiled_package_of_the_distribution_is_linked_whole(machine):
    place = machine.add_distribution()
    with open(place / "tomli" / "__init__.py", "a") as module:
        module.write("__file__ = __file__[:-2] + 'cpython-399-x86_64-linux-gnu.so'\n")
    assert machine.install(FAKE_PIP_ERROR="no registry").returncode == 0
    (linked,) = machine.deps.glob("py*/tomli")
    assert linked.resolve() == place / "tomli"


def test_what_a_compiled_package_has_beside_its_folder_is_linked_too(machine):
    place, beside = machine.add_distribution(), "c787785866c7b801238d__mypyc"
    (place / f"{beside}.py").write_text("version = '2.2.1'\n")
    (place / "six.py").write_text("")
    (place / "tomli" / "__init__.py").write_text(
        f"import importlib\n__version__ = importlib.import_module('{beside}').version\n"
    )
    assert machine.install(FAKE_PIP_ERROR="no registry").returncode == 0
    (linked,) = machine.deps.glob("py*")
    names = ["numpy", "tabulate.py", "tomli", f"{beside}.py"]
    links = {path.name: path.resolve() for path in linked.iterdir() if path.is_symlink()}
    assert links == {name: place / name for name in names}


def test_distribution_packages_are_installed_when_pip_cannot(machine):
    machine.add_apt()
    result = machine.install(FAKE_PIP_ERROR="no registry")
    assert result.returncode == 2
    assert "install --no-install-recommends python3-numpy python3-tabulate python3-tomli" in machine.log


def ask_real_gdb(code):
    if not shutil.which("gdb"):
        pytest.skip("no gdb")
    result = subprocess.run(
        ["gdb", "-q", "-nx", "-batch", "-ex", f"python {code}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )
    return result.stdout.strip()


def test_real_gdb_is_asked(machine):
    version = ask_real_gdb("import sys; print('%d.%d' % sys.version_info[:2])")
    machine.add_program("gdb", f'#!/usr/bin/env bash\nexec {shutil.which("gdb")} "$@"\n')
    result = machine.install(PIP_NO_INDEX="1")
    assert f"embeds Python {version}\n" in result.stdout


def test_what_was_installed_here_serves_the_real_gdb():
    version = ask_real_gdb("import sys; print('%d.%d' % sys.version_info[:2])")
    place = CHECKOUT / ".deps" / f"py{version}"
    if not place.is_dir():
        pytest.skip("./install.sh has not been run in this checkout")
    answer = ask_real_gdb(
        f"import sys; sys.path.insert(0, {str(place)!r}); import numpy, tabulate, tomli; "
        "print(numpy.__file__); print(tabulate.__file__); print(tomli.__file__)"
    )
    assert [line.startswith(f"{place}/") for line in answer.splitlines()] == [True, True, True]

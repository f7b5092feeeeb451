"""Each way install.sh can fail: one line on stderr, what is wrong and what to do, exit status 2."""

from __future__ import annotations

import os

import pytest


def complaint(result):
    """Return the one line of an install that failed, without its prefix."""
    assert result.returncode == 2, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    prefix = "gdbext: install: "
    assert line.startswith(prefix)
    return line[len(prefix):]


def test_no_gdb(machine):
    machine.remove_program("gdb")
    assert complaint(machine.install()) == (
        "no program gdb; install gdb (on Debian: apt-get install gdb) or name one with --gdb PROGRAM"
    )


def test_named_gdb_is_missing(machine):
    assert complaint(machine.install("--gdb", "gdb-17")).startswith("no program gdb-17; ")
    assert complaint(machine.install("--gdb=gdb-17")).startswith("no program gdb-17; ")


def test_gdb_option_without_program(machine):
    assert complaint(machine.install("--gdb")) == "--gdb needs a program; see ./install.sh --help"


def test_gdb_without_python(machine):
    result = machine.install(FAKE_GDB_SAYS="Python scripting is not supported in this copy of GDB.")
    assert complaint(result) == (
        "gdb was built without Python; install one with Python (Debian's gdb, not gdb-minimal) "
        "or name one with --gdb PROGRAM"
    )


def test_gdb_with_broken_python(machine):
    result = machine.install(FAKE_GDB_SAYS="Fatal Python error: no module named encodings\nmore")
    assert complaint(result) == (
        "gdb cannot run Python: Fatal Python error: no module named encodings; "
        "repair it or name another with --gdb PROGRAM"
    )


def test_old_python(machine):
    assert complaint(machine.install(FAKE_PYTHON="3.8")) == (
        "gdb embeds Python 3.8; gdbext needs 3.9 or later: name another gdb with --gdb PROGRAM"
    )


def test_python_2(machine):
    assert complaint(machine.install(FAKE_PYTHON="2.7")).startswith("gdb embeds Python 2.7; ")


def test_old_gdb(machine):
    assert complaint(machine.install(FAKE_GDB_VERSION="Red Hat 9.2-4")) == (
        "gdb is version 9.2; gdbext needs 10 or later: name one with --gdb PROGRAM"
    )


def test_pip_and_distribution_out_of_reach(machine):
    result = machine.install(FAKE_PIP_ERROR="no registry")
    assert "pip did not get numpy, tabulate and tomli (ERROR: no registry)" in result.stdout
    assert "no numpy, tabulate and tomli for Python" in complaint(result)
    assert "let pip reach its registry" in complaint(result)
    assert list(machine.deps.glob("py*")) == []


def test_no_pip_at_all(machine):
    machine.add_program("python3", "#!/usr/bin/env bash\nexit 1\n")
    result = machine.install()
    assert "pip did not get numpy, tabulate and tomli (no pip for Python 3.99 at hand)" in result.stdout
    assert "no numpy, tabulate and tomli for Python 3.99; " in complaint(result)


def test_distribution_below_floor(machine):
    machine.add_distribution(numpy="1.16.2")
    assert "no numpy, tabulate and tomli" in complaint(machine.install(FAKE_PIP_ERROR="no registry"))


def test_demo_names_what_is_missing_where_it_cannot_install(machine):
    machine.remove_program("gdb")
    machine.remove_program("gcc")
    assert complaint(machine.install("--demo")) == (
        "missing: gdb gcc libc6-dev (as Debian calls them); install them and run this again"
    )


def test_demo_installs_what_is_missing(machine):
    machine.add_apt()
    machine.remove_program("gdb")
    result = machine.install("--demo", FAKE_APT_STATUS="1")
    assert "apt-get -y -qq install --no-install-recommends gdb" in machine.log
    assert complaint(result) == "cannot install gdb (see .deps/apt.log); as root: apt-get install gdb"


def test_demo_without_root_or_sudo(machine):
    machine.add_apt()
    machine.add_program("sudo", "#!/usr/bin/env bash\nexit 1\n")
    if os.geteuid() == 0:
        pytest.skip("running as root")
    machine.remove_program("gdb")
    assert complaint(machine.install("--demo")) == (
        "missing: gdb; neither root nor sudo here: as root, apt-get install gdb"
    )


def test_demo_without_its_program(machine):
    result = machine.install("--demo")
    assert "the compiler could not build testprogs/" in result.stderr


def test_checkout_that_cannot_be_written(machine):
    machine.deps.write_text("a file where the directory should be\n")
    assert complaint(machine.install()) == (
        f"cannot write to {machine.deps}; run this as the owner of the checkout"
    )


def test_unknown_option(machine):
    assert complaint(machine.install("--frobnicate")) == "no option --frobnicate; see ./install.sh --help"


def test_help(machine):
    result = machine.install("--help")
    assert result.returncode == 0
    assert result.stdout.startswith("Usage: ./install.sh")

"""Where numpy, tabulate and tomli are looked for: nothing here needs gdb."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from gdbext.errors import MissingDependencyError, TooLargeError
from gdbext.starting import dependencies, gdbjob
from gdbext.starting.dependencies import HANDED_ON

HERE = sysconfig.get_config_var("SOABI")
OTHER = "cpython-399-x86_64-linux-musl"
VERSION = "%d.%d" % sys.version_info[:2]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A machine without the packages; return the folder that holds gdbext."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "-packages" not in entry])  # setuptools adds some
    for name in [name for name in sys.modules if name.split(".")[0] in dependencies.NEEDED]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delenv(HANDED_ON, raising=False)
    folder = tmp_path / "site packages"
    (folder / "gdbext").mkdir(parents=True)
    monkeypatch.setattr(dependencies, "_root", "")
    dependencies.locate(str(folder / "gdbext"))
    return folder


def fill(folder, *tags, names=dependencies.NEEDED):
    """Put packages into a folder, numpy as it is built for so many Pythons."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
    for tag in tags:
        (folder / "numpy" / "_core").mkdir(exist_ok=True)
        (folder / "numpy" / "_core" / f"_multiarray_umath.{tag}.so").write_bytes(b"")
    return folder


def imported(monkeypatch):
    """Import all, and return from where, without leaving them behind."""
    before = list(sys.path)
    with monkeypatch.context() as context:
        dependencies.load(*dependencies.NEEDED)
        found = {os.path.dirname(os.path.dirname(sys.modules[name].__file__)) for name in dependencies.NEEDED}
        for name in dependencies.NEEDED:
            context.delitem(sys.modules, name)
    for name in dependencies.NEEDED:
        sys.modules.pop(name, None)
    assert sys.path == before
    return found


@pytest.mark.parametrize("tags", [(), (HERE,), ("abi3",), (OTHER, HERE)])
def test_those_that_pip_put_beside_the_wheel(place, monkeypatch, tags):
    fill(place, *tags)
    assert dependencies.find_missing() == []
    assert imported(monkeypatch) == {str(place)}


def test_those_that_the_shell_programs_python_has(place, tmp_path, monkeypatch):
    numpy = fill(tmp_path / "one", HERE, names=["numpy"])
    rest = fill(tmp_path / "two", names=["tabulate", "tomli"])
    monkeypatch.setenv(HANDED_ON, os.pathsep.join([str(numpy), str(rest), str(rest)]))
    assert imported(monkeypatch) == {str(numpy), str(rest)}


def test_what_was_installed_for_this_gdb_comes_first(place, tmp_path, monkeypatch):
    fill(place, HERE)
    monkeypatch.setenv(HANDED_ON, str(fill(tmp_path / "other", HERE)))
    own = fill(place / ".deps" / f"py{VERSION}")
    assert imported(monkeypatch) == {str(own)}


@pytest.mark.parametrize("handed", [False, True])
def test_another_pythons_numpy_is_named_with_what_to_run(place, tmp_path, monkeypatch, handed):
    folder = fill(tmp_path / "other" if handed else place, OTHER)
    if handed:
        monkeypatch.setenv(HANDED_ON, str(folder))
    with pytest.raises(MissingDependencyError) as failed:
        dependencies.load()
    assert str(failed.value) == (
        f"gdb's Python {VERSION} cannot import numpy, tabulate, tomli (numpy in {folder} is built for {OTHER}); "
        f"run python3 -m pip install --target '{place}/.deps/py{VERSION}' --python-version {VERSION} "
        "--only-binary=:all: numpy tabulate tomli"
    )
    assert dependencies.find_missing() == ([] if handed else [str(failed.value)])  # the shell program says it once


def test_the_current_folder_is_none_of_them(place, tmp_path, monkeypatch):
    monkeypatch.chdir(fill(tmp_path / "here", HERE))
    for handed in ("", ".", os.pathsep):
        monkeypatch.setenv(HANDED_ON, handed)
        with pytest.raises(MissingDependencyError):
            dependencies.load()


def test_another_packages_modules_stand_behind_pythons_own(place, monkeypatch):
    fill(place, HERE)
    (place / "numpy" / "__init__.py").write_text("import wave\nfound = wave.__file__\n")
    (place / "wave.py").write_text("")
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    assert imported(monkeypatch) == {str(place)}
    assert not sys.modules["wave"].__file__.startswith(str(place))


def test_numpys_page_of_advice_hides_no_reason(place):
    folder = fill(place)
    advice = "\\n\\nIMPORTANT: PLEASE READ THIS FOR ADVICE ON HOW TO SOLVE THIS ISSUE!\\n\\nIt failed."
    (folder / "numpy" / "__init__.py").write_text(
        "try:\n    import numpy._multiarray\n"
        f"except ImportError as error:\n    raise ImportError('{advice}') from error\n"
    )
    with pytest.raises(MissingDependencyError) as caught:
        dependencies.load("numpy")
    assert "cannot import numpy (No module named 'numpy._multiarray')" in caught.value.message


class Blocker:
    """Forbids an import, as some sandboxes do."""

    def find_spec(self, name, path=None, target=None):
        if name == "tabulate":
            raise ImportError("tabulate is blocked")


@pytest.mark.parametrize("how", ["finder", "none"])
def test_an_import_that_is_blocked_is_one_line(place, monkeypatch, how):
    fill(place, HERE)
    if how == "finder":
        monkeypatch.setattr(sys, "meta_path", [Blocker(), *sys.meta_path])
    else:
        monkeypatch.setitem(sys.modules, "tabulate", None)
    with pytest.raises(MissingDependencyError) as caught:
        dependencies.load("numpy", "tabulate")
    sys.modules.pop("numpy", None)
    assert caught.value.message.startswith(f"gdb's Python {VERSION} cannot import tabulate (")
    assert caught.value.hint.startswith("run python3 -m pip install ")
    assert gdbjob.has_packages() in (True, False)  # where install.sh has put them, Python alone may have them


def test_a_package_that_is_too_old_is_none(place, monkeypatch):
    folder = fill(place)
    (folder / "numpy" / "__init__.py").write_text("__version__ = '1.18.5'\n")
    for _ in range(2):  # it is imported then, and still too old
        with pytest.raises(MissingDependencyError) as caught:
            dependencies.load()
        assert "cannot import numpy (numpy 1.18.5 is too old: 1.19 or later is needed)" in caught.value.message
    sys.modules.pop("numpy")


@pytest.mark.parametrize("file, floors", [("gdb.txt", dependencies.FLOORS), ("report.txt", dependencies.DRAWING)])
def test_the_floors_are_those_of_the_requirements(file, floors):
    lines = (Path(__file__).resolve().parents[3] / "requirements" / file).read_text().split()
    assert lines == [f"{name}>={'.'.join(map(str, floor))}" for name, floor in floors.items()]


def test_what_only_draws_is_no_reason_to_complain_and_is_named_when_it_is_wanted(place, monkeypatch):
    fill(place, HERE)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert dependencies.find_missing() == []
    with pytest.raises(MissingDependencyError) as caught:
        dependencies.load(*dependencies.DRAWING)
    assert caught.value.message.startswith(f"gdb's Python {VERSION} cannot import jinja2")
    assert caught.value.hint.startswith("run python3 -m pip install ") and caught.value.hint.endswith(" jinja2")


def test_no_memory_for_a_package_is_not_a_missing_one(place):
    fill(place)
    reason = "libopenblas.so: failed to map segment from shared object"
    (place / "numpy" / "__init__.py").write_text(f"raise ImportError({reason!r})")
    with pytest.raises(TooLargeError, match="not enough memory for an answer; the machine, a cgroup or ulimit -v"):
        dependencies.load("numpy")

"""numpy, tabulate and tomli for gdb's Python, imported when the first command needs them.

``install.sh`` puts them into ``.deps/pyX.Y`` beside the package, pip into the directory that holds the package itself,
where gdb's Python does not look when that is a venv's. The shell program hands on where its own Python has them.
Those directories are in ``sys.path`` only while the packages are imported: afterwards other scripts find what they
always found. A copy that somebody has imported already is used as it is.
"""

from __future__ import annotations

import glob
import importlib
import importlib.machinery
import importlib.util
import os
import re
import shlex
import signal
import sys
from contextlib import contextmanager
from typing import Iterator, Optional, Sequence

from gdbext.errors import MissingDependencyError, is_memory_short, out_of_memory

FLOORS = {"numpy": (1, 19), "tabulate": (0, 8, 9), "tomli": (1, 1)}  # those of requirements/gdb.txt
NEEDED = tuple(FLOORS)
DRAWING = {"jinja2": (3, 0)}  # those of requirements/report.txt, which may be left out
# Those of requirements/fleet.txt, cluster.txt and s3.txt, which nobody has unasked.
FLEET = {"pyarrow": (10,), "pyarrow.parquet": (), "duckdb": (0, 9), "distributed": (2023, 1)}
FLEET.update({"fsspec": (2023, 6), "fsspec.core": (), "s3fs": (2023, 6)})
_EXTRAS = {"distributed": "pip install 'gdbext[cluster]'"}
_EXTRAS.update(dict.fromkeys(("fsspec", "s3fs"), "run ./install.sh --s3, or pip install 'gdbext[s3]'"))
HANDED_ON = "GDBEXT_PACKAGES"  # directories where the shell program's Python has them

_THREADS = "OPENBLAS_NUM_THREADS"

_root = ""


def locate(package_folder: str) -> None:
    """Note where the package is; ``.deps`` lies beside it."""
    global _root
    _root = os.path.dirname(package_folder)


def find_missing() -> Sequence[str]:
    """Return one line when something is missing, saying what to run; nothing is imported.

    None for the shell program: its command fails with that line.
    """
    with _own_first():
        missing = _unavailable()
    return [str(_missing(missing))] if missing and HANDED_ON not in os.environ else []


def load(*names: str) -> None:
    """Import what is needed now; each takes a noticeable part of a short command's time.

    :param names: of :data:`NEEDED`, :data:`DRAWING` or :data:`FLEET`; none means numpy, which nothing can do without.
    :raises MissingDependencyError: when one of them is absent, broken or too old.
    :raises TooLargeError: when there is no memory for it.
    """
    names = names or NEEDED[:1]
    wanted = [name for name in names if sys.modules.get(name) is None]
    if wanted:
        _import(wanted)
    for name in names:
        _check_floor(name, str(getattr(sys.modules[name], "__version__", "")))


def _import(wanted: Sequence[str]) -> None:
    with _own_first(), _signals_blocked(), _one_thread():
        for name in wanted:
            try:
                importlib.import_module(name)
            except ImportError as error:
                if is_memory_short(_reason_of(error)):
                    raise out_of_memory() from None
                raise _missing(_unavailable() or [name], _reason_of(error)) from None


def _check_floor(name: str, version: str) -> None:
    floor = {**FLOORS, **DRAWING, **FLEET}[name]
    numbers = tuple(map(int, re.findall(r"\d+", version)[: len(floor)]))
    if numbers and numbers < floor:
        needed = ".".join(map(str, floor))
        raise _missing([name], f"{name} {version} is too old: {needed} or later is needed")


@contextmanager
def _own_first() -> Iterator[None]:
    """Have our directories come before those of other packages; after Python's own what may hold more than we need."""
    before = list(sys.path)
    others = [folder for folder in _found_by_pip() if _built_for(folder) is None]
    at = next((index for index, folder in enumerate(before) if folder.endswith("-packages")), len(before))
    own = [_own_folder()] if _root else []  # as a library we have none
    sys.path[:] = [*own, *before[:at], *others, *before[at:]]
    try:
        yield
    finally:
        sys.path[:] = before


def _own_folder() -> str:
    return os.path.join(_root, ".deps", "py%d.%d" % sys.version_info[:2])


def _found_by_pip() -> Sequence[str]:
    """Return where pip may have put the packages: beside the wheel's, or where the shell program's Python has them."""
    beside = [_root] if os.path.isdir(os.path.join(_root, NEEDED[0])) else []
    return [*beside, *filter(os.path.isabs, os.environ.get(HANDED_ON, "").split(os.pathsep))]


def _built_for(folder: str) -> Optional[str]:
    """Return the tag of the other Python that a directory's numpy is built for; None when it suits this one.

    A tag names the version, the machine and the C library: ``cpython-312-x86_64-linux-gnu``.
    """
    cores = glob.glob(os.path.join(glob.escape(folder), "numpy", "*core", "_multiarray_umath.*.so"))
    tags = [os.path.basename(core).split(".")[1] for core in cores]
    suits = any(f".{tag}.so" in importlib.machinery.EXTENSION_SUFFIXES for tag in tags)
    return None if suits or not tags else tags[0]


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Have threads that a package starts (numpy's OpenBLAS) take no signal.

    gdb sleeps until SIGCHLD reaches its own thread: one that another thread took would leave ``run`` asleep for ever.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have numpy's OpenBLAS start no threads: they take a quarter of the import, and nothing here needs them."""
    if _THREADS in os.environ:
        yield
        return
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        os.environ.pop(_THREADS, None)


def _unavailable() -> Sequence[str]:
    return [name for name in NEEDED if sys.modules.get(name) is None and _find_spec(name) is None]


def _find_spec(name: str) -> Optional[importlib.machinery.ModuleSpec]:
    """Return where a package is, or None: also where something forbids its import."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _missing(names: Sequence[str], reason: str = "") -> MissingDependencyError:
    version = "%d.%d" % sys.version_info[:2]
    if not reason or reason in (f"No module named {name!r}" for name in names):
        reason = _why_not()
    because = f" ({reason})" if reason else ""
    if names[0] in FLEET:
        hint = _EXTRAS.get(names[0], "run ./install.sh --fleet, or pip install 'gdbext[fleet]'")
        return MissingDependencyError(f"Python {version} cannot import {names[0]}{because}", hint)
    message = f"gdb's Python {version} cannot import {', '.join(names)}{because}"
    installer = os.path.join(_root, "install.sh")
    if os.path.exists(installer):
        return MissingDependencyError(message, f"run {installer}")
    target = f"--target {shlex.quote(_own_folder())} --python-version {version} --only-binary=:all:"
    return MissingDependencyError(message, f"run python3 -m pip install {target} {' '.join(names)}")


def _reason_of(error: BaseException) -> str:
    """Return the first line of what went wrong first: numpy puts a page of advice around it."""
    while isinstance(error.__cause__ or error.__context__, ImportError):
        error = error.__cause__ or error.__context__ or error
    return str(error).strip().partition("\n")[0]


def _why_not() -> str:
    """Return why packages that are there do not serve, or nothing."""
    others = {folder: tag for folder in _found_by_pip() if (tag := _built_for(folder))}
    return "".join(f"numpy in {folder} is built for {tag}" for folder, tag in list(others.items())[:1])

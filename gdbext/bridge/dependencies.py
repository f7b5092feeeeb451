"""numpy, tabulate and tomli for gdb's Python, imported when the first command needs them.

``install.sh`` puts them into ``.deps/pyX.Y`` beside the package. That folder is in ``sys.path`` only
while they are imported: afterwards other scripts find what they always found. A copy that somebody
has imported already is used as it is.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
from contextlib import contextmanager
from typing import Iterator, Sequence

from gdbext.errors import GdbextError

NEEDED = ("numpy", "tabulate", "tomli")

_THREADS = "OPENBLAS_NUM_THREADS"

_root = ""


class MissingDependencyError(GdbextError):
    """gdb's Python lacks one of the packages."""

    kind = "dependency"


def locate(package_folder: str) -> None:
    """Note where the package is; ``.deps`` lies beside it."""
    global _root
    _root = os.path.dirname(package_folder)


def find_missing() -> Sequence[str]:
    """Return one line when something is missing, saying what to run; nothing is imported."""
    with _own_first():
        missing = [name for name in NEEDED if not _available(name)]
    return [str(_missing(missing))] if missing else []


def load(*names: str) -> None:
    """Import what is needed now; each takes a noticeable part of a short command's time.

    :param names: of :data:`NEEDED`; none means numpy, which nothing can do without.
    :raises MissingDependencyError: when one of them is absent or broken.
    """
    wanted = [name for name in names or NEEDED[:1] if name not in sys.modules]
    if not wanted:
        return
    with _own_first(), _signals_blocked(), _one_thread():
        for name in wanted:
            try:
                importlib.import_module(name)
            except ImportError as error:
                raise _missing([name], str(error).strip().partition("\n")[0]) from None


@contextmanager
def _own_first() -> Iterator[None]:
    folder = os.path.join(_root, ".deps", "py%d.%d" % sys.version_info[:2])
    if not os.path.isdir(folder):
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


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


def _available(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _missing(names: Sequence[str], reason: str = "") -> MissingDependencyError:
    version = "%d.%d" % sys.version_info[:2]
    because = f" ({reason})" if reason and not reason.startswith("No module named") else ""
    message = f"gdb's Python {version} cannot import {' and '.join(names)}{because}"
    installer = os.path.join(_root, "install.sh")
    if os.path.exists(installer):
        return MissingDependencyError(message, f"run {installer}")
    return MissingDependencyError(message, f"run pip install --python-version {version} for them")

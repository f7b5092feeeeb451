"""How gdb is started so that nothing of an untrusted target runs in it.

A core is untrusted: no init files, no auto-loaded scripts, no debuginfod (its switch is unknown to gdb
10, so the variable that turns it on is removed), libthread_db from the system's own place only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Iterator, Mapping, NamedTuple, Optional, Sequence

LOADER = Path(__file__).resolve().parent.parent / "load.py"
PACKAGES = ("numpy", "tabulate", "tomli")
_PROGRESS = "GDBEXT_PROGRESS_FD"
_PACKAGES = "GDBEXT_PACKAGES"
CACHE = "GDBEXT_CACHE"  # since when gdb runs, in ns, a colon, and the folder of what was read of files

_NOISE = re.compile(
    "|".join(
        (
            # the kernel's and gcore's extended registers, where gdb or the CPU is older or newer than the core
            r"warning: Unexpected size of section .\.reg[-2]",
            r"warning: Section .\.reg[-2].* in core file too small",
            r"warning: Couldn't find .* registers in core file",
            r"warning: Could not load vsyscall page",
            r"warning: Memory read failed for corefile section",
            r"warning: Can't open file .* during file-backed mapping note processing",
            r"warning: Can't open file .* which was expanded to",
            r"warning: Unable to find libthread_db matching",
            r"warning: could not find '\.gnu_debugaltlink' file",
            r"warning: \.dynamic section for .* is not at the expected address",
            r"warning: [Ll]oadable section .* outside of ELF segments",
            r"warning: Unable to open .*libthread_db",
            r"warning: File .* auto-loading has been declined",
            r"(warning: )?\d+\t.*: No such file or directory",
            r"Failed to read a valid object file image from memory",
            r"BFD: warning: .* has a segment extending past end of file",
            r"warning: Error reading shared library list entry",
            r"(gdb: )?warning: Couldn't determine a path for the index cache directory",  # no HOME
            r"Cannot access memory at address 0x",
            r"To enable execution of this file add",
            r"Missing separate debuginfo",
            r"Use `info auto-load",
            r"\[New LWP",
            r"\s*$",
        )
    )
)
# A gdb that meets a signal says so itself, with a backtrace; its status says which.
_LAST_WORDS = re.compile(
    r"^(?:Fatal signal: |Recursive internal problem|A problem internal to GDB|-+ Backtrace -+)", re.M
)


class Had(NamedTuple):
    """Where gdb finds the files of a core; fields as of :class:`GdbJob`."""

    exe: Optional[str]
    sysroot: Optional[str]
    debug_dir: Optional[str]


@dataclass(frozen=True)
class GdbJob:
    """What gdb opens before it reads the question; to a process it attaches afterwards.

    :param settings: of gdbext, by name, that are not as they are by default.
    :param descriptors: that gdb inherits.
    :param alone: whether gdb would add nothing to the answer: then Python makes it by itself.
    :param cache: the folder where what gdb has read of files is kept, or None.
    :param index: a folder for gdb's own index cache, or None.
    """

    gdb: str
    core: Optional[str] = None
    exe: Optional[str] = None
    sysroot: Optional[str] = None
    debug_dir: Optional[str] = None
    settings: Mapping[str, int] = field(default_factory=dict)
    alone: bool = False
    descriptors: Sequence[int] = ()
    cache: Optional[str] = None
    index: Optional[str] = None

    def arguments(self, call: str) -> list[str]:
        """Return gdb's command line, the executable before the core.

        :param call: what its Python does once gdbext is loaded, one expression.
        """
        line = [self.gdb, "-nx", "-batch", "-iex", "set auto-load off"]
        for setting in self._settings():
            line += ["-iex", setting]
        line += [f"-se={self.exe}"] if self.exe else []
        line += [f"-core={self.core}"] if self.core else []
        return [*line, *self._loading(), "-ex", f"python {call}"]

    def interactive_arguments(self, pid: Optional[int]) -> list[str]:
        """Return the command line of a gdb for a person, whose own settings and init files hold.

        :param pid: a process to attach to, or None.
        """
        line = [self.gdb]
        for setting in self._places():
            line += ["-iex", setting]
        line += [f"-se={self.exe}"] if self.exe else []
        line += [f"-core={self.core}"] if self.core else []
        line += ["-p", str(pid)] if pid is not None else []
        return [*line, *self._loading()]

    def _loading(self) -> list[str]:
        words = ["-ex", f"source {LOADER}"]
        for name, value in self.settings.items():
            words += ["-ex", f"set gx {name} {value}"]
        return words

    def _settings(self) -> list[str]:
        return [
            "set auto-load libthread-db on",
            "set libthread-db-search-path $sdir",
            "set confirm off",
            "maint set internal-error corefile no",  # it raises the limit, and fills the user's folder
            "set width 0",
            "set style enabled off",
            "set python print-stack full",
            *self._places(),
        ]

    def _places(self) -> list[str]:
        settings = [f"set sysroot {self.sysroot}"] if self.sysroot else []
        settings += [f"set debug-file-directory {self.debug_dir}"] if self.debug_dir else []
        settings += [f"set index-cache directory {self.index}", "set index-cache enabled on"] if self.index else []
        return settings


def guarded_environment(
    environment: Mapping[str, str], terminal: Sequence[int] = (), cache: Optional[str] = None
) -> dict[str, str]:
    """Return an environment for gdb without debuginfod; gdb is started at once.

    :param terminal: the descriptor that progress is shown on, or none.
    :param cache: the folder of what was read of files, or None.
    """
    kept = {name: value for name, value in environment.items() if name not in ("DEBUGINFOD_URLS", _PROGRESS, CACHE)}
    progress = {_PROGRESS: str(terminal[0])} if terminal else {}
    caching = {CACHE: f"{time.time_ns()}:{cache}"} if cache else {}
    return {**with_packages(kept), **progress, **caching}


def with_packages(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which gdb's Python finds this one's packages."""
    return {**environment, _PACKAGES: os.pathsep.join(_own_packages())}


def has_packages() -> bool:
    """Whether this Python has what an answer needs."""
    installed = LOADER.parent.parent / ".deps" / ("py%d.%d" % sys.version_info[:2])
    return all((installed / name).is_dir() or _find_package(name) is not None for name in PACKAGES)


def _own_packages() -> Iterator[str]:
    """Iterate over the directories where this Python has what gdb's needs: gdb's does not look into a venv."""
    for folder in map(_find_package, PACKAGES):
        if folder is not None:
            yield folder


def _find_package(name: str) -> Optional[str]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # something forbids its import
        return None
    if spec is None or spec.origin is None:  # a folder of that name is none
        return None
    path = Path(spec.origin)
    return str(path.parent.parent if spec.submodule_search_locations else path.parent)


def diagnostics(file: IO[str]) -> list[str]:
    """Return the lines of gdb's standard error without what is normal and what it says as it dies, each once."""
    lines = _LAST_WORDS.split(file.read(1 << 20))[0].split("\n")
    return list(dict.fromkeys(line for line in lines if not _NOISE.match(line)))

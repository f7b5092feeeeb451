"""Test programs, built for each glibc and kept in the cache.

A program that is to run with every glibc is linked against the oldest (bullseye's libc6-dev), with the
dynamic linker and the run path of the one it is for: under ``ld.so --library-path`` gdb would lose its
symbols.

Forms of a program:

* ``normal``: with its own debug info.
* ``bare``: stripped, and its dynamic linker and libraries are ``lib/…`` beside it (a relative interpreter):
  it runs in a directory of its own, which can be deleted before its core is opened.
* ``static``: the machine's own glibc, linked in.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from tests.support.cache import CHECKOUT, cache_dir, locked
from tests.support.glibcs import Glibc, Unavailable, glibc

SOURCES = CHECKOUT / "testprogs"
FLAGS = ("-g", "-O1", "-Wall", "-Wextra", "-fno-builtin", "-pthread")
OWN_FLAGS = {"hidden_table": ("-O2",)}  # programs that show what the optimiser does
FAMILY = ("malloc", "calloc", "realloc", "free", "memalign", "aligned_alloc", "posix_memalign")
FORMS = ("normal", "bare", "static")
LIBRARIES = ("libc.so.6", "libpthread.so.0")


def names() -> list[str]:
    """Return the names of all test programs that use glibc's malloc, but for those that state no truth in a file."""
    others = ("jemalloc_", "tcmalloc_", "musl_", "mimalloc_", "slab_holes", "growing")
    return sorted(path.stem for path in SOURCES.glob("*.c") if not path.stem.startswith(others))


@lru_cache(maxsize=None)
def build(name: str, libc: Glibc, form: str = "normal", more: tuple[str, ...] = ()) -> Path:
    """Return the program, built for this glibc in this form.

    :param form: one of ``FORMS``, or a name of the caller's own for what ``more`` makes of it.
    :param more: more of the compiler's arguments.
    :raises Unavailable: no compiler for it on this machine.
    :raises AssertionError: the program does not compile; with the compiler's complaints.
    """
    if not shutil.which("gcc"):
        raise Unavailable("test programs need gcc")
    source = SOURCES / f"{name}.c"
    command = ["gcc", *FLAGS, *OWN_FLAGS.get(name, ()), str(source), *more, *_link_flags(libc, form)]
    place = cache_dir("programs", f"{libc.suite}-{libc.version}-{form}")
    target = place / name
    stamp = place / f"{name}.stamp"
    wanted = _fingerprint(command, source)
    with locked(f"build-{libc.suite}-{form}-{name}"):
        if not (target.exists() and stamp.exists() and stamp.read_text() == wanted):
            _compile(command, target)
            if form == "bare":
                subprocess.run(["strip", "-s", str(target)], check=True)
            stamp.write_text(wanted)
    return target


def install_bare(name: str, libc: Glibc, place: Path) -> Path:
    """Copy the bare program and the libraries it runs with to a directory; it runs with that as cwd."""
    program = place / name
    shutil.copy2(build(name, libc, "bare"), program)
    (place / "lib").mkdir()
    shutil.copy2(libc.loader.resolve(), place / "lib" / libc.loader.name)
    for library in LIBRARIES:
        shutil.copy2((libc.libdir / library).resolve(), place / "lib" / library)
    return program


def _compile(command: list[str], target: Path) -> None:
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    done = subprocess.run([*command, "-o", str(fresh)], capture_output=True, text=True, env=_plain_language())
    if done.returncode and _lacks_multilib(done.stderr):
        raise Unavailable("32-bit test programs need gcc-multilib")
    assert done.returncode == 0, f"{target.name} does not compile\n{done.stderr}"
    fresh.rename(target)


def _plain_language() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def _lacks_multilib(complaint: str) -> bool:
    hints = ("skipping incompatible", "bits/libc-header-start.h", "gnu/stubs-32.h")
    return any(hint in complaint for hint in hints)


def _fingerprint(command: list[str], source: Path) -> str:
    # Not where the source is: checkouts may share what is built.
    digest = hashlib.sha256("\0".join(word for word in command if word != str(source)).encode())
    for file in (source, *sorted(SOURCES.glob("*.h"))):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _link_flags(libc: Glibc, form: str) -> list[str]:
    if form == "static":
        return ["-static", "-DTRUTH_STATIC", "-Wl," + ",".join(f"--wrap={name}" for name in FAMILY)]
    flags = ["-Wl,-z,noexecstack"]
    if libc.suite == "i386":
        flags.append("-m32")
    elif libc.suite != "system":
        flags += _oldest_flags(glibc("bullseye"))
    if form == "bare":
        flags += _run_with(f"lib/{libc.loader.name}", "$ORIGIN/lib")
    elif libc.root:
        flags += _run_with(str(libc.loader), str(libc.libdir))
    return flags


def _run_with(loader: str, libraries: str) -> list[str]:
    return [f"-Wl,--dynamic-linker={loader}", f"-Wl,-rpath,{libraries},--disable-new-dtags"]


def _oldest_flags(oldest: Glibc) -> list[str]:
    """Compile and link against bullseye's headers and libraries; the kernel's headers are the machine's."""
    root = oldest.root
    tuple_dir = "usr/lib/x86_64-linux-gnu"
    return [
        f"--sysroot={root}",
        "-idirafter",
        "/usr/include",
        "-idirafter",
        "/usr/include/x86_64-linux-gnu",
        f"-B{root}/{tuple_dir}",
        f"-L{root}/{tuple_dir}",
        f"-L{oldest.libdir}",
        "-l:libpthread.so.0",
    ]

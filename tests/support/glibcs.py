"""The glibcs of the test matrix, fetched from the archive that this machine's apt uses.

A glibc is named by the Debian suite it comes from, and known by the version found there: suites
move. ``system`` is the machine's own; nothing is ever installed into the system. Packages are fetched
once into the cache (about 10 MB a suite); a suite that can't be had raises :class:`Unavailable`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Iterator, Optional, Sequence, Union

from tests.support.cache import cache_dir, locked

APT_TIMEOUT = 300


class Unavailable(Exception):
    """Something of the test matrix can't be had on this machine; the message is the skip's reason."""


@dataclass(frozen=True)
class Suite:
    """A source of a glibc.

    :param expected: the version it held when this was written; what it holds is found out.
    :param codename: Debian's name of the suite; None is the machine's own.
    """

    name: str
    expected: str
    codename: Optional[str]
    packages: tuple[str, ...] = ("libc6", "libc6-dbg")
    architecture: str = "amd64"


SUITES = {
    suite.name: suite
    for suite in (
        Suite("bullseye", "2.31", "bullseye", ("libc6", "libc6-dbg", "libc6-dev")),
        Suite("system", "2.36", None),
        Suite("trixie", "2.41", "trixie"),
        Suite("sid", "2.43", "sid"),
        Suite("experimental", "2.44", "experimental"),
        Suite("i386", "2.36", None, architecture="i386"),
    )
}
MATRIX = ("bullseye", "system", "trixie", "sid", "experimental")


@dataclass(frozen=True)
class Glibc:
    """A glibc that programs can be run with.

    :param version: as found, for example ``2.36``.
    :param root: where its packages were unpacked; None is the machine's own.
    :param libdir: the directory of libc.so.6.
    :param loader: the dynamic linker.
    :param debug_dir: what gdb's ``debug-file-directory`` must be to find its debug info.
    """

    suite: str
    version: str
    package: str
    root: Optional[Path]
    libdir: Path
    loader: Path
    debug_dir: Path

    @property
    def minor(self) -> int:
        """The y of version 2.y."""
        return int(self.version.split(".")[1])

    @property
    def libc(self) -> Path:
        """The shared library."""
        return self.libdir / "libc.so.6"

    def gdb_options(self) -> list[str]:
        """Return what gdb needs to find the libraries' debug info and its thread library."""
        options = ["-iex", f"set debug-file-directory {self.debug_dir}"]
        if self.root:
            options += ["-iex", f"add-auto-load-safe-path {self.root}"]
            options += ["-iex", f"set libthread-db-search-path {self.libdir}"]
        return options


def glibc(name: str) -> Glibc:
    """Return the glibc of a suite, fetching it if need be; each run tries once.

    :raises Unavailable: the suite can't be reached, or now holds a version that another one gives.
    """
    found = _tried(name)
    if isinstance(found, str):
        raise Unavailable(found)
    return found


@lru_cache(maxsize=None)
def _tried(name: str) -> Union[Glibc, str]:
    """Return the glibc, or why there is none."""
    try:
        found = _system() if name == "system" else _fetched(SUITES[name])
    except Unavailable as reason:
        return f"glibc of {name}: {reason}"
    twin = _twin(found) if name != "system" else None
    if twin:
        return f"glibc of {name} has moved to {found.version}, which {twin} gives too"
    return found


def _twin(found: Glibc) -> Optional[str]:
    """Return the suite that gives the version this one has moved to; of two that moved, the first stays."""
    if found.suite not in MATRIX or found.version == SUITES[found.suite].expected:
        return None
    for name in MATRIX:
        first = MATRIX.index(name) < MATRIX.index(found.suite) or found.version == SUITES[name].expected
        if name != found.suite and first and _version(name) == found.version:
            return name
    return None


def _version(name: str) -> Optional[str]:
    """The version that a suite holds now; None where it can't be had."""
    try:
        return (_system() if name == "system" else _fetched(SUITES[name])).version
    except Unavailable:
        return None


# ---- the machine's own ----


def _system() -> Glibc:
    package = _installed("libc6")
    libdir = Path("/lib") / f"{os.uname().machine}-linux-gnu"
    loader = Path("/lib64/ld-linux-x86-64.so.2")
    if not package or not (libdir / "libc.so.6").exists():
        raise Unavailable("this machine has no Debian libc6 for amd64")
    return Glibc("system", _upstream(package), package, None, libdir, loader, _system_debug_dir(package))


def _system_debug_dir(package: str) -> Path:
    if _installed("libc6-dbg") == package:
        return Path("/usr/lib/debug")
    suite = Suite("system", _upstream(package), None, ("libc6-dbg",))
    return unpacked(suite, [f"libc6-dbg={package}"], package) / "usr/lib/debug"


def _installed(package: str) -> Optional[str]:
    if not shutil.which("dpkg-query"):
        return None
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}\n", f"{package}:amd64"],
        capture_output=True,
        text=True,
    )
    status, _, version = done.stdout.partition("\n")[0].partition(" ")
    return version if status == "installed" else None


def _upstream(package: str) -> str:
    return re.split(r"[-+~]", package.split(":")[-1])[0]


# ---- other suites ----


def _fetched(suite: Suite) -> Glibc:
    stamp = cache_dir("glibc") / f"{suite.name}.json"
    with locked(f"glibc-{suite.name}"):
        if not stamp.exists():
            package = candidate(suite)
            unpacked(suite, list(suite.packages), package)
            stamp.write_text(json.dumps({"package": package}))
        package = json.loads(stamp.read_text())["package"]
    return _described(suite, package, _root(suite, package))


def _described(suite: Suite, package: str, root: Path) -> Glibc:
    libc = _one(root, "**/libc.so.6")
    loader = _one(root, "**/ld-linux.so.2" if suite.architecture == "i386" else "**/ld-linux-x86-64.so.2")
    debug_dir = root / "usr/lib/debug"
    return Glibc(suite.name, _upstream(package), package, root, libc.parent, loader, debug_dir)


def _one(root: Path, pattern: str) -> Path:
    found = sorted(path for path in root.glob(pattern) if path.exists())
    if not found:
        raise Unavailable(f"the packages in {root.name} hold no {pattern.rpartition('/')[2]}")
    return max(found, key=lambda path: len(path.parts))


def _root(suite: Suite, package: str) -> Path:
    return cache_dir("glibc") / f"{suite.name}-{package.replace(':', '_')}-{suite.architecture}"


def unpacked(suite: Suite, packages: Sequence[str], package: str) -> Path:
    """Return the directory with the packages' files; complete or not there at all."""
    root = _root(suite, package)
    if root.exists():
        return root
    fresh = root.with_name(f"{root.name}.{os.getpid()}")
    archives = fresh / "archives"
    archives.mkdir(parents=True)
    try:
        _apt(suite, ["download", *(_qualified(suite, name) for name in packages)], archives)
        for archive in sorted(archives.glob("*.deb")):
            _run(["dpkg", "-x", str(archive), str(fresh)])
        shutil.rmtree(archives)
        _mend_links(fresh)
        fresh.rename(root)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return root


def _qualified(suite: Suite, name: str) -> str:
    if "=" in name:
        return name
    return f"{name}:{suite.architecture}/{suite.codename or _own_codename()}"


def _mend_links(root: Path) -> None:
    """Make absolute symbolic links stay below the root."""
    for link in root.rglob("*"):
        if link.is_symlink() and os.readlink(link).startswith("/"):
            target = root / os.readlink(link).lstrip("/")
            link.unlink()
            link.symlink_to(os.path.relpath(target, link.parent))


def candidate(suite: Suite) -> str:
    """Return the version of the first package in the suite; refreshes the package lists."""
    _apt(suite, ["update"], cache_dir("apt"))
    listing = _apt_cache(suite, "madison", f"{suite.packages[0]}:{suite.architecture}")
    versions = [line.split("|")[1].strip() for line in listing.splitlines() if "|" in line]
    if not versions:
        raise Unavailable(f"{suite.codename or _own_codename()} has no {suite.packages[0]} for {suite.architecture}")
    return versions[0]


def _apt(suite: Suite, arguments: Sequence[str], cwd: Path) -> None:
    _run(["apt-get", "-qq", *_apt_options(suite), *arguments], cwd)


def _apt_cache(suite: Suite, *arguments: str) -> str:
    return _run(["apt-cache", *_apt_options(suite), *arguments])


def _apt_options(suite: Suite) -> list[str]:
    """Options that keep apt away from the system's state, in lists of the suite's own."""
    home = cache_dir("apt", f"{suite.name}-{suite.architecture}")
    for name in ("lists/partial", "cache/archives/partial"):
        (home / name).mkdir(parents=True, exist_ok=True)
    sources = home / "test.sources"
    sources.write_text(_stanza(suite))
    values = {
        "APT::Architecture": suite.architecture,
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": home / "lists",
        "Dir::Cache": home / "cache",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Acquire::http::Timeout": "20",
        "Acquire::Retries": "2",
        "APT::Update::Error-Mode": "any",
    }
    if os.geteuid() == 0:
        values["APT::Sandbox::User"] = "root"
    options = ["-o", "APT::Architectures::=" + suite.architecture]
    for name, value in values.items():
        options += ["-o", f"{name}={value}"]
    return options


def _run(command: Sequence[str], cwd: Optional[Path] = None) -> str:
    if not shutil.which(command[0]):
        raise Unavailable(f"glibcs of other suites need {command[0]}")
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=APT_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} gave no answer in {APT_TIMEOUT} s") from None
    if done.returncode:
        complaints = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        raise Unavailable((complaints or [f"{command[0]} failed: {done.stderr.strip()[-200:]}"])[0])
    return done.stdout


# ---- where this machine's apt looks ----


def _own_codename() -> str:
    release = Path("/etc/os-release")
    found = re.search(r"^VERSION_CODENAME=(\w+)", release.read_text() if release.exists() else "", re.M)
    if not found:
        raise Unavailable("this is no Debian: no release name in os-release")
    return found.group(1)


def _stanza(suite: Suite) -> str:
    uri, keyring = _archive()
    signed = f"Signed-By: {keyring}\n" if keyring else ""
    codename = suite.codename or _own_codename()
    return f"Types: deb\nURIs: {uri}\nSuites: {codename}\nComponents: main\n{signed}"


@lru_cache(maxsize=None)
def _archive() -> tuple[str, Optional[str]]:
    """The URI, and the keyring if one is named, of the archive that holds the machine's own release."""
    codename = _own_codename()
    for uri, suites, keyring in _own_sources():
        if codename in suites:
            return uri, keyring
    raise Unavailable(f"no apt source of this machine names the suite {codename}")


def _own_sources() -> Iterator[tuple[str, list[str], Optional[str]]]:
    etc = Path("/etc/apt")
    for file in sorted(etc.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text()):
            yield from _from_stanza(stanza)
    for file in (etc / "sources.list", *sorted(etc.glob("sources.list.d/*.list"))):
        for line in file.read_text().splitlines() if file.exists() else ():
            yield from _from_line(line)


def _from_stanza(stanza: str) -> Iterator[tuple[str, list[str], Optional[str]]]:
    fields = dict(re.findall(r"^([\w-]+):[ \t]*(.+)$", stanza, re.M))
    if "deb" in fields.get("Types", "").split() and fields.get("Enabled", "yes") != "no":
        keyring = fields.get("Signed-By")
        for uri in fields.get("URIs", "").split():
            yield uri, fields.get("Suites", "").split(), keyring


def _from_line(line: str) -> Iterator[tuple[str, list[str], Optional[str]]]:
    found = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)", line)
    if found:
        keyring = re.search(r"signed-by=(\S+)", found.group(1) or "")
        yield found.group(2), [found.group(3)], keyring.group(1) if keyring else None

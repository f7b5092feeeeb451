"""The jemallocs of the tests, built with debug info from the sources that Rust crates carry.

Cargo fetches a crate's sources from the registry that this machine's cargo uses; jemalloc's own files in them are
those of the release. What can't be had raises :class:`Unavailable` with the reason. Builds are made once,
kept in the cache, and named ``VERSION`` or ``VERSION-VARIANT``:

* no variant: as released, for addresses of 48 bits whatever this machine's processor has.
* ``vaddr57``: for processors with five levels of page tables; the radix tree is three levels high.
* ``nostats``: ``--disable-stats``.
* ``page16``: pages of 64 KiB, as Debian has them outside x86: bitmaps of slabs are trees, and there are more bins.
* ``je``: public names with the prefix ``je_``; made from the plain build's objects, in a second.
* ``rjem``: public and private names as Rust's crates link it (``_rjem_malloc``, ``_rjem_je_arenas``), with a
  symbol table but no debug info; made so too. Its ``archive`` is for static programs.

``debian`` is the machine's own libjemalloc2, ``debian-SUITE`` another suite's; they have public symbols only.

A plain build takes 25 to 50 s of CPU. Jemalloc's makefile compiles everything twice, the first time only to list
its private names; that pass is done at a cheap optimisation level here, and variants reuse its result.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Iterator, Mapping, Optional, Sequence, Union

from tests.support.cache import cache_dir, locked
from tests.support.glibcs import Suite, Unavailable, candidate, unpacked

VERSIONS = ("5.1.0", "5.2.1", "5.3.0", "5.3.1")
DEBIAN = "debian"
SONAME = "libjemalloc.so.2"
NAMESPACE = "include/jemalloc/internal/private_namespace.gen.h"
BASE_FLAGS = "-std=gnu11 -pipe -w -fvisibility=hidden"
LISTING_FLAGS = f"{BASE_FLAGS} -g0 -O0"
OBJECT_FLAGS = f"{BASE_FLAGS} -g2 -O1 -fPIC -DPIC"  # released with -O2, which has the same data and takes longer
FETCH_TIMEOUT = 120
BUILD_TIMEOUT = 900
PROJECT = '[package]\nname = "sources"\nversion = "0.0.0"\n[lib]\npath = "lib.rs"\n'
MANIFEST = PROJECT + '[dependencies]\n{crate} = "={version}"\n'


@dataclass(frozen=True)
class Source:
    """Where a version's sources are: a crate, and what its ``configure --with-version`` must be told."""

    crate: str
    crate_version: str
    commit: str


SOURCES: Mapping[str, Source] = {
    "5.1.0": Source("jemalloc-sys", "0.3.2", "61efbda7098de6fe64c362d309824864308c36d4"),
    "5.2.1": Source("tikv-jemalloc-sys", "0.4.0", "ea6b3e973b477b8061e0076bb257dbd7f3faa756"),
    "5.3.0": Source("tikv-jemalloc-sys", "0.5.0", "54eaed1d8b56b1aa528be3bdd1877e59c56fa90c"),
    "5.3.1": Source("tikv-jemalloc-sys", "0.7.1", "81034ce1f1373e37dc865038e1bc8eeecf559ce8"),
}
CONFIGURED: Mapping[str, Sequence[str]] = {
    "": ("--with-lg-vaddr=48",),
    "vaddr57": ("--with-lg-vaddr=57",),
    "nostats": ("--disable-stats",),
    "page16": ("--with-lg-page=16",),
}
RENAMED: Mapping[str, tuple[str, str]] = {"je": ("je_", ""), "rjem": ("_rjem_", "_rjem_")}  # public, private


@dataclass(frozen=True)
class Jemalloc:
    """A jemalloc that programs can be run with, by ``LD_PRELOAD``.

    :param library: the shared library; with debug info but for ``rjem`` and ``debian``.
    :param stripped: the same without any but its public symbols; the same file for ``debian``.
    :param archive: its position-independent objects; None for ``debian``.
    :param prefix: of its public names.
    """

    version: str
    variant: str
    library: Path
    stripped: Path
    archive: Optional[Path]
    prefix: str = ""

    @property
    def name(self) -> str:
        """What :func:`jemalloc` calls it."""
        return self.variant if self.variant.startswith(DEBIAN) else _name(self.version, self.variant)


def jemalloc(name: str) -> Jemalloc:
    """Return a jemalloc, fetching and building it if need be; each run tries once.

    :param name: ``5.3.0``, ``5.3.0-vaddr57``, …, ``debian``, or ``debian-trixie``, ….
    :raises Unavailable: its sources or the tools to build it can't be had.
    """
    found = _tried(name)
    if isinstance(found, str):
        raise Unavailable(found)
    return found


@lru_cache(maxsize=None)
def _tried(name: str) -> Union[Jemalloc, str]:
    """Return the jemalloc, or why there is none."""
    version, _, variant = name.partition("-")
    try:
        if version == DEBIAN:
            return _debian_of(variant) if variant else _debian()
        return _renamed(version, variant) if variant in RENAMED else _configured(version, variant)
    except Unavailable as reason:
        return f"jemalloc {name}: {reason}"


def _name(version: str, variant: str) -> str:
    return f"{version}-{variant}" if variant else version


# ---- Debian's ----


def _debian() -> Jemalloc:
    library = Path(f"/usr/lib/{os.uname().machine}-linux-gnu") / SONAME
    if not library.exists() or not shutil.which("dpkg-query"):
        raise Unavailable("this machine has no package libjemalloc2")
    asked = ["dpkg-query", "-W", "-f", "${Version}", "libjemalloc2"]
    package = subprocess.run(asked, capture_output=True, text=True).stdout
    return Jemalloc(package.split("-")[0], DEBIAN, library, library, None)


def _debian_of(codename: str) -> Jemalloc:
    """Return another suite's; only those of suites whose glibc is not newer can be run."""
    suite = Suite(f"libjemalloc2-{codename}", "", codename, ("libjemalloc2",))
    stamp = cache_dir("jemalloc") / f"debian-{codename}"
    with locked(f"jemalloc-debian-{codename}"):
        if not stamp.exists():
            package = candidate(suite)
            unpacked(suite, ["libjemalloc2"], package)
            stamp.write_text(package)
        package = stamp.read_text()
        (library,) = unpacked(suite, ["libjemalloc2"], package).glob(f"usr/lib/*/{SONAME}")
    return Jemalloc(package.split("-")[0], f"{DEBIAN}-{codename}", library, library, None)


# ---- built from source ----


def _configured(version: str, variant: str) -> Jemalloc:
    place = _place(version, variant)
    recipe = _recipe(LISTING_FLAGS, OBJECT_FLAGS, *CONFIGURED[variant], SOURCES[version].commit)
    if not _is_made(place, recipe):
        sources = _sources(version)
        names = _private_names(_configured(version, "")) if variant else None
        with locked(f"jemalloc-{place.name}"):
            if not _is_made(place, recipe):
                require("gcc", "make", "strip", "objcopy")
                with _workshop(place) as work:
                    _build(sources, work, version, CONFIGURED[variant], names)
                    _finish(work, place, recipe)
    return _described(version, variant, "")


@contextmanager
def _workshop(place: Path) -> Iterator[Path]:
    """Make a directory to build in, beside the one that the result goes to; it does not stay."""
    work = place.with_name(f"{place.name}.{os.getpid()}")
    work.mkdir(parents=True)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _build(sources: Path, work: Path, version: str, options: Sequence[str], names: Optional[Path]) -> None:
    """Make the library and the archive of its objects."""
    full_version = f"{version}-0-g{SOURCES[version].commit}"
    fixed = ["-q", "--disable-cxx", f"--with-version={full_version}"]
    run([str(sources / "configure"), *fixed, *options], work)
    if names:
        shutil.copy(names, work / NAMESPACE)
    else:
        _make(work, LISTING_FLAGS, NAMESPACE)
    _make(work, OBJECT_FLAGS, *_outputs(names))


def _outputs(names: Optional[Path]) -> list[str]:
    """Return make's targets; ``-o`` says that the list of private names is done."""
    made = [f"lib/{SONAME}", "lib/libjemalloc_pic.a"]
    return ["-o", NAMESPACE, *made] if names else made


def _make(work: Path, flags: str, *targets: str) -> None:
    run(["make", f"-j{os.cpu_count() or 1}", f"CFLAGS={flags}", *targets], work)


def _finish(work: Path, place: Path, recipe: str) -> None:
    """Keep what is used, strip a copy, and put it all in its place at once."""
    kept = work / "kept"
    for folder in ("lib", "stripped"):
        (kept / folder).mkdir(parents=True)
    for name in (SONAME, "libjemalloc_pic.a"):
        shutil.copy2(work / "lib" / name, kept / "lib" / name)
    if (work / NAMESPACE).exists():
        shutil.copy2(work / NAMESPACE, kept / "private_names.h")
    run(["strip", "-s", "-o", str(kept / "stripped" / SONAME), str(kept / "lib" / SONAME)], work)
    (kept / "recipe").write_text(recipe)
    shutil.rmtree(place, ignore_errors=True)
    kept.rename(place)


def _private_names(plain: Jemalloc) -> Path:
    return plain.library.parents[1] / "private_names.h"


def _described(version: str, variant: str, prefix: str) -> Jemalloc:
    place = _place(version, variant)
    archive = place / "lib/libjemalloc_pic.a"
    return Jemalloc(version, variant, place / "lib" / SONAME, place / "stripped" / SONAME, archive, prefix)


def _place(version: str, variant: str) -> Path:
    return cache_dir("jemalloc") / _name(version, variant or "vaddr48")


def _recipe(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def _is_made(place: Path, recipe: str) -> bool:
    stamp = place / "recipe"
    return stamp.exists() and stamp.read_text() == recipe


# ---- the same objects under other names ----


def _renamed(version: str, variant: str) -> Jemalloc:
    public, private = RENAMED[variant]
    plain = _configured(version, "")
    place = _place(version, variant)
    recipe = _recipe(public, private, str(plain.library.stat().st_mtime_ns))
    with locked(f"jemalloc-{place.name}"):
        if not _is_made(place, recipe):
            with _workshop(place) as work:
                _rename(plain, work, public, private)
                _finish(work, place, recipe)
    return _described(version, variant, public)


def _rename(plain: Jemalloc, work: Path, public: str, private: str) -> None:
    assert plain.archive
    (work / "lib").mkdir()
    renames = work / "renames"
    renames.write_text("".join(_renames(plain, public, private)))
    archive = work / "lib/libjemalloc_pic.a"
    debug = ["--strip-debug"] if private else []
    run(["objcopy", *debug, f"--redefine-syms={renames}", str(plain.archive), str(archive)], work)
    whole = ["-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive", "-lm", "-pthread"]
    run(["gcc", "-shared", f"-Wl,-soname,{SONAME}", *whole, "-o", str(work / "lib" / SONAME)], work)


def _renames(plain: Jemalloc, public: str, private: str) -> list[str]:
    """Return objcopy's lines: all global symbols that the objects define."""
    listed = run(["nm", "-g", "--defined-only", "-f", "posix", str(plain.archive)], Path("/"))
    symbols = {line.split()[0] for line in listed.splitlines() if len(line.split()) >= 3}
    renamed = []
    for symbol in sorted(symbols):
        prefix = private if symbol.startswith("je_") else public
        renamed.append(f"{symbol} {prefix}{symbol}\n")
    return renamed


# ---- sources ----


def _sources(version: str) -> Path:
    """Return the directory of a version's sources, ready to be configured."""
    place = cache_dir("jemalloc") / f"sources-{version}"
    with locked(f"jemalloc-sources-{version}"):
        if not place.exists():
            _fetch(SOURCES[version], place)
    return place


def _fetch(source: Source, place: Path) -> None:
    with _vendored(source.crate, source.crate_version, place) as crate:
        _mend(crate)
        (crate / "jemalloc").rename(place)


@contextmanager
def _vendored(crate: str, version: str, place: Path) -> Iterator[Path]:
    """Have cargo fetch a crate; what it made beside the place does not stay."""
    require("cargo")
    with _workshop(place) as work:
        (work / "lib.rs").touch()
        (work / "Cargo.toml").write_text(MANIFEST.format(crate=crate, version=version))
        limits = {"CARGO_NET_RETRY": "1", "CARGO_HTTP_TIMEOUT": "20"}
        run(["cargo", "vendor", "-q", "--versioned-dirs", "vendor"], work, FETCH_TIMEOUT, limits)
        (found,) = (work / "vendor").glob(f"{crate}-{version}*")
        yield found


def crate_sources(crate: str, version: str, part: str) -> Path:
    """Return a directory of a crate's files, fetched once.

    :raises Unavailable: cargo or its registry can't be had.
    """
    place = cache_dir("crates") / f"{crate}-{version}"
    with locked(f"crate-{crate}-{version}"):
        if not place.exists():
            with _vendored(crate, version, place) as found:
                (found / part).rename(place)
    return place


def _mend(crate: Path) -> None:
    """Put configure where it belongs, and let it and its scripts be run: crates lose the permission."""
    shutil.copy2(crate / "configure/configure", crate / "jemalloc/configure")
    for script in (
        crate / "jemalloc/configure",
        *crate.glob("jemalloc/**/*.sh"),
        *crate.glob("jemalloc/build-aux/*"),
    ):
        script.chmod(0o755)


def require(*tools: str) -> None:
    """Say that something cannot be built here, unless all tools are.

    :raises Unavailable: one is not.
    """
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        raise Unavailable(f"building it needs {' and '.join(missing)}")


def run(
    command: Sequence[str],
    cwd: Path,
    timeout: float = BUILD_TIMEOUT,
    environment: Optional[Mapping[str, str]] = None,
) -> str:
    """Run a tool and return what it wrote.

    :raises Unavailable: it failed, or did not end in time.
    """
    env = {**os.environ, "LC_ALL": "C", **(environment or {})}
    env.pop("MAKEFLAGS", None)
    tool = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{tool} did not end in {timeout:.0f} s") from None
    if done.returncode:
        raise Unavailable(f"{tool} failed: {_complaint(done.stderr or done.stdout)}")
    return done.stdout


def _complaint(text: str) -> str:
    """Return the line that says why; cargo gives the causes of an error after it, the deepest last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
    causes = [after for line, after in zip(lines, lines[1:]) if line == "Caused by:"]
    return ": ".join([errors[0], *causes[-1:]])[:200]

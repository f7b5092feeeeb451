#!/usr/bin/env python3
"""Record where Debian's stripped libjemalloc2 has its globals, from the objects that libjemalloc-dev ships.

Usage: python -m tests.support.record_debian_jemalloc [--add] SUITE...

libjemalloc-dev holds the same objects unstripped (``libjemalloc_pic.a``). Linked again in the archive's order, by the
suite's own linker with the suite's own start files, they give the library to the byte, so the symbols of that
link are its own: the script compares contents and addresses of the sections and refuses where they differ. It
prints the entries, or with ``--add`` puts them into gdbext/heap/jemalloc/data/builds.json.

Packages come through this machine's apt into the tests' cache; nothing is installed. ``bytes`` of an entry is the
size of the structure that holds the radix tree: its geometry depends on the machine that Debian built it on.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gdbext.heap.jemalloc.find.named import PREFIXED, STATIC  # noqa: E402
from tests.support.cache import locked  # noqa: E402
from tests.support.glibcs import Suite, candidate, unpacked  # noqa: E402

TABLE = ROOT / "gdbext/heap/jemalloc/data/builds.json"
ALIKE = (".text", ".rodata", ".data", ".tdata")  # the same contents at the same place
PLACED = (
    *ALIKE,
    ".init_array",
    ".data.rel.ro",
    ".got",
    ".got.plt",
    ".bss",
    ".tbss",
)  # the same place and size
NAMES = ("arenas", *PREFIXED, *STATIC)
ROOTS = ("extents_rtree", "arena_emap_global")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
PACKAGES = ("libjemalloc2", "libjemalloc-dev", "libc6", "libc6-dev", "libgcc-s1", "libstdc++6", "zlib1g")
LINKER = ("binutils-x86-64-linux-gnu", "libbinutils", "libctf0", "libctf-nobfd0")


@dataclass(frozen=True)
class Toolchain:
    """What a suite links with: its gcc, and packages that its linker needs besides :data:`LINKER`."""

    gcc: str
    packages: tuple[str, ...] = ()


TOOLCHAINS = {
    "bullseye": Toolchain("10"),
    "bookworm": Toolchain("12", ("libjansson4", "libzstd1")),
    "trixie": Toolchain("14", ("libjansson4", "libzstd1", "libsframe1")),
    "sid": Toolchain("15", ("libjansson4", "libzstd1", "libsframe3")),
}


def fetch(suite: str) -> tuple[Path, str]:
    """Return the directory with the packages of a suite, and libjemalloc2's version.

    :raises Unavailable: the suite can't be reached, or has no such packages now.
    """
    tools = TOOLCHAINS[suite]
    gcc = (f"libgcc-{tools.gcc}-dev", f"libstdc++-{tools.gcc}-dev")
    packages = (*PACKAGES, *LINKER, *gcc, *tools.packages)
    wanted = Suite(f"jemalloc-{suite}", "", suite, packages)
    version = candidate(wanted)
    with locked(f"jemalloc-{suite}"):
        root = unpacked(wanted, list(packages), version)
        for name in ("lib", "lib64"):
            if not (root / name).exists():
                (root / name).symlink_to(f"usr/{name}")
    return root, version


def relink(root: Path, gcc: str, place: Path) -> Path:
    """Link the archive's objects in its order, as the suite's compiler would."""
    libraries, own = root / LIBRARIES, root / "usr/lib/gcc/x86_64-linux-gnu" / gcc
    archive = libraries / "libjemalloc_pic.a"
    run("ar", "x", str(archive), cwd=place)
    objects = [str(place / name) for name in run("ar", "t", str(archive)).split()]
    shared_gcc = ("-lgcc", "--push-state", "--as-needed", "-lgcc_s", "--pop-state")
    run(
        str(root / "lib64/ld-linux-x86-64.so.2"),
        *("--library-path", f"{libraries}:{root}/lib/x86_64-linux-gnu"),
        str(root / "usr/bin/x86_64-linux-gnu-ld"),
        *(
            f"--sysroot={root}",
            "--build-id",
            "--eh-frame-hdr",
            "-m",
            "elf_x86_64",
            "--hash-style=gnu",
            "-shared",
        ),
        *("-o", str(place / "relinked.so"), str(libraries / "crti.o"), str(own / "crtbeginS.o")),
        *(f"-L{own}", f"-L{libraries}", "-soname", "libjemalloc.so.2", *objects, "-z", "relro"),
        *("-lm", "-lstdc++", "-lpthread", "-ldl", *shared_gcc, "-lc", *shared_gcc),
        *(str(own / "crtendS.o"), str(libraries / "crtn.o")),
    )
    return place / "relinked.so"


def sections(library: Path) -> dict[str, tuple[int, int, int]]:
    """Return name -> (address, offset in the file, size)."""
    row = r"^\s*\[\s*\d+\]\s+(\.\S+)\s+\S+\s+([0-9a-f]+)\s+([0-9a-f]+)\s+([0-9a-f]+)"
    rows = re.findall(row, run("readelf", "-SW", str(library)), re.M)
    return {name: (int(address, 16), int(offset, 16), int(size, 16)) for name, address, offset, size in rows}


def differences(one: Path, other: Path) -> list[str]:
    """Return how two links differ where they must be alike."""
    left, right = sections(one), sections(other)
    contents = one.read_bytes(), other.read_bytes()
    found = []
    for name in PLACED:
        if (name in left) != (name in right):
            found.append(f"only one has {name}")
            continue
        if name not in left:
            continue
        (address, offset, size), (second, other_offset, other_size) = left[name], right[name]
        if (address, size) != (second, other_size):
            found.append(f"{name} was {size} bytes at {address:#x}, now {other_size} at {second:#x}")
        elif (
            name in ALIKE
            and contents[0][offset : offset + size] != contents[1][other_offset : other_offset + size]
        ):
            found.append(f"{name} has other contents")
    return found


def symbols(linked: Path) -> dict[str, tuple[int, int]]:
    """Return address and size of the globals that gdbext knows, by their names without prefix."""
    rows = [line.split() for line in run("nm", "-S", str(linked)).splitlines()]
    found: dict[str, set[tuple[int, int]]] = {}
    for address, size, kind, name in (row for row in rows if len(row) == 4):
        short = name[3:] if name.startswith("je_") else name
        if short in NAMES and kind.lower() in "bdr":
            found.setdefault(short, set()).add((int(address, 16), int(size, 16)))
    return {name: places.pop() for name, places in sorted(found.items()) if len(places) == 1}


def build_id(library: Path) -> str:
    """Return the library's build-id."""
    return run("readelf", "-n", str(library)).partition("Build ID: ")[2].split()[0]


def entry(suite: str) -> dict[str, Any]:
    """Return {build-id: facts}, or end with how the links differ."""
    root, version = fetch(suite)
    library = (root / LIBRARIES / "libjemalloc.so.2").resolve()
    with tempfile.TemporaryDirectory() as place:
        linked = relink(root, TOOLCHAINS[suite].gcc, Path(place))
        wrong = differences(library, linked)
        if wrong:
            raise SystemExit(f"libjemalloc2 {version}: its objects do not give it again: {'; '.join(wrong)}")
        found = symbols(linked)
    facts = {
        "version": re.split(r"[-+~]", version)[0],
        "package": f"libjemalloc2 {version}",
        "symbols": {name: address for name, (address, _) in found.items()},
        "bytes": {name: size for name, (_, size) in found.items() if name in ROOTS},
    }
    return {build_id(library): facts}


def run(*command: str, cwd: Path = ROOT) -> str:
    """Return what a command prints, or end with what it complains of."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def main(arguments: Sequence[str]) -> None:
    """Print or add the entries of some suites."""
    suites = [word for word in arguments if word != "--add"]
    if not suites or not set(suites) <= set(TOOLCHAINS):
        raise SystemExit(f"which suites? known: {', '.join(TOOLCHAINS)}")
    found = {key: facts for suite in suites for key, facts in entry(suite).items()}
    if "--add" in arguments:
        table = {**json.loads(TABLE.read_text()), **found}
        TABLE.write_text(json.dumps(table, indent=1) + "\n")
    else:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])

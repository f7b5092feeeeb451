"""Which directories the wheel holds, and the native kernels in it; everything else is in pyproject.toml.

A new subpackage must not need an entry here, so they are found, not listed. The kernels know nothing of Python, so
the wheel is one for all of them, and for one platform; where they do not build it holds none, and is one for all
platforms: the reference kernels run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Iterator

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "native"
LIBRARY = "libgdbext_native.so"

# Top-level directories that are importable only below `gdbext` (docs/design.md).
MOUNTED = ("commands", "printers", "shapes")


def mounted_packages() -> dict[str, str]:
    """Map package names to the top-level directories that hold them, nested ones included."""
    found = {}
    for top in filter(lambda name: (ROOT / name).is_dir(), MOUNTED):
        found[f"gdbext.{top}"] = top
        for name in find_packages(top):
            found[f"gdbext.{top}.{name}"] = f"{top}/{name.replace('.', '/')}"
    return found


@lru_cache(maxsize=None)
def build_kernels() -> str:
    """Build the native kernels; return why there are none, or nothing.

    rustup's cargo is there without a toolchain too: then the next one on PATH, a distribution's, may do.
    """
    reason = "no cargo"
    for folder in _folders_with_cargo():
        path = os.pathsep.join((folder, os.environ["PATH"]))  # cargo runs the rustc that it meets first
        environment = {**os.environ, "PATH": path, "RUSTUP_AUTO_INSTALL": "0"}
        line = [f"{folder}/cargo", "build", "-q", "--release", "--offline"]
        line += ["--manifest-path", f"{NATIVE}/Cargo.toml", "--target-dir", f"{NATIVE}/target"]
        made = subprocess.run(line, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if made.returncode == 0:
            return ""
        reason = f"{folder}/cargo: {(made.stderr.strip() or 'no reason given').splitlines()[0]}"
    return reason


def _folders_with_cargo() -> Iterator[str]:
    folders = dict.fromkeys(os.get_exec_path())
    return (folder for folder in folders if NATIVE.exists() and shutil.which("cargo", path=folder))


class BuildWithKernels(build_py):
    """Puts the native kernels beside the module that loads them."""

    def run(self) -> None:
        shutil.rmtree(Path(self.build_lib) / "gdbext", ignore_errors=True)  # an older build's modules, now gone
        super().run()
        if reason := build_kernels():
            print(f"gdbext: no native kernels: the slower reference kernels will run ({reason})", flush=True)
            return
        place = Path(self.build_lib) / "gdbext" / "kernels"
        self.copy_file(str(NATIVE / "target" / "release" / LIBRARY), str(place / LIBRARY))


class WithKernels(Distribution):
    """One that is for a platform where it holds the kernels; they are not built to make a list of files."""

    def has_ext_modules(self) -> bool:
        return not ({"sdist", "dist_info", "egg_info"} & set(self.commands) or build_kernels())


class PlatformWheel(bdist_wheel):
    """Names a wheel that holds the kernels after the platform, and after no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(
    license="MIT",  # in pyproject.toml a table is deprecated, and setuptools before 77 knows nothing else
    distclass=WithKernels,
    cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel},
    packages=find_packages(include=["gdbext", "gdbext.*"]) + list(mounted_packages()),
    package_dir=mounted_packages(),
)

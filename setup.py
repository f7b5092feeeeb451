"""Which directories the wheel holds, and the native kernels in it; everything else is in pyproject.toml.

A new subpackage must not need an entry here, so they are found, not listed. The kernels know nothing of Python, so
the wheel is one for all of them, and for one platform; without cargo it holds none, and is one for all platforms.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

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


def builds_kernels() -> bool:
    """Return whether the native kernels can be built here."""
    return (NATIVE / "Cargo.toml").exists() and shutil.which("cargo") is not None


class BuildWithKernels(build_py):
    """Puts the native kernels beside the module that loads them."""

    def run(self) -> None:
        super().run()
        if not builds_kernels():
            return
        manifest = str(NATIVE / "Cargo.toml")
        subprocess.run(["cargo", "build", "-q", "--release", "--offline", "--manifest-path", manifest], check=True)
        place = Path(self.build_lib) / "gdbext" / "kernels"
        self.copy_file(str(NATIVE / "target" / "release" / LIBRARY), str(place / LIBRARY))


class WithKernels(Distribution):
    """One that is for a platform where it holds the kernels."""

    def has_ext_modules(self) -> bool:
        return builds_kernels()


class PlatformWheel(bdist_wheel):
    """Names a wheel that holds the kernels after the platform, and after no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(
    distclass=WithKernels,
    cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel},
    packages=find_packages(include=["gdbext", "gdbext.*"]) + list(mounted_packages()),
    package_dir=mounted_packages(),
)

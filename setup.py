"""Which directories the wheel holds; everything else is in pyproject.toml.

A new subpackage must not need an entry here, so they are found, not listed.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent

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


setup(
    packages=find_packages(include=["gdbext", "gdbext.*"]) + list(mounted_packages()),
    package_dir=mounted_packages(),
)
